"""What a reconcile sees and what it does about it.

One rule: all are frozen. An observation holds everything `plan` may know, a plan everything `apply` may do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crds.api_resources import Resource
from crds.errors import Problem
from crds.keys import JobKey
from crds.resources.amounts import Amounts
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from kube.api import Manifest
from queues.values import Reservation
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidJob:
    """A TorchJob that cannot be run as it is."""

    problems: tuple[Problem, ...]
    status: TorchJobStatus
    """As far as it can be read."""
    generation: int
    resource_version: str
    unreadable: tuple[str, ...] = ()
    """Fields of the status that say nothing; they are taken away, or nobody could say anything in it."""
    time_to_live: int | None = None
    """Its spec.ttlSecondsAfterFinished, if that can be read."""


NoRoom = Literal["quota", "cohort", "pool"]
"""Why a charge cannot be raised."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why nothing can be made for a job that holds its room: its owner reads it in the condition Admitted."""

    reason: str
    """PodsForbidden, GangSchedulerMissing, .."""
    message: str


@dataclass(frozen=True, slots=True)
class OverQuota:
    """The API server refused an object of the job for a ResourceQuota of its namespace."""

    quota: str
    """The ResourceQuota; empty if the API server named none."""
    hard: Mapping[str, str]
    """The limits of it that it named; an empty value where it gave no number."""
    message: str
    """The API server's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything about one key at one moment."""

    key: JobKey
    job: TorchJob | InvalidJob | None
    """None: the job is gone or going; another one may have its name."""
    pods: tuple[PodView, ...]
    """Of this job's uid, in the order of their names."""
    reservation: Reservation | None
    draining: bool = False
    """Whether the queue that pays for the job, or is about to, takes back what its jobs hold."""
    groups: tuple[GroupView, ...] = ()
    """The pod groups of this job's uid, of whatever gang scheduler, by name."""
    recreations: tuple[RecreateView, ...] = ()
    """The requests to recreate containers that were made for this job's pods, by name."""
    dead_nodes: frozenset[str] = frozenset()
    """Of the nodes that its pods are on: those that are gone, or have not been ready for longer than the grace."""
    next_dead: float | None = None
    """Seconds until another one of them will have been silent for too long."""
    ready_again: float | None = None
    """When the cluster had a ready node again, in seconds since the epoch, if it had none since the job's admission."""
    other_nodes: bool = False
    """Whether the job would fit on the nodes that are ready and that none of its pods is kept away from."""
    refused: str = ""
    """What the API server said when it refused a pod of this job, just now."""
    hindrance: Hindrance | None = None
    """Why what it needs could not be made, just now."""
    no_room: NoRoom | None = None
    """What had no room for what its pods ask for, just now."""
    over_quota: OverQuota | None = None
    """The ResourceQuota for which the API server refused an object of the job, just now."""


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Merge a change into the job's status, if the job is still as it was observed."""

    change: Mapping[str, Any]
    resource_version: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Make the headless service of a rank 0, unless it is there."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete a service, if it is this job's."""

    name: str


@dataclass(frozen=True, slots=True)
class CreatePods:
    """Make pods, side by side; one that is there already and is the same is fine."""

    manifests: Sequence[Manifest]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete exactly these pods, not their namesakes, side by side."""

    pods: tuple[PodView, ...]
    at_once: bool = False
    """Without any grace, whether the node confirms it or not: for pods of a node that is no more."""
    seconds: int | None = None
    """The grace they are given; None: their own."""


@dataclass(frozen=True, slots=True)
class MarkPods:
    """Merge labels and annotations into exactly these pods, side by side; one that is gone is left."""

    pods: tuple[PodView, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Make:
    """Make an object beside the pods (a pod group, a request to recreate containers), unless this job's is there."""

    resource: Resource
    manifest: Manifest
    remedy: str = ""
    """What to do where there is no such kind of object."""


@dataclass(frozen=True, slots=True)
class Change:
    """Merge a change into such an object; one that is gone is looked at again."""

    resource: Resource
    name: str
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete exactly such an object, if it is still there."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class RaiseCharge:
    """Have an attempt charged for more; what follows is done only if there is room for that."""

    attempt: int
    charge: Amounts


@dataclass(frozen=True, slots=True)
class Tell:
    """An event on the job, for what its owner would look for; losing one loses nothing."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself."""


Action = (
    WriteStatus
    | CreateService
    | DeleteService
    | CreatePods
    | DeletePods
    | MarkPods
    | Make
    | Change
    | Remove
    | RaiseCharge
    | Tell
    | DeleteJob
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order; none means that nothing is left to do."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds after which time alone changes the plan."""
    unexplained: PodView | None = None
    """A pod of which more is known than the observation holds; the plan is empty until that is there (`explain`)."""
