"""The values of a reconcile: the observed state, and the actions.

One rule: all are frozen. An observation holds everything that `plan` may know, a plan everything that `apply` may do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from crds.api_resources import Resource
from crds.errors import Problem
from crds.keys import JobKey
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from crds.resources.amounts import Amounts
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from crds.trained_models import ModelFiles
from gang.values import GroupView
from kube.api import Manifest
from queues.values import Reservation
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from reconcilers.views.scale_request_view import RequestView


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidJob:
    """A TorchJob that cannot run because its manifest is not valid."""

    problems: tuple[Problem, ...]
    status: TorchJobStatus
    """The part of the status that can be read."""
    generation: int
    resource_version: str
    unreadable: tuple[str, ...] = ()
    """The names of the status fields that cannot be read. The next write removes them, because a status with them
    cannot be written."""
    time_to_live: int | None = None
    """The job's spec.ttlSecondsAfterFinished; None if it is not set or cannot be read."""


Limit = Literal["quota", "cohort", "pool"]
"""What can leave no room for a larger charge."""


NOT_ASKED = "it is not known whether nodes can"
"""The obstacle to restarts by Kubernetes where nobody has asked for one."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why an admitted job cannot have an object that it needs. The job's condition Admitted shows it to the owner."""

    reason: str
    """The reason of the condition: PodsForbidden, GangSchedulerMissing and so on."""
    message: str
    passing: bool = False
    """Whether the API server failed instead of refusing: the same request may succeed later."""


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A refusal by the API server: a ResourceQuota of the namespace leaves no room for an object of the job."""

    quota: str
    """The name of the ResourceQuota; empty if the API server did not give one."""
    hard: Mapping[str, str]
    """The limits that the refusal names, by resource; the value is empty where the refusal gives no number."""
    message: str
    """The message of the API server."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A limit leaves no room for the requests of the job's pods."""

    by: Limit


@dataclass(frozen=True, slots=True)
class NoMemory:
    """A limit leaves no room for memory that is to grow."""

    by: Limit


@dataclass(frozen=True, slots=True)
class InvalidPod:
    """The API server refuses a pod of the job because its manifest is not valid. The API server will always refuse the
    same pod.
    """

    message: str


@dataclass(frozen=True, slots=True)
class InvalidSize:
    """The API server refuses a number of workers."""

    message: str


Obstacle = NoRoom | NoMemory | OverQuota | InvalidSize | InvalidPod | Blocker
"""What ends a plan so that the next plan has to know it."""
T = TypeVar("T", NoRoom, NoMemory, OverQuota, InvalidSize, InvalidPod, Blocker)


@dataclass(frozen=True, slots=True)
class Recording:
    """How far the history of jobs is recorded."""

    version: int
    """The resourceVersion of TorchJobs up to which every change is in the history."""
    at: float
    """When that was so last, in seconds since the epoch by the clock of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The state of one key at one moment."""

    key: JobKey
    job: TorchJob | InvalidJob | None
    """The job; None if it is deleted, is being deleted, or another job has its name."""
    pods: tuple[PodView, ...]
    """The pods with this job's uid, in the order of their names."""
    reservation: Reservation | None
    gone: tuple[PodView, ...] = ()
    """The last views of pods of the job that have gone after an announced deletion, of any attempt."""
    draining: bool = False
    """Whether the queue that pays for the job, or is about to pay, is being drained."""
    gang_queue: str = ""
    """The queue of the gang scheduler that this queue gives to jobs which name none; empty: the scheduler's default."""
    groups: tuple[GroupView, ...] = ()
    """The pod groups with this job's uid, of any gang scheduler, in the order of their names."""
    recreations: tuple[RecreateView, ...] = ()
    """The requests to recreate containers of this job's pods, in the order of their names."""
    dead_nodes: frozenset[str] = frozenset()
    """The dead nodes among those of the job's pods: deleted, or not ready for longer than the grace."""
    leaving_nodes: frozenset[str] = frozenset()
    """The nodes of an elastic job's pods that are not ready, closed for new pods, or about to go away."""
    departures: Mapping[str, str] = field(default_factory=dict)
    """The nodes that pods of the job leave before they lose them, each with the reason."""
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels by which ranks are given, of the nodes of the job's pods; by the names of nodes and labels."""
    next_dead: float | None = None
    """Seconds until the next silent node counts as dead; None if no node is silent."""
    ready_again: float | None = None
    """When the cluster got a ready node again, in seconds since the epoch; None if it had one all the time since the
    job's admission."""
    other_nodes: bool = False
    """Whether the job would fit on the ready nodes that its pods do not avoid."""
    domain_closes_in: float | None = None
    """Seconds until the job's domain counts as closed, because no node of it takes new pods; at most 0 if it does, and
    None while a node takes some, or no pod of the job lacks a node."""
    requests: tuple[RequestView, ...] = ()
    """The scale requests for the job, oldest first; without a job of this name, the request that is observed alone."""
    restart_obstacle: str = NOT_ASKED
    """Why Kubernetes cannot restart all containers of the job's next pods on request; empty if it can."""
    reported_save: int = 0
    """The number of the latest request to save that a report of a pod answers; read only while a request is open."""
    claimed: Mapping[str, Amounts] | None = None
    """The devices of one pod by task type that the claims in the job's templates ask for, if no worker has counted them
    before; None if there is nothing to count, or if a claim cannot be read."""
    recording: Recording | None = None
    """How far the history is recorded; None if nobody records it, or if the job has no time to live."""
    obstacle: Obstacle | None = None
    """What ended the plan of the last attempt."""
    result: str | None = None
    """The job's result as JSON, read from the pod that gave it; empty if it cannot be used, None if it was not read."""
    model: ModelFiles | None = None
    """The files of the job's model, read from the pod that counted them; None if nobody did, or if they were not
    read."""

    def met(self, kind: type[T]) -> T | None:
        """Return the obstacle if it is of a kind."""
        return self.obstacle if isinstance(self.obstacle, kind) else None


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Merge a change into the job's status, unless the job has changed since it was observed."""

    change: Mapping[str, Any]
    resource_version: str


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless service of a rank 0, unless it exists."""

    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteService:
    """Delete a service if it belongs to this job."""

    name: str


@dataclass(frozen=True, slots=True)
class CreatePods:
    """Create pods, several at a time. A pod that exists already with the same attempt and restart counts as created."""

    manifests: Sequence[Manifest]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete exactly these pods, several at a time; the uid protects a later pod of the same name."""

    pods: tuple[PodView, ...]
    at_once: bool = False
    """Whether to delete them with a grace of zero and without the node's confirmation: for pods of a dead node."""
    seconds: int | None = None
    """The grace in seconds; None leaves the pods their own."""
    limit_reason: str = ""
    """Why the pods get these seconds and not what they request; for the owner of the job."""


