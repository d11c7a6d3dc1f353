"""What the coordinator keeps of the objects it watches: trimmed, frozen, a few hundred bytes each.

One rule: parsed once at the informer's door; nothing beyond this module sees a manifest. Whatever an API server has
taken becomes a view: an object that makes no sense must neither be overlooked nor stop the others.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson
import pydantic

from coordinator.cache import job_waits
from coordinator.cache.job_waits import Waits
from crds import integers, labels, owners, tenantqueue
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.metadata import Metadata
from crds.resources.amounts import NOTHING, PODS, Amounts
from crds.tenantqueue import TenantQueue, TenantQueueSpec, TenantQueueStatus
from crds.torchjob import cached_parser, demand
from crds.torchjob.conditions import FINISHED
from crds.torchjob.size_limits import Long
from crds.torchjob.status import Admission
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest

FINISHED_PODS = ("Succeeded", "Failed")
MOST_CONTAINERS = 16
LONGEST = 4096
"""Containers of a pod, and bytes of JSON of what they ask for, up to which that is remembered."""
DEFAULT_GRACE = 30
"""Seconds of grace of a pod whose template does not say."""
MOST_GRACE = 2**63
"""Seconds: no API server takes more."""
MOST_CONDITIONS = 32
"""Conditions of an object of another kind that are looked at."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lasts:
    """How long a job with a deadline holds room at most."""

    seconds: float
    """Its `activeDeadlineSeconds` and the longest grace that its templates ask for."""
    since: float | None
    """When these began, in seconds since 1970; None while it is not admitted, or if its status does not say when it
    was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A TorchJob as routing sees it."""

    key: JobKey
    queue: str
    submitted: float
    sequence: str = (
        ""  # its place among the jobs that were created in the same second (`crds.torchjob.submission_order`)
    )
    priority: int = 0
    priority_class: str = ""
    """The PriorityClass that says its priority; empty if it says so itself."""
    attempt: int = 0
    """The newest attempt ever admitted."""
    charge: Amounts = field(default_factory=dict)
    admission: Admission | None = None
    phase: str = ""
    suspended: bool = False
    held: bool = False
    finished: bool = False
    deleting: bool = False
    expires: bool = False
    """It is deleted some time after its end."""
    wants_port: bool = False
    """A port of a node has to be held for it while it is admitted."""
    invalid: bool = False
    """The object cannot be run as it is; a worker says why in its status."""
    claims: str = ""
    """The field that claims resources, which the charge does not count; empty if none does."""
    waits: Waits | None = None
    told: str = ""
    """The code of the reason to wait that its status gives."""
    sentence: str = ""
    """The sentence beside it, if that has numbers (NamespaceQuota)."""
    version: str = ""
    """Its resourceVersion."""
    observed: bool = True
    """Whether its status holds of its newest spec."""
    lasts: Lasts | None = None
    """How long it holds room; None: any time."""

    @property
    def at_rest(self) -> bool:
        """Whether it is suspended, holds nothing, and its status says so: no worker need look at it."""
        idle = self.suspended and self.admission is None and not (self.deleting or self.invalid)
        return idle and self.phase == "Suspended" and self.observed

    @property
    def bare(self) -> bool:
        """Whether nothing is left to do for it once it has ended and its pods are gone: it has no pod groups, and stays
        itself."""
        return self.admission is not None and self.admission.gang_scheduler == "none" and not self.expires

    @property
    def returning(self) -> bool:
        """Whether it held room in its queue when that was drained, or when it was resized, and asks for no more now: a
        small job that became large meanwhile would overtake the other jobs of its queue with all that it has grown by.
        """
        waits = self.waits
        if waits is None or not waits.drained or waits.queue != self.queue:
            return False
        return waits.held is None or all(amount <= waits.held.get(name, 0) for name, amount in self.charge.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod as the pool and the release of charges see it."""

    namespace: str
    name: str
    job: JobKey | None
    """None: a foreign pod, which only takes room."""
    queue: str
    attempt: int
    occupies: bool
    """True until the pod is Succeeded, Failed or gone. Terminating occupies, but for a pod that is on no node: no API
    server lets it come to one any more."""
    version: int = 0
    """Its resourceVersion; 0 for a foreign pod, of which nobody needs it."""
    deleting: bool = False
    node: str = ""
    """The node that it is on, or is to be."""
    placed: bool = True
    """Whether it takes room of a node: it is on one, or runs."""
    demand: Amounts
    """What it requests; of a foreign pod nothing until it is on a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPods:
    """The pods of one job in one value."""

    exist: bool = False
    """Whether the job has any pods, finished ones included."""
    occupy: bool = False
    """Whether one of them holds room."""
    queue: str = ""
    """The queue that their labels name."""
    version: int = 0
    """The newest resourceVersion known of them; 0 if none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as the pool sees it."""

    name: str
    ready: bool
    allocatable: Amounts
    embedded: bool = False
    """Whether it is the one node of an embedded cluster: no other node ever comes."""


@dataclass(frozen=True, slots=True)
class ForeignView:
    """An object of a kind of others' that was made for a job: whose it is, and what of it a worker may wait for."""

    job: JobKey | None
    state: tuple[object, ...]


def job_view(manifest: Manifest) -> JobView:
    """Trim a TorchJob. One that cannot be parsed is kept as invalid, so that somebody tells its owner."""
    try:
        job = cached_parser.parse(manifest)
    except InvalidObject:
        return _invalid(manifest)
    return JobView(
        key=job.key,
        queue=sys.intern(job.queue),
        submitted=job.submitted,
        sequence=job.sequence,
        priority=job.spec.scheduling_policy.priority,
        priority_class=priority_class(job),
        attempt=job.status.attempt,
        charge=job_waits.kept(job.charge),
        admission=job.admission,
        phase=job.status.phase,
        suspended=job.spec.suspend,
        held=job.spec.scheduling_policy.hold,
        wants_port=job.spec.wants_port,
        claims=sys.intern(job.spec.claims),
        finished=job.finished,
        expires=job.spec.ttl_seconds_after_finished is not None,
        deleting=job.deleting,
        waits=job_waits.of(job),
        told=job.status.queue.reason if job.status.queue else "",
        sentence=job.status.queue.message if job.status.queue and job.status.queue.reason == "NamespaceQuota" else "",
        version=job.metadata.resource_version,
        observed=job.status.observed_generation == job.metadata.generation,
        lasts=_lasts(job),
    )


def priority_class(job: TorchJob) -> str:
    """The PriorityClass that says a job's priority; empty if the job says it itself: a priority that is given wins."""
    policy = job.spec.scheduling_policy
    return "" if "priority" in policy.model_fields_set else policy.priority_class_name


def _lasts(job: TorchJob) -> Lasts | None:
    seconds = job.spec.active_deadline_seconds
    if seconds is None:
        return None
    admitted = job.admission.admitted_at if job.admission is not None else None
    # Versions before this one began the time again when a job was suspended and resumed before its pods were gone.
    since = max((each.timestamp() for each in (admitted, job.status.start_time) if each), default=None)
    return Lasts(seconds + max(_grace(task.template["spec"]) for task in job.spec.torch_task_specs.values()), since)


def _grace(spec: Manifest) -> int:
    """Seconds that the pods of a template are given to end, as the API server reads it."""
    seconds = spec.get("terminationGracePeriodSeconds")
    return min(seconds, MOST_GRACE) if type(seconds) is int and seconds >= 0 else DEFAULT_GRACE


def _invalid(manifest: Manifest) -> JobView:
    metadata, status = manifest["metadata"], manifest.get("status")
    phase = str(status.get("phase") or "") if isinstance(status, dict) else ""
    return JobView(
        key=JobKey(metadata["namespace"], metadata["name"], metadata["uid"]),
        queue=metadata["namespace"],
        submitted=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        phase=phase,
        finished=phase in FINISHED,
        deleting="deletionTimestamp" in metadata,
        invalid=True,
    )


def pod_view(manifest: Manifest) -> PodView:
    """Trim a pod, ours or foreign."""
    metadata = manifest["metadata"]
    found = metadata.get("labels") or {}
    job = _owner(metadata["namespace"], found) if owners.job_uid(metadata) else None
    phase, node = (manifest.get("status") or {}).get("phase"), manifest["spec"].get("nodeName") or ""
    placed, deleting = bool(node) or phase == "Running", "deletionTimestamp" in metadata
    return PodView(
        namespace=metadata["namespace"],
        name=metadata["name"],
        job=job,
        queue=found.get(labels.QUEUE, ""),
        attempt=integers.bounded(found.get(labels.ATTEMPT), 0),
        occupies=phase not in FINISHED_PODS and not (deleting and not placed),
        version=_version(metadata) if job else 0,
        node=sys.intern(node),
        placed=placed,
        deleting=deleting,
        demand=_demand(manifest) if node or job is not None else NOTHING,
    )


def foreign_view(manifest: Manifest) -> ForeignView:
    """Trim a pod group or a request to recreate containers: counts and times that move in it change nothing."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = [each for each in (status.get("conditions") or ())[:MOST_CONDITIONS] if isinstance(each, dict)]
    told = tuple((each.get("type"), each.get("status"), each.get("reason")) for each in conditions)
    state = (status.get("phase"), "deletionTimestamp" in metadata, *told)
    return ForeignView(_owner(metadata["namespace"], metadata.get("labels") or {}), state)


def _version(metadata: Manifest) -> int:
    return integers.bounded(metadata.get("resourceVersion"), 0)


def _owner(namespace: str, found: dict[str, str]) -> JobKey | None:
    uid = found.get(labels.JOB_UID)
    return JobKey(namespace, found.get(labels.JOB_NAME, ""), uid) if uid else None


def _demand(manifest: Manifest) -> Amounts:
    """What the scheduler counts for a pod, whatever the pod says of itself in an annotation."""
    spec = manifest["spec"]
    try:
        if isinstance(manifest, Long):
            return demand.pod_demand(spec)
        containers = [spec.get(name) or () for name in ("containers", "initContainers")]
        if sum(map(len, containers)) > MOST_CONTAINERS:
            return demand.pod_demand(spec)
        asked = [[_asked(each) for each in some] for some in containers]
        text = orjson.dumps([spec.get("resources"), spec.get("overhead"), *asked])
        return _counted(text) if len(text) <= LONGEST else demand.pod_demand(spec)
    except (ValueError, TypeError, AttributeError):  # no API server takes it today
        return {PODS: 1}


def _asked(container: Manifest) -> Manifest:
    return {"resources": container.get("resources"), "restartPolicy": container.get("restartPolicy")}


@lru_cache(4096)
def _counted(text: bytes) -> Amounts:
    """Pods that ask for the same are counted once, and have one value: the pods of a job are many and alike."""
    names = ("resources", "overhead", "containers", "initContainers")
    return demand.pod_demand(dict(zip(names, orjson.loads(text), strict=True)))


def queue_view(manifest: Manifest) -> TenantQueue:
    """A TenantQueue as admins want it. One that cannot be read is closed, as limits may be meant; limits without effect
    that an earlier version stored are read as that version did."""
    try:
        return tenantqueue.read(manifest)
    except InvalidObject as error:
        name = manifest["metadata"]["name"]
        log.error("TenantQueue %s admits nothing until it is mended: %s", name, error)
        return TenantQueue(
            metadata=Metadata.model_validate({"name": name}),
            spec=TenantQueueSpec(stop_policy="Hold"),
            status=_queue_status(manifest.get("status")),
        )


def _queue_status(found: Any) -> TenantQueueStatus:
    try:
        return TenantQueueStatus.model_validate(found or {})
    except pydantic.ValidationError:
        return TenantQueueStatus()


@dataclass(frozen=True, slots=True)
class PriorityClassView:
    """A PriorityClass and what it stands for."""

    name: str
    value: int


def priority_class_view(manifest: Manifest) -> PriorityClassView:
    """Trim a PriorityClass."""
    value = manifest.get("value")
    return PriorityClassView(manifest["metadata"]["name"], value if isinstance(value, int) else 0)


@dataclass(frozen=True, slots=True)
class NamespaceView:
    """A namespace and its labels."""

    name: str
    labels: Mapping[str, str]


def namespace_view(manifest: Manifest) -> NamespaceView:
    """Trim a namespace."""
    metadata = manifest["metadata"]
    return NamespaceView(metadata["name"], dict(metadata.get("labels") or {}))


def node_view(manifest: Manifest) -> NodeView:
    """Trim a node."""
    status = manifest.get("status") or {}
    return NodeView(
        name=manifest["metadata"]["name"],
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or [])
        and not (manifest.get("spec") or {}).get("unschedulable", False),
        allocatable=demand.amounts(status.get("allocatable") or {}),
        embedded=(status.get("nodeInfo") or {}).get("kubeletVersion") == labels.EMBEDDED,
    )
