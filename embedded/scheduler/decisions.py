"""What the embedded scheduler can decide.

One rule: values only; a reason is told with everything that is not done.
"""

from dataclasses import dataclass

from embedded.pod import LocalPod
from embedded.scheduler.podgroups import PodGroup


@dataclass(frozen=True, slots=True)
class Bind:
    """A pod that is bound to the node now."""

    pod: LocalPod


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod that cannot be bound now, and why, in a sentence without numbers that move."""

    pod: LocalPod
    reason: str
    message: str
    passing: bool = False
    """Whether it waits for what may be about to be made: others of its group, or the group."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A PodGroup whose minimum cannot be bound now, and why, in a sentence without numbers that move."""

    group: PodGroup
    reason: str
    message: str
    kept_out: bool = False
    """Whether it cannot be, whatever is free and whatever pods there are."""


Decision = Bind | Wait | Hold
