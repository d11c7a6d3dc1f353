"""The TorchJob: its spec, tasks, stages, status, and what it asks for.

What all kinds of objects share is in `crds` and `crds.schema`.
"""
