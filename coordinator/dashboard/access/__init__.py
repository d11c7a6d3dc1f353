"""Who looks at a dashboard in the cluster: logins with tokens of the API server, and what each of them may see."""
