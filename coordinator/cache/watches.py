"""The coordinator's informers, and the keys of the jobs to route.

One rule: an event becomes only a key. The step that handles the key reads the newest state from the caches here.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from coordinator.cache import node_views, noted_jobs, optional_kinds, urgency, views
from coordinator.cache.dirty_keys import DirtyKeys, SettingsChanges
from coordinator.cache.node_changes import NodeChanges, holding, node_index
from coordinator.cache.node_views import NodeView
from coordinator.cache.noted_jobs import Deadlines, EndedJobs, ImpliedQueues, NotedJobs, RaisedCharges, SeenEnds
from coordinator.cache.optional_kinds import ForeignView, GangQueueKinds, OptionalKinds
from coordinator.cache.quota_jobs import GangQueueJobs, PortJobs, QuotaJobs, RefusedJobs
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.rule_watches import RuleWatches
from coordinator.cache.scale_requests import ScaleRequests
from coordinator.cache.views import JobPods, JobView, PodView
from crds import labels
from crds.api_resources import NODES, PODS, TORCHJOBS, Resource
from crds.keys import JobKey
from gang import backends
from gang.values import GangQueue
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.object_errors import ObjectErrors

T = TypeVar("T")


class DirtyKey(NamedTuple):
    """A job to route."""

    key: JobKey
    pods_version: int
    """The newest known resourceVersion of the job's pods; 0 if none is known."""
    only_changed: bool
    """Whether a change of the job or its pods is the only reason to route it."""


