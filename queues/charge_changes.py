"""Changes of what admitted jobs are charged for, apart from picks: charges that become smaller, and idle growth.

One rule: a change counts only for the attempt and the number of growths that its maker knew.

Idle growth are workers that a job gets out of room that no waiting job can use. Their room counts as used like any
other. The queue has not paid for them, and they are the first to go.
"""

from dataclasses import dataclass

from crds.keys import JobKey
from crds.resources.amounts import Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredCharge:
    """The smaller charge of an admitted job that has fewer workers than before."""

    key: JobKey
    attempt: int
    grown: int
    """Nothing changes unless the reservation has this attempt and this number of growths."""
    size: int
    charge: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGrowth:
    """Further workers for an admitted job, for which its queue does not pay."""

    key: JobKey
    attempt: int
    grown: int
    """Nothing changes unless the reservation has this attempt and this number of growths."""
    workers: int
    """The number of further workers."""
    charge: Amounts
    """What all of them add to the job's charge."""
