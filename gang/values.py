"""A gang as torchq describes it to a scheduler, and the state that the scheduler reports.

One rule: the values are frozen, and use no term of a single scheduler: the backends translate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crds.api_resources import Resource
from crds.resources.amounts import Amounts

GroupPhase = Literal["Pending", "Ready", "Refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Pods that are bound all or none: one stage of a job."""

    name: str
    """The name of the group, and of the object that stands for it if the scheduler has one."""
    namespace: str
    owner: Mapping[str, Any]
    """The owner reference to the job."""
    labels: Mapping[str, str]
    """The labels by which the group is found: the job's name and uid, the attempt."""
    minimum: Mapping[str, int]
    """The number of pods needed by task type, in lower case: the elastic minimum, which does not change during the
    group's life."""
    total: int
    """The number of pods when all of the gang runs."""
    resources: Amounts
    """What the minimum of pods requests together."""
    queue: str = ""
    """The gang scheduler's own queue; empty: its default one."""
    priority_class: str = ""

    @property
    def size(self) -> int:
        """The number of pods that are bound all or none."""
        return sum(self.minimum.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as the API server shows it, trimmed."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    job_uid: str
    """The uid of the job that controls the group; empty if no TorchJob does."""
    attempt: int
    phase: GroupPhase = "Pending"
    """Pending: its pods should not be created yet; Ready: they may be; Refused: the scheduler does not accept the group
    as it is."""
    reason: str = ""
    """The reason of a refusal, for a condition: GangQueueClosed, GangQueueMissing."""
    message: str = ""
    """What the group waits for, as far as its scheduler says it; empty if nothing keeps the group."""
    explained: bool = False
    """Whether the message has the scheduler's own words."""
    seen: bool = True
    """Whether the status shows that a scheduler has seen the group."""
    since: float | None = None
    """When the group was created, in seconds since the epoch."""
    queue: str = ""
    """The gang scheduler's own queue that the group waits in; empty where there is none."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The fields of its spec that define its size."""
    written: float = 0.0
    """When torchq wrote it last so that its scheduler tries again, or made it, in seconds since the epoch."""
    deleting: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangQueue:
    """A queue of a gang scheduler."""

    name: str
    parent: str = ""
    """The queue above it; empty if there is none."""
    refusal: str = ""
    """Why no group in it is let in; empty if it is open."""
    capability: Amounts = field(default_factory=dict)
    """The most that its pods may request together. A resource that is not named has no limit."""
    guarantee: Amounts = field(default_factory=dict)
    """What no other queue may use."""
    allocated: Amounts = field(default_factory=dict)
    """The requests of its pods that have a node, whoever made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The fields by which a pod is bound with its gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod's spec, above all the scheduler's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMembers:
    """The counts of one task of a gang."""

    wanted: int
    """The number of pods of the task when all of it runs."""
    minimum: int
    """The number of pods that the user needs (minMembers); more than `wanted` means all."""
    running: int
    """The number of pods that run now."""
    succeeded: int

    @property
    def enough(self) -> bool:
        """Whether min(minimum, wanted) pods run or have succeeded."""
        return self.running + self.succeeded >= min(self.minimum, self.wanted)

    @property
    def done(self) -> bool:
        """Whether every pod has succeeded."""
        return self.succeeded >= self.wanted
