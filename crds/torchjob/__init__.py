"""The TorchJob: its spec, tasks, stages, status, and the resources that a job requests.

The parts that all kinds of objects share are in `crds` and `crds.schema`.
"""
