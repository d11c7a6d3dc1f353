"""The errors of runs.

One rule: the message names the field, the job or the file, and what to do.

    RunError
    ├── InvalidRun     a field of the request, or a line of the project's defaults, is wrong
    └── PartlyStarted  a job could neither be started nor be taken back; the message names it
"""

from coordinator.errors import CoordinatorError


class RunError(CoordinatorError):
    """A run could not be submitted."""


class InvalidRun(RunError):
    """A field of the request is wrong."""


class PartlyStarted(RunError):
    """A job exists without being started, and could not be deleted."""