class Watches:
    """Caches of everything that is watched, and the jobs to route because of changes."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: bool,
        clock: Callable[[], float] = time.monotonic,
        foreign: Collection[Resource] = (),
        leaving_taints: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self.errors = ObjectErrors()
        """The objects that this process has skipped after unforeseen errors."""
        self._dirty_keys = DirtyKeys(clock)
        self._forced: set[JobKey] = set()
        """The dirty keys that have another reason than a change of the job or its pods."""
        self.completed: set[JobKey] = set()
        """The jobs of which a pod has completed its work, until somebody takes them."""
        self._settings_changes, self.implied, self.node_changes = SettingsChanges(clock), ImpliedQueues(), NodeChanges()
        self.raised, self.deadlines, self.ends, self.ended = RaisedCharges(), Deadlines(), SeenEnds(), EndedJobs()
        self.autoscaled, self.holders = NotedJobs(noted_jobs.is_autoscaled), NotedJobs(noted_jobs.holds_room)
        self.wake, self.quota_jobs = threading.Event(), QuotaJobs(clock)
        self.port_jobs, self.refused, self.gang_jobs = PortJobs(), RefusedJobs(), GangQueueJobs(clock, self.wake.set)
        self.jobs = self._informer(TORCHJOBS, views.job_view, self._job_changed, lambda job: job.queue)
        self.pods = self._informer(PODS, views.pod_view, self._pod_changed, node_index, remember=views.remember)
        self.rule_watches = RuleWatches(self._informer, self)
        self.queues = self.rule_watches.queues
        trim = partial(node_views.node_view, leaving_taints=leaving_taints)
        self.nodes = self._informer(NODES, trim, self._node_changed) if nodes else None
        self.foreign: OptionalKinds[ForeignView] = OptionalKinds(
            cluster.serves, foreign, self._foreign_informer, self._kind_appeared, self.errors
        )
        """The kinds of other projects, which are not among `informers`: a coordinator goes on without them."""
        self.gang_queues = GangQueueKinds(
            cluster, backends.QUEUES if foreign else (), self._gang_queue_changed, self.errors
        )
        self.requests = ScaleRequests(cluster, self.jobs, self._mark_soon, self.errors)

    def _informer(
        self,
        resource: Resource,
        trim: Callable[[Manifest], T],
        on_change: Callable[[T | None, T | None], None],
        index: Callable[[T], str | None] | None = None,
        **more: Any,
    ) -> Informer[T]:
        more |= {"errors": self.errors}
        return Informer(self._cluster, resource, trim=trim, on_change=on_change, index=index, **more)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All informers of kinds that every cluster serves."""
        return (self.jobs, self.pods, *self.rule_watches.informers, *((self.nodes,) if self.nodes else ()))

    @property
    def failing(self) -> str:
        """The reason why the caches may be outdated; empty while they are current."""
        return "; ".join(dict.fromkeys(informer.failing for informer in self.informers if informer.failing))

    @property
    def synced(self) -> bool:
        """Whether every cache has read a whole list."""
        return all(informer.synced for informer in self.informers)

    def job(self, key: JobKey) -> JobView | None:
        """Return the job with the key's uid; None if that job does not exist any more."""
        job = self.jobs.get(key.namespace, key.name)
        return job if job is not None and job.key == key else None

    def skip(self, key: JobKey, error: Exception) -> None:
        """Record that a job is skipped because handling it raised an unforeseen error."""
        self.errors.record(_subject(key), error)

    def clear_errors(self, keys: Iterable[JobKey]) -> None:
        """Record that these jobs were handled without an error."""
        if self.errors.objects:
            for key in keys:
                self.errors.clear(_subject(key))

    def read(self, key: JobKey) -> JobView | None:
        """Read the job from the API server; None if it does not exist any more. Raises any ClusterError."""
        try:
            job = views.job_view(self._cluster.get(TORCHJOBS, key.name, key.namespace))
        except errors.NotFound:
            return None
        return job if job.key == key else None

    def pods_of(self, key: JobKey, version: int) -> JobPods:
        """Summarize the pods of a job; `version` is the version that `take` returned with the key. The worker's cache
        must show these pods before the worker acts, even if the event was not about a pod."""
        pods = self.job_pods(key)
        return JobPods(
            exist=bool(pods),
            occupy=any(pod.occupies for pod in pods),
            ended=not all(pod.occupies for pod in pods),
            queue=next((pod.queue for pod in pods), ""),
            version=max([version, *(pod.version for pod in pods)]),
        )

    def job_pods(self, key: JobKey) -> list[PodView]:
        """Return the pods of a job."""
        # A uid is no secret: a pod of another namespace that carries it is not the job's.
        return [pod for pod in self.pods.indexed(key.uid) if pod.namespace == key.namespace]

    def rules(self) -> RoutingRules:
        """Return the rules from the current TenantQueues, PriorityClasses, namespaces and ResourceQuotas."""
        return self.rule_watches.rules()

    def mark_queue(self, queue: str) -> None:
        """Route every unfinished job that names the queue."""
        self.mark([job.key for job in self.jobs.indexed(queue) if not job.finished])

    def mark(self, keys: Iterable[JobKey], pods_version: int = 0) -> None:
        """Route these jobs at once. `pods_version` is the newest known resourceVersion of their pods, or 0."""
        marked = list(keys)
        if marked:  # a caller that marks nothing at every step must not keep the control loop awake
            self._forced.update(marked)
            self._dirty_keys.add(marked, pods_version)
            self.wake.set()

    def mark_again(self, keys: Iterable[JobKey]) -> None:
        """Route these jobs again although nothing has changed. Such jobs take only a part of each step."""
        marked = list(keys)
        if marked:
            self._forced.update(marked)
            self._dirty_keys.add_again(marked)
            self.wake.set()

    def take(self, limit: int) -> list[DirtyKey]:
        """Remove and return up to `limit` keys to route, the most urgent first (`DirtyKeys.take`)."""
        for key in self._dirty_keys.take_repeats():
            if (job := self.job(key)) is None or not job.finished:  # for a finished job the worker asks the API server
                self._mark_soon(key)
        return [DirtyKey(key, version, self._is_only_changed(key)) for key, version in self._dirty_keys.take(limit)]

    def _is_only_changed(self, key: JobKey) -> bool:
        """Forget why a key that was just taken had been marked. Return whether a change of the job or its pods was the
        only reason. A later mark counts for the next step."""
        forced = key in self._forced
        self._forced.discard(key)
        return not forced

    def take_settings_changed(self, settle_seconds: float) -> bool:
        """Return whether changes of queues or nodes are to take effect now (`SettingsChanges.take`)."""
        return self._settings_changes.take(settle_seconds)

    def touch_settings(self) -> None:
        """Make the leader compute queues and pool again."""
        self._settings_changes.note()
        self.wake.set()

    def _job_changed(self, before: JobView | None, after: JobView | None) -> None:
        job = after or before
        assert job is not None
        if self.implied.add(job):
            self.touch_settings()
        others = (self.ended, self.quota_jobs, self.gang_jobs, self.port_jobs, self.refused, self.node_changes)
        for noted in (self.raised, self.deadlines, self.ends, self.holders, self.autoscaled, *others):
            noted.note(before, after)
        self._dirty_keys.add([job.key], 0, urgency.of_job(before, after))
        self.wake.set()

    def _pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        pod = after or before
        assert pod is not None
        self.refused.note_pod(before, after)
        self.node_changes.note_pod(before, after)
        if before is not None and before.job is not None and before.job != pod.job:
            self._pods_changed(before.job, before, None)  # its labels were changed: its job has lost it
        if pod.job is not None:
            if pod.completed and after is not None and (before is None or not before.completed):
                self.completed.add(pod.job)
            self._pods_changed(pod.job, before, after)
        if _changes_pool(before, after, self.nodes):
            self.touch_settings()

    def _pods_changed(self, key: JobKey, before: PodView | None, after: PodView | None) -> None:
        # The informer's version is used, not the pod's own: a deletion has a version only in its event, and a worker
        # must have seen it. The first list reports no change, and a worker may reach its version only much later.
        version = self.pods.resource_version if self.pods.synced else 0
        if before is not None and before.occupies and not any(pod.occupies for pod in self.pods.indexed(key.uid)):
            self.port_jobs.note_pods_gone(key)
            self.ends.note_pods_gone(key)
            self._dirty_keys.add([key], version, "ends")  # the room that the job holds may be free
            self.wake.set()
        elif self._dirty_keys.add_for_pods(key, version, urgency.of_pod(after)):
            self.wake.set()

    def _kind_appeared(self) -> None:
        """Route the jobs that hold room: they may wait for an object of the new kind."""
        self.mark([job.key for job in self.jobs.values() if job.admission is not None and not job.finished])

    def _foreign_informer(self, resource: Resource) -> Informer[ForeignView]:
        return self._informer(
            resource, optional_kinds.foreign_view, self._foreign_changed, label_selector=labels.JOB_UID
        )

    def _foreign_changed(self, before: ForeignView | None, after: ForeignView | None) -> None:
        view = after or before
        if before != after and view is not None and view.job is not None:
            self._mark_soon(view.job, repeat=True)

    def _gang_queue_changed(self, before: GangQueue | None, after: GangQueue | None) -> None:
        self.gang_jobs.touch()
        self.refused.note_queue(before, after)

    def _mark_soon(self, key: JobKey, *, repeat: bool = False) -> None:
        """Route a job once the worker may know why: it has a cache of its own, whose progress nobody knows."""
        self._forced.add(key)
        self._dirty_keys.add_soon(key, repeat=repeat)

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        if before != after:  # heartbeats change nothing that matters
            self.refused.note_node(after)
            self.node_changes.note_node(before, after)
            self.touch_settings()
            for key in node_views.losing_jobs(before, after, self.pods.values(), self.jobs.values()):
                self._mark_soon(key, repeat=True)


def _changes_pool(before: PodView | None, after: PodView | None, nodes: Informer[NodeView] | None) -> bool:
    """Return whether the size of the pool depends on what has changed about a pod: on the room of a foreign pod, and
    on what a job holds of a node that takes no new pods (`coordinator.routing.closed_nodes`)."""
    pod = after or before
    if pod is None or pod.job is None:
        return before != after
    node = nodes.get("", pod.node) if nodes is not None and pod.node else None
    return node is not None and not node.ready and holding(before) != holding(after)


def _subject(key: JobKey) -> str:
    return f"{TORCHJOBS.kind} {key.namespace}/{key.name}"
