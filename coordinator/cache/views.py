"""The views that the coordinator keeps of watched objects: trimmed, frozen, a few hundred bytes each.

One rule: a manifest is parsed once, when the informer reads it, and no other module sees it. Every object that an API
server has accepted becomes a view: an object with a wrong value must neither be overlooked nor stop the others.
"""

import logging
import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache

import orjson

from coordinator.cache import gang_shapes, job_health, job_waits, pod_grace, worker_counts
from coordinator.cache.autoscaling import Autoscaling
from coordinator.cache.job_health import JobHealth
from coordinator.cache.job_waits import WaitState
from coordinator.cache.worker_counts import WorkerCounts
from crds import integers, labels, owners, timestamps
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.resources.amounts import NOTHING, PODS, Amounts
from crds.torchjob import cached_parser, demand
from crds.torchjob.conditions import FINISHED
from crds.torchjob.size_limits import LargeObject
from crds.torchjob.status import Admission, QueueStatus
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from queues.placement.gangs import Gang
from reconcilers.views import job_brief, pod_outcome
from reconcilers.views.pod_outcome import PodEnd, PodOutcome

FINISHED_PODS = ("Succeeded", "Failed")
MOST_CONTAINERS = 16
"""The demand of a pod with more containers is not cached."""
LONGEST = 4096
"""The demand of a pod is not cached if its requests take more bytes of JSON."""
OWN_MESSAGES = ("NamespaceQuota", "PortTaken", "WaitingForGangQueue", "WaitingForScheduler")
"""The reasons of waiting jobs whose messages have numbers, names or words that only that job has, or that change."""
NO_QUEUE_STATUS = QueueStatus()
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoomDuration:
    """How long a job with a deadline holds room at most."""

    seconds: float
    """The job's `activeDeadlineSeconds` and the longest grace of its templates, together."""
    since: float | None
    """When this time began, in seconds since 1970; None while the job is not admitted, or if that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A TorchJob as routing sees it."""

    key: JobKey
    queue: str
    submitted: float
    sequence: str = ""  # the order among jobs that were created in the same second (`crds.torchjob.submission_order`)
    priority: int = 0
    priority_class: str = ""
    """The PriorityClass that gives its priority; empty if the job gives its own."""
    attempt: int = 0
    """The newest attempt ever admitted."""
    charge: Amounts = field(default_factory=dict)
    gang: Gang | None = None
    """The pods that start together; None if they are not known."""
    is_past_first: bool = False
    """Whether a stage behind the first one has begun."""
    admission: Admission | None = None
    phase: str = ""
    refuses_evictions: bool = False
    """Whether its pods stay on nodes that are cordoned."""
    suspended: bool = False
    cancelled: bool = False
    held: bool = False
    finished: bool = False
    ended: float | None = None  # when it succeeded or failed, in seconds since 1970
    deleting: bool = False
    expires: bool = False
    """Whether the finished job is deleted some time after its end."""
    wants_port: bool = False
    """Whether a port of a node is reserved for it while it is admitted."""
    ports: frozenset[demand.HostPort] = frozenset()
    """The ports of a node that it chooses itself."""
    invalid: bool = False
    """Whether the object cannot be run as it is; a worker writes the reason into its status."""
    claims: str = ""  # the field with resource claims; empty if there is none
    uncounted: bool = False
    """Whether no worker has counted the devices of its resource claims."""
    gang_scheduler: str = ""
    """The gang scheduler that it names; empty: the one of the installation."""
    gang_queue: str = ""
    """The queue of the gang scheduler that it names; empty: the one of its tenant queue."""
    beyond_gangs: Amounts = field(default_factory=dict)
    """The part of the least charge without which its gangs may begin."""
    waits: WaitState | None = None
    reason: str = ""
    """The code of the reason in status.queue."""
    reason_message: str = ""
    """The message beside the reason, if only that job has it (NamespaceQuota, PortTaken, WaitingForScheduler)."""
    version: str = ""
    """The resourceVersion of the job."""
    brief: bytes = b""
    """What a worker is told of a job that holds no room (`reconcilers.views.job_brief`)."""
    observed: bool = True
    """Whether the job's status describes its newest spec."""
    room_duration: RoomDuration | None = None
    """How long the job holds room; None: without a limit."""
    workers: WorkerCounts | None = None
    """None if the job is admitted with all of its workers and never resized."""
    health: JobHealth | None = None
    """None if the steps of the job are not watched."""
    save_request: int = 0
    """The number of the request to save before workers are removed or pods end; 0 if there is none."""

    @property
    def least_charge(self) -> Amounts:
        """The charge of the job with the least number of workers with which it can be admitted."""
        return self.charge if self.workers is None else self.workers.least_charge

    @property
    def autoscaling(self) -> Autoscaling | None:
        """The facts by which the coordinator decides about the number of workers; None if it never does."""
        return self.workers.autoscaling if self.workers is not None else None

    @property
    def competes(self) -> bool:
        """Whether the job holds no room by an admission and may get one, apart from the order of its queue."""
        over = self.finished or self.deleting or self.stopped or self.invalid
        return self.admission is None and not over

    @property
    def stopped(self) -> bool:
        """Whether its owner lets the job have no pods: it is suspended or cancelled."""
        return self.suspended or self.cancelled

    @property
    def at_rest(self) -> bool:
        """Whether the job is suspended and holds nothing, and its status shows it: no worker has to reconcile it."""
        gone = self.cancelled or self.deleting or self.invalid
        idle = self.suspended and self.admission is None and not gone
        return idle and self.phase == "Suspended" and self.observed

    @property
    def bare(self) -> bool:
        """Whether nothing has to be cleaned up once the job is finished and its pods are gone.

        Such a job has no pod groups, and is not deleted some time after its end.
        """
        return self.admission is not None and self.admission.gang_scheduler == "none" and not self.expires

    @property
    def returning(self) -> bool:
        """Whether the job held room when its queue was drained, its domain closed or it was resized, and asks for no
        more now.

        Such a job is first in its queue. A job that asks for more is not first: it would overtake the other jobs with
        its additional demand.
        """
        waits = self.waits
        if waits is None or not waits.drained or waits.queue != self.queue:
            return False
        return waits.held is None or all(
            amount <= waits.held.get(name, 0) for name, amount in self.least_charge.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod as the pool and the release of charges see it."""

    namespace: str
    name: str
    job: JobKey | None
    """The job that the pod belongs to; None for a foreign pod, which only takes room."""
    queue: str
    attempt: int
    occupies: bool
    """Whether the pod holds room: until it is Succeeded, Failed or deleted.
    A terminating pod holds room unless it is on no node, because no API server binds it to a node any more."""
    version: int = 0
    """The resourceVersion of the pod; 0 for a foreign pod, where it is not used."""
    deleting: bool = False
    node: str = ""
    """The node that it is bound to."""
    placed: bool = True
    """Whether the pod takes room of a node: it is bound to one, or runs."""
    running: bool = False
    """Whether the main container of a job's pod runs, and the pod is not being deleted."""
    completed: bool = False
    """Whether the main container of a job's pod has ended with exit code 0, and nothing shows that it was asked to."""
    unreported: bool = False
    """Whether the node has reported the pod running without its main container, and not running since: a kubelet that
    was restarted and does not accept the pod ends it then (`reconcilers.views.pod_history`)."""
    demand: Amounts
    """The requests of the pod; empty for a foreign pod that is on no node."""
    written_rank: int | None = None
    """The rank that is an annotation of the pod, because it follows from the places of pods or their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPods:
    """The pods of one job in one value."""

    exist: bool = False
    """Whether the job has any pods, finished ones included."""
    occupy: bool = False
    """Whether one of them holds room."""
    ended: bool = False
    """Whether one of them holds none."""
    queue: str = ""
    """The queue that their labels name."""
    version: int = 0
    """The newest known resourceVersion of these pods; 0 if none is known."""


def job_view(manifest: Manifest) -> JobView:
    """Trim a TorchJob. A job that cannot be parsed is kept as invalid, so that a worker writes this into its status."""
    try:
        job = cached_parser.parse(manifest)
    except InvalidObject:
        return _invalid(manifest)
    waits = job.status.queue or NO_QUEUE_STATUS
    return JobView(
        key=job.key,
        queue=sys.intern(job.queue),
        submitted=job.submission_time,
        sequence=job.sequence,
        priority=job.spec.scheduling_policy.priority,
        priority_class=priority_class(job),
        attempt=job.status.attempt,
        charge=job_waits.shared_charge(job.charge),
        gang=gang_shapes.of(job),
        is_past_first=any(str(stage.index) in job.status.stages for stage in job.spec.stages if stage.awaits),
        admission=job.admission,
        phase=job.status.phase,
        refuses_evictions=job.spec.evictions == "Refuse",
        suspended=job.spec.suspend,
        cancelled=job.spec.cancel,
        held=job.spec.scheduling_policy.hold,
        wants_port=job.spec.wants_port,
        ports=job.spec.chosen_ports,
        claims=sys.intern(job.spec.claims),
        uncounted=bool(job.uncounted_claims),
        finished=job.is_finished,
        ended=ended.timestamp() if (ended := job.status.completion_time) is not None else None,
        expires=job.spec.ttl_seconds_after_finished is not None or job.is_cancelled,
        deleting=job.is_deleting,
        gang_scheduler=job.spec.scheduling_policy.gang_scheduler,
        gang_queue=sys.intern(job.spec.scheduling_policy.gang_queue),
        beyond_gangs=worker_counts.beyond_gangs(job),
        waits=job_waits.of(job),
        reason=waits.reason,
        reason_message=waits.message if waits.reason in OWN_MESSAGES else "",
        version=job.metadata.resource_version,
        brief=b"" if job.admission is not None or job.is_finished else job_brief.write(manifest),
        observed=job.status.observed_generation == job.metadata.generation,
        room_duration=_room_duration(job),
        workers=worker_counts.of(job),
        save_request=job.save_request,
        health=job_health.of(job),
    )


def priority_class(job: TorchJob) -> str:
    """Return the PriorityClass that gives a job's priority; empty if the job has a priority of its own, which wins."""
    policy = job.spec.scheduling_policy
    return "" if "priority" in policy.model_fields_set else policy.priority_class_name


def _room_duration(job: TorchJob) -> RoomDuration | None:
    seconds = job.spec.active_deadline_seconds
    if seconds is None:
        return None
    admitted = job.admission.admitted_at if job.admission is not None else None
    # Earlier versions of torchq began the time again when a job was suspended and resumed before its pods were gone.
    since = max((moment.timestamp() for moment in (admitted, job.status.start_time) if moment), default=None)
    return RoomDuration(seconds + pod_grace.longest(job), since)


def _invalid(manifest: Manifest) -> JobView:
    metadata, status = manifest["metadata"], manifest.get("status")
    phase = str(status.get("phase") or "") if isinstance(status, dict) else ""
    return JobView(
        key=JobKey(metadata["namespace"], metadata["name"], metadata["uid"]),
        queue=metadata["namespace"],
        submitted=timestamps.parse_seconds(metadata["creationTimestamp"]),
        phase=phase,
        finished=phase in FINISHED,
        deleting="deletionTimestamp" in metadata,
        invalid=True,
    )


def pod_view(manifest: Manifest) -> PodView:
    """Trim a pod of a job, or a foreign pod."""
    metadata = manifest["metadata"]
    pod_labels = metadata.get("labels") or {}
    job = owner(metadata["namespace"], pod_labels) if owners.job_uid(metadata) else None
    phase, node = (manifest.get("status") or {}).get("phase"), manifest["spec"].get("nodeName") or ""
    placed, deleting = bool(node) or phase == "Running", "deletionTimestamp" in metadata
    has_run = job is not None and phase in ("Running", "Succeeded") and not deleting
    outcome = _outcome(manifest) if has_run else None
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        job=job,
        queue=pod_labels.get(labels.QUEUE, ""),
        attempt=integers.parse(pod_labels.get(labels.ATTEMPT), 0),
        occupies=phase not in FINISHED_PODS and not (deleting and not placed),
        version=integers.parse(metadata.get("resourceVersion"), 0) if job else 0,
        node=sys.intern(node),
        placed=placed,
        deleting=deleting,
        running=outcome is not None and outcome.phase == "Running",
        completed=outcome is not None and PodEnd.PROVED in outcome.end,
        unreported=outcome is not None and PodEnd.UNREPORTED in outcome.end,
        demand=_demand(manifest) if node or job is not None else NOTHING,
        written_rank=_written_rank(metadata) if job is not None else None,
    )


