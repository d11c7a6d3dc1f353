"""The observation of one key: the job from the API server, its pods from this process's own cache.

One rule: one GET, and none for a job of which the leader told enough. A LIST only if the cache is behind a version that
the coordinator or this process has seen.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pydantic

from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.resources import amounts
from crds.torchjob import cached_parser, grant
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from queues.tasks import Task
from queues.values import Reservation
from reconcilers.restart_support import RestartSupport
from reconcilers.settings import ReconcileSettings
from reconcilers.values import NOT_ASKED, InvalidJob, Observation, Recording
from reconcilers.views import job_brief, node_view, pod_history, pod_view
from reconcilers.views.claimed_devices import ClaimReader
from reconcilers.views.job_brief import KnownSpecs
from reconcilers.views.node_view import NodeCache
from reconcilers.views.pod_group_view import GroupCache, GroupReader
from reconcilers.views.pod_view import PodView
from reconcilers.views.queue_view import QueueCache, QueueView
from reconcilers.views.recreate_request import RecreateCache, RecreateView
from reconcilers.views.scale_request_view import RequestCache, RequestReader, RequestView

REMEMBERED = 10_000
"""The number of keys whose newest pod is remembered; a forgotten key costs at most an AlreadyExists."""


class PodCache(Protocol):
    """A current copy of the pods with torchq's labels, by job uid (`pods_informer`)."""

    @property
    def synced(self) -> bool:
        """Whether the first list has arrived."""

    def wait_for(self, resource_version: int, timeout: float) -> bool:
        """Wait until the cache has reached a version; return whether the cache has reached the version."""

    def indexed(self, key: str) -> list[PodView]:
        """Return the pods with a job's uid."""


class GonePods:
    """The last views of pods whose deletion was announced before they went; safe to share between threads.

    Such a deletion is often over before a reconcile can look, for example while Redis is away. The watch has continued,
    and has seen who requested the deletion.
    """

    def __init__(self) -> None:
        self._views: OrderedDict[str, dict[str, PodView]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, before: PodView | None, after: PodView | None) -> None:
        """Note a change of a pod, as an informer reports it."""
        if after is None and before is not None and before.job_uid and before.deleting:
            with self._lock:
                self._views.setdefault(before.job_uid, {})[before.name] = before
                self._views.move_to_end(before.job_uid)
                while len(self._views) > REMEMBERED:
                    self._views.popitem(last=False)

    def of(self, key: JobKey) -> tuple[PodView, ...]:
        """Return the last view of each pod of a job that has gone; a pod of its name may exist again."""
        with self._lock:
            return tuple(pod for pod in self._views.get(key.uid, {}).values() if pod.namespace == key.namespace)


