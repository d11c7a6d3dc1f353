"""How torchq is installed on Kubernetes: the chart, kustomize, the image, roles, and what generates and checks them.

Nothing here is installed with torchq: it needs Helm's engine and the schemas of Kubernetes, which are for development.
"""
