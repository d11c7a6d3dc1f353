"""The work queue: leases on keys, RQ jobs, the worker that runs them.

What a run does to a TorchJob is in `reconcilers`.
"""
