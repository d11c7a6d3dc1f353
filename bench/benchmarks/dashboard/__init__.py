"""The benchmark of the dashboard: made-up clusters, the servers that are compared, and the tabs that read them."""
