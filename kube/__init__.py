"""The client of a Kubernetes API server: requests, watches, informers, errors.

The package knows no TorchJob. `kube.client` is the only module that imports the library `kubernetes`.
"""