@dataclass(frozen=True, slots=True)
class PatchPodMetadata:
    """Merge labels and annotations into exactly these pods, several at a time. A pod that no longer exists is
    skipped."""

    pods: tuple[PodView, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create an object other than a pod (a pod group, a budget, a request to recreate containers), unless this job has
    it already."""

    resource: Resource
    manifest: Manifest
    remedy: str = ""
    """What the user can do if the cluster does not serve this kind of object."""
    optional: bool = False
    """Whether the job goes on without it where the cluster does not serve this kind of object."""
    correction: Mapping[str, Any] = field(default_factory=dict)
    """The change of the spec of the object if this job has it already, and the worker has not seen it yet."""


@dataclass(frozen=True, slots=True)
class PatchObject:
    """Merge a change into an object other than a pod. If the object no longer exists, the key is observed again."""

    resource: Resource
    name: str
    change: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AnnotateJob:
    """Merge annotations into the job. The other actions continue without this one where the account may not patch
    jobs."""

    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete exactly one object other than a pod, if it still exists."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PatchRequest:
    """Merge a change into a scale request or its status, unless the request has changed since it was observed."""

    request: RequestView
    change: Mapping[str, Any]
    subresource: Literal["", "status"] = ""


@dataclass(frozen=True, slots=True)
class SetWorkers:
    """Change the number of workers that the job requests, unless the job has changed since it was observed."""

    workers: int
    resource_version: str


@dataclass(frozen=True, slots=True)
class RaiseCharge:
    """Charge an attempt for more. The later actions of the plan run only if there is room for this charge."""

    attempt: int
    charge: Amounts
    for_memory: bool = False
    """Whether the charge is for memory that no pod has yet."""


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Record an Event on the job for its owner. A lost Event changes nothing else."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class RecordModel:
    """Create the ModelVersion of the job, unless the job has it already. The job goes on without it where the cluster
    refuses it; an Event says why."""

    spec: ModelVersionSpec
    """The spec without the name of the version."""
    status: ModelVersionStatus


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself."""


Action = (
    WriteStatus
    | CreateService
    | DeleteService
    | CreatePods
    | DeletePods
    | PatchPodMetadata
    | CreateObject
    | PatchObject
    | AnnotateJob
    | DeleteObject
    | PatchRequest
    | SetWorkers
    | RaiseCharge
    | EmitEvent
    | RecordModel
    | DeleteJob
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions in order; if the plan has no actions, nothing is left to do."""

    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None
    """Seconds after which the plan may change although no event arrives; None if only an event can change it."""
    unexplained: PodView | None = None
    """A failed pod whose log must be read before the plan can be made (`reconcilers.failure_text`); the plan is empty
    until then."""
    result_of: PodView | None = None
    """The pod whose result must be read before the job can end; the plan is empty until then."""
    model_of: PodView | None = None
    """The pod that has counted the files of the job's model, which are read together with the result."""

    @property
    def is_incomplete(self) -> bool:
        """Whether an object must be read before the plan can be made."""
        return any(pod is not None for pod in (self.unexplained, self.result_of, self.model_of))


def earliest(times: Iterable[float | None]) -> float | None:
    """Return the smallest of some times, such as `Plan.requeue_after`; None if all are None."""
    return min((time for time in times if time is not None), default=None)
