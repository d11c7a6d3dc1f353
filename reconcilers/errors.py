"""What keeps a plan from being carried out, besides the API server's own errors.

One rule: only what somebody has to do something about is an error here.

    ReconcileError
    └── NameTaken   an object that is not ours has the name of one of ours
"""


class ReconcileError(Exception):
    """A job could not be reconciled."""


class NameTaken(ReconcileError):
    """An object that is not torchq's has the name a job needs."""
