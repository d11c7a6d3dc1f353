"""A gang as torchq describes it to a scheduler, and the state that the scheduler reports.

One rule: the values are frozen, and use no term of a single scheduler: the backends translate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from crds.api_resources import Resource
from crds.resources.amounts import Amounts


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


GroupPhase = Literal["Pending", "Ready", "Refused"]


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
    """The message of a pending or refused group, without numbers that change."""
    queue: str = ""
    """The gang scheduler's own queue that the group waits in; empty where there is none."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The fields of its spec that define its size."""
    deleting: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a pod carries to be bound with its gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod's spec, above all the scheduler's name."""
