"""A gang as its scheduler is told of it, and what the scheduler says back.

One rule: frozen, and no word of any scheduler's own: `gang.backends` translates.
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
    """Of the group, and of the object that stands for it, if the scheduler wants one."""
    namespace: str
    owner: Mapping[str, Any]
    """The owner reference to the job."""
    labels: Mapping[str, str]
    """What finds the group again: the job's name and uid, the attempt."""
    minimum: Mapping[str, int]
    """Task type, in lower case -> how many of its pods are needed: the elastic minimum, for life."""
    total: int
    """How many pods it has when all of it runs."""
    resources: Amounts
    """What the minimum of pods asks for together."""
    queue: str = ""
    """The gang scheduler's own queue; empty: its default one."""
    priority_class: str = ""

    @property
    def size(self) -> int:
        """How many pods are bound all or none."""
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
    """Of the job that controls it; empty: nobody's that is ours."""
    attempt: int
    phase: GroupPhase = "Pending"
    """Pending: its pods had better wait; Ready: they may be made; Refused: the scheduler will not take it as it is."""
    reason: str = ""
    """Why it is Refused, for a condition: GangQueueClosed, GangQueueMissing."""
    message: str = ""
    """Why it is Pending or Refused, in a sentence without moving numbers."""
    queue: str = ""
    """The gang scheduler's own queue that it waits in; empty where there is none."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The fields of its spec that say how large it is."""
    deleting: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a pod carries to be bound with its gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its spec: the scheduler's name, above all."""
