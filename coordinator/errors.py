"""What can go wrong at the front desk.

    CoordinatorError
    ├── SettingsError   a flag, a variable or a line of the settings file is wrong; names it
    ├── LeadershipLost  another coordinator leads, or the lease could not be renewed in time
    └── LocalError      the embedded cluster cannot be started, found or stopped

One rule: the message is what the user reads; it names the thing and what to do.
"""


class CoordinatorError(Exception):
    """The coordinator cannot go on."""


class SettingsError(CoordinatorError):
    """A setting is wrong."""


class LeadershipLost(CoordinatorError):
    """This coordinator leads no longer."""


class LocalError(CoordinatorError):
    """The embedded cluster is not in the state the command needs."""
