"""The errors of the coordinator.

    CoordinatorError
    ├── SettingsError   a flag, a variable or a line of the settings file is wrong; the message names it
    ├── LeadershipLost  another coordinator leads, or the lease could not be renewed in time
    └── LocalError      the embedded cluster cannot be started, found or stopped

One rule: the message is for users; it names the object and says what to do.
"""


class CoordinatorError(Exception):
    """The base of all errors of the coordinator."""


class SettingsError(CoordinatorError):
    """A setting is wrong."""


class LeadershipLost(CoordinatorError):
    """This coordinator does not lead any more."""


class LocalError(CoordinatorError):
    """The embedded cluster is not in the state that the command needs."""
