"""How torchq is installed on Kubernetes: the chart, kustomize, the image, roles, and the code that generates and checks
these.

Nothing here is installed with torchq: it needs Helm's engine and the schemas of Kubernetes, which are for development.
"""
