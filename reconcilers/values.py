"""What a reconcile sees and what it does about it.

One rule: all are frozen. An observation holds everything `plan` may know, a plan everything `apply` may do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.api import Manifest
from crds.errors import Problem
from crds.keys import JobKey
from crds.status import TorchJobStatus
from crds.torchjob import TorchJob
from queues.values import Reservation
from reconcilers.pod_view import PodView


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
    refused: str = ""
    """What the API server said when it refused a pod of this job, just now."""
    denied: str = ""
    """What it said when it let no pod of this job be made, just now."""


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


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself."""


Action = WriteStatus | CreateService | DeleteService | CreatePods | DeletePods | DeleteJob


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order; none means that nothing is left to do."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds after which time alone changes the plan."""
