"""The CustomResourceDefinitions as `python -m crds.generate` wrote them."""
