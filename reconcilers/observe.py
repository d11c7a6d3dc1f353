"""What there is of one key: the job from the API server, its pods from this process's own cache.

One rule: one GET, and no LIST unless the cache is behind what somebody has seen already.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pydantic

from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import cached_parser
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from gang.values import GroupView
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from queues.values import Reservation, Task
from reconcilers.settings import ReconcileSettings
from reconcilers.values import InvalidJob, Observation
from reconcilers.views import node_view, pod_view
from reconcilers.views.node_view import NodeCache
from reconcilers.views.pod_group_view import GroupSight
from reconcilers.views.pod_view import PodView
from reconcilers.views.queue_view import QueueCache
from reconcilers.views.recreate_request import RecreateCache, RecreateView

REMEMBERED = 10_000
"""Keys whose newest pod is remembered; one that is forgotten costs an AlreadyExists at most."""


class PodCache(Protocol):
    """A current copy of the pods that carry our labels, by job uid (`pods_informer`)."""

    @property
    def synced(self) -> bool:
        """Whether the first list is in."""

    def wait_for(self, resource_version: int, timeout: float) -> bool:
        """Wait until the cache has reached a version."""

    def indexed(self, key: str) -> list[PodView]:
        """The pods of a job's uid."""


def pods_informer(
    cluster: Cluster, on_change: Callable[[PodView | None, PodView | None], None] | None = None
) -> Informer[PodView]:
    """The cache a worker process keeps of the pods of all TorchJobs; to be started by whoever wires."""
    return Informer(
        cluster,
        PODS,
        trim=pod_view.trim,
        index=lambda pod: pod.job_uid or None,
        label_selector=labels.JOB_UID,
        on_change=on_change,
    )


