"""The official Kubernetes client, as `kube.client` uses it. The knowledge of torchq about the API does not belong
here."""
