"""When a key became ready, was leased, and was begun by the worker that runs it.

The store measures both waits by its own clock, and the worker counts them back from the moment at which it began. So
the clocks of two machines are never compared, and no wait is negative.
"""

from typing import NamedTuple


class TaskTimes(NamedTuple):
    """The times of one run, in seconds since 1970 by the worker's clock."""

    ready: float
    """When the key became ready: at its pick, unless it had other work then."""
    leased: float
    begun: float
    """When the worker had the key. Its run may still wait for a thread."""


def from_ages(begun: float, ready: float, leased: float) -> TaskTimes:
    """Return the times of a run that has just begun, from the seconds since the key became ready and was leased.

    They are below 0 where the clock of the store was set back."""
    waited = max(0.0, leased)
    return TaskTimes(begun - max(ready, waited), begun - waited, begun)