def pods_informer(
    cluster: Cluster, on_change: Callable[[PodView | None, PodView | None], None] | None = None
) -> Informer[PodView]:
    """Return a worker process's cache of the pods of all TorchJobs; the caller starts it."""
    return Informer(
        cluster,
        PODS,
        trim=pod_view.trim,
        remember=pod_history.remember,
        index=lambda pod: pod.job_uid or None,
        label_selector=labels.JOB_UID,
        on_change=on_change,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caches:
    """The objects that a worker process can read beside pods; None where there are no such objects."""

    queues: QueueCache | None = None
    """If None, no queue is drained."""
    nodes: NodeCache | None = None
    """If None, no node counts as dead."""
    recreations: RecreateCache | None = None
    groups: GroupCache | None = None
    requests: RequestCache | None = None
    reported_saves: Callable[[JobKey], int] | None = None
    """The function that returns the latest request to save that a report of a job answers."""
    gone_pods: GonePods | None = None
    """What was seen of pods that have gone."""
    recording: Callable[[], Recording | None] = lambda: None
    """The function that returns how far the history is recorded, None if nobody records it. May raise any
    ClusterError."""


NO_CACHES = Caches()


@dataclass(slots=True)
class Observer:
    """Observes one key at a time; shared between threads."""

    cluster: Cluster
    pods: PodCache
    settings: ReconcileSettings
    caches: Caches = NO_CACHES
    clock: Callable[[], float] = time.time
    _written: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _groups: GroupReader = field(init=False)
    _requests: RequestReader = field(init=False)
    _restart_support: RestartSupport = field(init=False)
    _claims: ClaimReader = field(init=False)
    _specs: KnownSpecs = field(default_factory=KnownSpecs)

    def __post_init__(self) -> None:
        self._groups = GroupReader(self.cluster, self.caches.groups, self.clock)
        self._requests = RequestReader(self.cluster, self.caches.requests)
        self._restart_support = RestartSupport(self.cluster, self.caches.nodes, self.clock)
        self._claims = ClaimReader(self.cluster)

    def observe(self, task: Task) -> Observation:
        """Return the current state of the key. Raises any ClusterError of the API server."""
        # The job is read first: pods that are newer than the job can only show more of the job's progress.
        manifest = self._read(task.key)
        return self._observe(task, manifest, None if manifest is None else self._parse(task.key, manifest))

    def observe_as_told(self, task: Task) -> Observation | None:
        """Return the state of the key with the job as the leader has seen it, which may be outdated.

        The result is None if the job has to be read. After a run that failed, it is unknown what that run has written.
        """
        told = job_brief.read(task.brief, task.key, self._specs) if task.brief and not task.failures else None
        job = None if told is None else self._parse(task.key, told)
        return self._observe(task, told, job) if isinstance(job, TorchJob) else None

    def _observe(self, task: Task, manifest: Manifest | None, job: TorchJob | InvalidJob | None) -> Observation:
        pods = self._claims.with_devices(self._pods(task))
        if pods:
            self.wrote(task.key, max(pod.version for pod in pods))
        queue = self._paying_queue(job, task.reservation)
        health = node_view.node_health(self.caches.nodes, pods, self.settings.dead_node_grace, self.clock())
        observation = Observation(
            key=task.key,
            job=job,
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            reservation=task.reservation,
            draining=queue.draining,
            gang_queue=queue.gang_queue,
            groups=self._groups_of(task.key, job),
            recreations=self._recreations(task.key),
            requests=self._requests_of(task.key, manifest, job),
            dead_nodes=health.dead,
            node_labels=node_view.labels_of(self.caches.nodes, pods) if self.settings.topology else {},
            next_dead=health.next,
            gone=self.caches.gone_pods.of(task.key) if self.caches.gone_pods is not None else (),
            recording=self.caches.recording() if _may_be_over(job) else None,
        )
        return self._with_nodes(observation, job, pods) if isinstance(job, TorchJob) else observation

    def _with_nodes(self, observation: Observation, job: TorchJob, pods: list[PodView]) -> Observation:
        """Return the observation of a job with the consequences of the states of nodes. A value that may need a look at
        thousands of nodes, or at a report, is computed only for a job to which it matters.
        """
        taints, admission = self.settings.taints_of_leaving_nodes, job.admission
        has_range = job.spec.is_elastic or job.spec.worker_range is not None
        is_asked = self.caches.reported_saves is not None and bool(job.save_request)
        return replace(
            observation,
            leaving_nodes=node_view.leaving(self.caches.nodes, pods, taints) if has_range else frozenset(),
            departures={} if admission is None else node_view.departures(self.caches.nodes, pods, job, taints),
            ready_again=self._ready_again(job),
            other_nodes=self._elsewhere(job, observation.dead_nodes),
            restart_obstacle=self._restart_obstacle(job, pods),
            domain_closes_in=self._domain_closes_in(job, pods),
            claimed=self._claims.of_templates(job) if job.uncounted_claims and not job.is_finished else None,
            reported_save=self.caches.reported_saves(job.key)
            if self.caches.reported_saves is not None and is_asked
            else 0,
        )

    def _domain_closes_in(self, job: TorchJob, pods: list[PodView]) -> float | None:
        """Return when the job's domain counts as closed; asked only for pods without a node, and None if the label of
        the domain is not kept."""
        domain, taints = (
            job.admission.domain if job.admission is not None else "",
            self.settings.taints_of_leaving_nodes,
        )
        if domain.partition("=")[0] not in self.settings.topology or all(pod.node for pod in pods):
            return None
        return node_view.closes_in(self.caches.nodes, domain, taints, self.settings.dead_node_grace, self.clock())

    def _restart_obstacle(self, job: TorchJob, pods: list[PodView]) -> str:
        """Return why Kubernetes cannot restart all containers of the job's next pods; asked only if there are some."""
        if self.settings.in_place not in ("auto", "kubernetes"):
            return NOT_ASKED
        granted = job.admission.charge.get(amounts.PODS, 0) if job.admission is not None else 0
        lacks_pods = len(pods) < max(granted, sum(task.num_tasks for task in job.spec.torch_task_specs.values()))
        return self._restart_support.obstacle(job) if lacks_pods and not job.is_finished else NOT_ASKED

    def _groups_of(self, key: JobKey, job: TorchJob | InvalidJob | None) -> tuple[GroupView, ...]:
        scheduler = job.admission.gang_scheduler if isinstance(job, TorchJob) and job.admission else None
        return self._groups.of(key, scheduler, over=isinstance(job, TorchJob) and job.is_finished)

    def _recreations(self, key: JobKey) -> tuple[RecreateView, ...]:
        requests = self.caches.recreations.indexed(key.uid) if self.caches.recreations else ()
        own = (request for request in requests if request.namespace == key.namespace)
        return tuple(sorted(own, key=lambda request: request.name))

    def _elsewhere(self, job: TorchJob, dead: frozenset[str]) -> bool:
        """Return whether the job fits on other nodes; computed only if it avoids some, because there may be thousands
        of nodes."""
        if not job.status.excluded_nodes:
            return False
        spec = job.spec if job.admission is None else grant.as_granted(job, job.admission).spec
        domain = job.admission.domain if job.admission is not None else ""
        return node_view.fits_elsewhere(self.caches.nodes, {*job.status.excluded_nodes, *dead}, spec, domain)

    def _ready_again(self, job: TorchJob) -> float | None:
        """Return when the cluster got a ready node again; computed only while the job has to run by a certain time."""
        since = job.admission.admitted_at if job.admission else None
        must_run = job.status.phase == "Admitted" or len(job.spec.stages) > 1
        return node_view.ready_again(self.caches.nodes, since.timestamp()) if since is not None and must_run else None

    def _paying_queue(self, job: TorchJob | InvalidJob | None, reservation: Reservation | None) -> QueueView:
        """Return the queue that pays for the job, or is about to pay; if the queue has no object, an empty queue."""
        paying = (job.admission if isinstance(job, TorchJob) else None) or reservation
        queue = self.caches.queues.get("", paying.queue) if self.caches.queues and paying else None
        return queue or QueueView("", draining=False)

    def after(self, observation: Observation, written: Manifest | None, pod: Manifest | None) -> Observation | None:
        """Return the observation with the job as this process has written it, and with the one pod that this process
        created.

        The result is None if more than the job would have to be observed again.
        """
        if written is None and pod is None:
            return observation
        before = observation.job
        job = before if written is None else self._parse(observation.key, written)
        if not isinstance(job, TorchJob) or not isinstance(before, TorchJob):
            return None
        admissions = (each.admission for each in (job, before))
        if any(admission is not None and admission.gang_scheduler != "none" for admission in admissions):
            return None  # a finished job's groups are read from the API server
        if pod is not None and observation.pods:
            return None  # other pods may have changed before this one was created, and that would be missed
        return replace(
            observation,
            job=job,
            pods=observation.pods if pod is None else (pod_view.trim(pod),),
            draining=self._paying_queue(job, observation.reservation).draining,
            other_nodes=self._elsewhere(job, observation.dead_nodes),
            claimed=observation.claimed if job.uncounted_claims else None,
        )

    def wrote(self, key: JobKey, resource_version: int) -> None:
        """Remember the version of a key's newest pod, so that the next observation includes that pod."""
        with self._lock:
            self._written[key.uid] = max(resource_version, self._written.pop(key.uid, 0))
            while len(self._written) > REMEMBERED:
                self._written.popitem(last=False)

    def newest(self, key: JobKey) -> int:
        """Return the remembered version of a key; 0 if no version is remembered."""
        with self._lock:
            return self._written.get(key.uid, 0)

    def wrote_requests(self, versions: Mapping[str, int]) -> None:
        """Remember the versions of scale requests that this process has written, by uid."""
        self._requests.wrote(versions)

    def _read(self, key: JobKey) -> Manifest | None:
        try:
            manifest = self.cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return None
        self._specs.note(manifest)
        return manifest

    def _requests_of(
        self, key: JobKey, manifest: Manifest | None, job: TorchJob | InvalidJob | None
    ) -> tuple[RequestView, ...]:
        """Return the scale requests for the job; a request that waits for its job counts only while there is no job."""
        uncached = isinstance(job, TorchJob) and _begins_to_scale(job)
        found = (request for request in self._requests.of(key, uncached=uncached) if request.is_for(key.uid))
        return tuple(request for request in found if manifest is None or request.uid != key.uid)

    def _parse(self, key: JobKey, manifest: Manifest) -> TorchJob | InvalidJob | None:
        metadata = manifest["metadata"]
        if metadata["uid"] != key.uid or "deletionTimestamp" in metadata:
            return None
        try:
            return cached_parser.parse(manifest)
        except InvalidObject as error:
            return _invalid(manifest, error)

    def _pods(self, task: Task) -> list[PodView]:
        version = max(task.seen, self.newest(task.key))
        # After a failed run it is unknown which pods were created: the cache may not show them yet.
        if (
            not task.failures
            and self.pods.synced
            and (not version or self.pods.wait_for(version, self.settings.cache_wait))
        ):
            # A uid is not secret: a pod of another namespace that carries it does not belong to the job.
            return [pod for pod in self.pods.indexed(task.key.uid) if pod.namespace == task.key.namespace]
        selector = f"{labels.JOB_UID}={task.key.uid}"
        listed = self.cluster.list(PODS, task.key.namespace, label_selector=selector)
        found = [pod for manifest in listed.items if (pod := pod_view.trim(manifest)).job_uid == task.key.uid]
        known = {pod.uid: pod for pod in self.pods.indexed(task.key.uid)}
        return [pod_history.remember(known.get(pod.uid, pod), pod) for pod in found]


def _begins_to_scale(job: TorchJob) -> bool:
    """Return whether the number of workers of a job is about to change, for a request that a cache may not show yet."""
    admission, scaling, wish = job.admission, job.status.scaling, job.spec.worker_count
    if admission is None or admission.workers is None or job.is_finished:
        return False
    return wish != admission.workers and (scaling is None or scaling.to != wish)


def _may_be_over(job: TorchJob | InvalidJob | None) -> bool:
    """Return whether a job may be deleted because its time to live is over."""
    match job:
        case TorchJob():
            return job.is_finished and (job.spec.ttl_seconds_after_finished is not None or job.is_cancelled)
        case InvalidJob():
            return job.status.is_finished and job.time_to_live is not None
    return False


def _invalid(manifest: Manifest, error: InvalidObject) -> InvalidJob:
    metadata, status = manifest["metadata"], manifest.get("status")
    fields = status if isinstance(status, dict) else {}
    readable = {name: value for name, value in fields.items() if _parse_status({name: value}) is not None}
    return InvalidJob(
        problems=error.problems,
        status=_parse_status(readable) or TorchJobStatus(),
        unreadable=tuple(fields.keys() - readable.keys()),
        generation=metadata.get("generation", 0),
        resource_version=metadata["resourceVersion"],
        time_to_live=_time_to_live(manifest.get("spec")),
    )


def _time_to_live(spec: Any) -> int | None:
    seconds = spec.get("ttlSecondsAfterFinished") if isinstance(spec, dict) else None
    return seconds if isinstance(seconds, int) else None


def _parse_status(fields: Any) -> TorchJobStatus | None:
    try:
        return TorchJobStatus.model_validate(fields)
    except pydantic.ValidationError:
        return None
