"""The official Kubernetes client, as `kube.client` uses it. What torchq knows of the API does not belong here."""
