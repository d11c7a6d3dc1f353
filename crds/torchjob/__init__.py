"""The TorchJob: its spec, tasks, stages, status, and the resources that a job requests.

What all kinds of objects share is in `crds` and `crds.schema`.
"""