@dataclass(slots=True)
class Observer:
    """Sees one key at a time; shared between threads."""

    cluster: Cluster
    pods: PodCache
    settings: ReconcileSettings
    queues: QueueCache | None = None
    """None: no queue drains."""
    nodes: NodeCache | None = None
    """None: nothing is known of nodes, and none is taken for dead."""
    recreations: RecreateCache | None = None
    """None: there are no requests to recreate containers."""
    clock: Callable[[], float] = time.time
    groups: GroupSight | None = None
    """None: nothing is known of pod groups."""
    _written: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, task: Task) -> Observation:
        """The key as it is now. Any ClusterError of the API server."""
        # The job first: pods that are newer than the job can only show more of what became of it.
        job = self._job(task.key)
        pods = self._pods(task)
        if pods:
            self.wrote(task.key, max(pod.version for pod in pods))
        sight = node_view.sight(self.nodes, pods, self.settings.dead_node_grace, self.clock())
        return Observation(
            key=task.key,
            job=job,
            pods=tuple(sorted(pods, key=lambda pod: pod.name)),
            reservation=task.reservation,
            draining=self._draining(job, task.reservation),
            groups=self._groups(task.key, job),
            recreations=self._recreations(task.key),
            dead_nodes=sight.dead,
            next_dead=sight.next,
            ready_again=self._ready_again(job),
            other_nodes=self._elsewhere(job, sight.dead),
        )

    def _groups(self, key: JobKey, job: TorchJob | InvalidJob | None) -> tuple[GroupView, ...]:
        admission = job.admission if isinstance(job, TorchJob) else None
        if self.groups is None:
            return ()
        over = isinstance(job, TorchJob) and job.finished
        return self.groups.of(key, admission.gang_scheduler if admission else None, over=over)

    def _recreations(self, key: JobKey) -> tuple[RecreateView, ...]:
        found = self.recreations.indexed(key.uid) if self.recreations else ()
        return tuple(sorted((each for each in found if each.namespace == key.namespace), key=lambda each: each.name))

    def _elsewhere(self, job: TorchJob | InvalidJob | None, dead: frozenset[str]) -> bool:
        """Asked only where it matters: there may be thousands of nodes."""
        if not isinstance(job, TorchJob) or not job.status.excluded_nodes:
            return False
        return node_view.elsewhere(self.nodes, {*job.status.excluded_nodes, *dead}, job.spec)

    def _ready_again(self, job: TorchJob | InvalidJob | None) -> float | None:
        """Asked only while the job has to run by a certain time."""
        since = job.admission.admitted_at if isinstance(job, TorchJob) and job.admission else None
        if since is None or not isinstance(job, TorchJob):
            return None
        due = job.status.phase == "Admitted" or len(job.spec.stages) > 1
        return node_view.ready_again(self.nodes, since.timestamp()) if due else None

    def _draining(self, job: TorchJob | InvalidJob | None, reservation: Reservation | None) -> bool:
        """By the queue that pays, or is about to."""
        admission = job.admission if isinstance(job, TorchJob) else None
        paying = admission or reservation
        queue = self.queues.get("", paying.queue) if self.queues and paying else None
        return queue is not None and queue.draining

    def after(self, observation: Observation, written: Manifest | None, pod: Manifest | None) -> Observation | None:
        """The same with the job as a write of ours has left it, and with the one pod that was made; None if more would
        have to be looked at again."""
        if written is None and pod is None:
            return observation
        before = observation.job
        job = before if written is None else self._parsed(observation.key, written)
        if not isinstance(job, TorchJob) or not isinstance(before, TorchJob):
            return None
        if any(each is not None and each.gang_scheduler != "none" for each in (job.admission, before.admission)):
            return None  # of a job that is over, groups are asked for
        if pod is not None and observation.pods:
            return None  # others may have changed before this one was made, and nobody would look at that
        return replace(
            observation,
            job=job,
            pods=observation.pods if pod is None else (pod_view.trim(pod),),
            draining=self._draining(job, observation.reservation),
            other_nodes=self._elsewhere(job, observation.dead_nodes),
        )

    def wrote(self, key: JobKey, resource_version: int) -> None:
        """Remember the newest pod seen or made of a key, so that the next look at it sees that pod."""
        with self._lock:
            self._written[key.uid] = max(resource_version, self._written.pop(key.uid, 0))
            while len(self._written) > REMEMBERED:
                self._written.popitem(last=False)

    def newest(self, key: JobKey) -> int:
        """What was remembered of a key; 0 if nothing."""
        with self._lock:
            return self._written.get(key.uid, 0)

    def _job(self, key: JobKey) -> TorchJob | InvalidJob | None:
        try:
            manifest = self.cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return None
        return self._parsed(key, manifest)

    def _parsed(self, key: JobKey, manifest: Manifest) -> TorchJob | InvalidJob | None:
        metadata = manifest["metadata"]
        if metadata["uid"] != key.uid or "deletionTimestamp" in metadata:
            return None
        try:
            return cached_parser.parse(manifest)
        except InvalidObject as error:
            return _invalid(manifest, error)

    def _pods(self, task: Task) -> list[PodView]:
        seen = max(task.seen, self.newest(task.key))
        # After a run that was cut short nobody knows what was made: the cache may not show it yet.
        if not task.failures and self.pods.synced and (not seen or self.pods.wait_for(seen, self.settings.cache_wait)):
            # A uid is no secret: a pod of another namespace that carries it is not the job's.
            return [pod for pod in self.pods.indexed(task.key.uid) if pod.namespace == task.key.namespace]
        selector = f"{labels.JOB_UID}={task.key.uid}"
        listed = self.cluster.list(PODS, task.key.namespace, label_selector=selector)
        return [pod for each in listed.items if (pod := pod_view.trim(each)).job_uid == task.key.uid]


def _invalid(manifest: Manifest, error: InvalidObject) -> InvalidJob:
    metadata, found = manifest["metadata"], manifest.get("status")
    known = found if isinstance(found, dict) else {}
    readable = {name: value for name, value in known.items() if _status({name: value}) is not None}
    return InvalidJob(
        problems=error.problems,
        status=_status(readable) or TorchJobStatus(),
        unreadable=tuple(known.keys() - readable.keys()),
        generation=metadata.get("generation", 0),
        resource_version=metadata["resourceVersion"],
        time_to_live=_time_to_live(manifest.get("spec")),
    )


def _time_to_live(spec: Any) -> int | None:
    found = spec.get("ttlSecondsAfterFinished") if isinstance(spec, dict) else None
    return found if isinstance(found, int) else None


def _status(found: Any) -> TorchJobStatus | None:
    try:
        return TorchJobStatus.model_validate(found)
    except pydantic.ValidationError:
        return None
