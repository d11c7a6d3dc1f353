"""The decisions of the embedded scheduler.

One rule: values only, and every decision not to bind has a reason.
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
    """A pod that cannot be bound now, with a reason and a sentence. The sentence has no numbers that change often."""

    pod: LocalPod
    reason: str
    message: str
    passing: bool = False
    """Whether the pod waits for objects that may be about to be created: its PodGroup, or other pods of its group."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A PodGroup whose minimum cannot be bound now, with a reason and a sentence without numbers that change often."""

    group: PodGroup
    reason: str
    message: str
    pending: bool = False
    """Whether the cause is neither the free capacity nor missing pods, so that the group's phase is Pending."""


Decision = Bind | Wait | Hold
