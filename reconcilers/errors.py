"""The errors, besides those of the API server, that stop a plan.

One rule: an error is here only if a person has to act on it.

    ReconcileError
    └── NameTaken   an object of another owner has a name that the job needs
"""


class ReconcileError(Exception):
    """A job could not be reconciled."""


class NameTaken(ReconcileError):
    """An object that does not belong to torchq has a name that the job needs."""