def remember(before: PodView, after: PodView) -> PodView:
    """Return the newest view of a pod, with the facts about its end that its earlier view has shown."""
    is_new = after.occupies and not after.placed  # another pod of this name
    is_lost = before.unreported and not (after.running or is_new)
    return replace(after, completed=False, unreported=True) if is_lost else after


def _outcome(manifest: Manifest) -> PodOutcome:
    """Return the outcome of a pod."""
    try:
        return pod_outcome.outcome(manifest)
    except (KeyError, TypeError, AttributeError, ValueError):  # no node reports such a status
        return PodOutcome(manifest["status"]["phase"])


def _written_rank(metadata: Manifest) -> int | None:
    rank = integers.parse((metadata.get("annotations") or {}).get(labels.RANK), -1)
    return rank if rank >= 0 else None


def owner(namespace: str, pod_labels: dict[str, str]) -> JobKey | None:
    """Return the job that the labels of an object name; None if the labels name no job."""
    uid = pod_labels.get(labels.JOB_UID)
    return JobKey(namespace, pod_labels.get(labels.JOB_NAME, ""), uid) if uid else None


def _demand(manifest: Manifest) -> Amounts:
    """Return the amounts that the scheduler counts for a pod. Annotations of the pod do not matter."""
    spec = manifest["spec"]
    try:
        if isinstance(manifest, LargeObject):
            return demand.pod_demand(spec)
        containers = [spec.get(name) or () for name in ("containers", "initContainers")]
        if sum(map(len, containers)) > MOST_CONTAINERS:
            return demand.pod_demand(spec)
        requests = [[demand.demand_fields(container) for container in group] for group in containers]
        text = orjson.dumps([spec.get("resources"), spec.get("overhead"), *requests])
        return _cached_demand(text) if len(text) <= LONGEST else demand.pod_demand(spec)
    except (ValueError, TypeError, AttributeError):  # no API server accepts such a pod today
        return {PODS: 1}


@lru_cache(4096)
def _cached_demand(text: bytes) -> Amounts:
    """Return the demand of a pod; pods with equal requests share one object, since the pods of a job are alike."""
    names = ("resources", "overhead", "containers", "initContainers")
    return demand.pod_demand(dict(zip(names, orjson.loads(text), strict=True)))
