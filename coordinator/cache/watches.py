"""What the coordinator sees of the cluster: seven informers, those of others' kinds, and the set of keys to look at.

One rule: an event becomes a key and nothing else; whoever handles the key reads the newest state here.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from coordinator.cache import views
from coordinator.cache.deadlines import Deadlines
from coordinator.cache.dirty_keys import Marks
from coordinator.cache.optional_kinds import Foreign
from coordinator.cache.quota_jobs import QuotaJobs
from coordinator.cache.raised_charges import RaisedCharges
from coordinator.cache.routing_rules import Rules, is_implied
from coordinator.cache.views import ForeignView, JobView, NamespaceView, NodeView, Pods, PodView, PriorityClassView
from crds import labels
from crds.api_resources import (
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from crds.keys import JobKey
from crds.tenantqueue import TenantQueue
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from kube import errors
from kube.api import Cluster, Manifest
from kube.informer import Informer
from kube.object_errors import ObjectErrors

T = TypeVar("T")


class Marked(NamedTuple):
    """A key to look at."""

    key: JobKey
    seen: int
    """The newest resourceVersion seen for its pods; 0 if nobody said."""
    changed: bool
    """Whether that the job or its pods have changed is the only reason."""


PATIENCE = 8
"""How many times `settle_seconds` settings that keep changing may wait."""


@dataclass(frozen=True, slots=True)
class Changed:
    """When settings changed first and last since they took effect."""

    first: float
    last: float


class Watches:
    """Caches of everything that is watched, and what changed since last asked."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        nodes: bool,
        clock: Callable[[], float] = time.monotonic,
        foreign: Iterable[Resource] = (),
    ) -> None:
        self._cluster = cluster
        self.errors = ObjectErrors()
        """Objects that this process has skipped after unforeseen errors."""
        self._clock = clock
        self._lock = threading.Lock()
        self._marks = Marks(clock)
        self._must: set[JobKey] = set()
        """Of the marked ones those that are so not merely because the job or its pods have changed."""
        self._settings_changed: Changed | None = None
        self._named: set[str] = set()
        self._names_count = True
        """Whether the namespaces of jobs imply queues (`coordinator.routing.eligibility`)."""
        self.raised = RaisedCharges()
        self.deadlines = Deadlines()
        self.quota_jobs = QuotaJobs(clock)
        self._rules: Rules | None = None
        self._quotas: dict[str, tuple[Quota, ...]] = {}
        self._yielding: dict[str, frozenset[JobKey]] = {}
        self.wake = threading.Event()
        self.jobs = self._informer(TORCHJOBS, views.job_view, self._job_changed, lambda job: job.queue)
        self.pods = self._informer(
            PODS, views.pod_view, self._pod_changed, lambda pod: pod.job.uid if pod.job else None
        )
        self.queues = self._informer(TENANT_QUEUES, views.queue_view, self._queue_changed)
        self.classes = self._informer(PRIORITY_CLASSES, views.priority_class_view, self._class_changed)
        self.namespaces = self._informer(NAMESPACES, views.namespace_view, self._namespace_changed)
        self.quotas = self._informer(
            RESOURCE_QUOTAS, resource_quota.read, self._resource_quota_changed, lambda quota: quota.namespace
        )
        self.nodes = self._informer(NODES, views.node_view, self._node_changed) if nodes else None
        self.foreign: Foreign[ForeignView] = Foreign(
            cluster.serves, foreign, self._foreign_informer, self._kind_found, self.errors
        )
        """Not among the others: whoever takes such a kind away again stops no coordinator."""

    def _informer(
        self,
        resource: Resource,
        trim: Callable[[Manifest], T],
        on_change: Callable[[T | None, T | None], None],
        index: Callable[[T], str | None] | None = None,
    ) -> Informer[T]:
        return Informer(self._cluster, resource, trim=trim, on_change=on_change, index=index, errors=self.errors)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them, to start, stop and ask."""
        return (self.jobs, self.pods, self.queues, self.classes, self.namespaces, self.quotas) + (
            (self.nodes,) if self.nodes else ()
        )

    @property
    def failing(self) -> str:
        """Why the newest state may not be here; empty when all is well."""
        return "; ".join(dict.fromkeys(informer.failing for informer in self.informers if informer.failing))

    @property
    def synced(self) -> bool:
        """Whether every cache has seen a whole list."""
        return all(informer.synced for informer in self.informers)

    def job(self, key: JobKey) -> JobView | None:
        """The job of exactly this uid, None when it is gone."""
        found = self.jobs.get(key.namespace, key.name)
        return found if found is not None and found.key == key else None

    def skip(self, key: JobKey, error: Exception) -> None:
        """A job is left out because of an unforeseen error about it."""
        self.errors.met(_subject(key), error)

    def skip_no_more(self, keys: Iterable[JobKey]) -> None:
        """These jobs were handled."""
        if self.errors.objects:
            for key in keys:
                self.errors.over(_subject(key))

    def read(self, key: JobKey) -> JobView | None:
        """The job as the API server has it now; None when it is gone. Any ClusterError."""
        try:
            found = views.job_view(self._cluster.get(TORCHJOBS, key.name, key.namespace))
        except errors.NotFound:
            return None
        return found if found.key == key else None

    def pods_of(self, key: JobKey, seen: int) -> Pods:
        """The pods of a job in one value; `seen` is what `take` gave with the key. A worker must have seen what there
        is as well, also if another event than that of a pod is the reason to look."""
        # A uid is no secret: a pod of another namespace that carries it is not the job's.
        pods = [pod for pod in self.pods.indexed(key.uid) if pod.namespace == key.namespace]
        return Pods(
            there=bool(pods),
            occupy=any(pod.occupies for pod in pods),
            queue=next((pod.queue for pod in pods), ""),
            seen=max([seen, *(pod.version for pod in pods)]),
        )

    def named(self) -> frozenset[str]:
        """The queues that need no TenantQueue because of the jobs that compete now. The first such job that makes
        another one changes the settings."""
        names = {name for job in self.jobs.values() if (name := _makes(job))}
        with self._lock:
            self._named = names
        return frozenset(names)

    def ignore_names(self) -> None:
        """Only TenantQueues are queues here: no job makes one."""
        with self._lock:
            self._names_count = False
            self._named.clear()

    def rules(self) -> Rules:
        """What queues and PriorityClasses say now; the same object until one of them changes."""
        with self._lock:
            if self._rules is None:
                self._rules = Rules(
                    queues={each.metadata.name: each.spec for each in self.queues.values()},
                    priorities={each.name: each.value for each in self.classes.values()},
                    namespaces={each.name: each.labels for each in self.namespaces.values()},
                    quotas=self._quotas,
                    yielding=self._yielding,
                )
            return self._rules

    def mark_queue(self, queue: str) -> None:
        """Look at every unfinished job that names the queue."""
        self.mark([job.key for job in self.jobs.indexed(queue) if not job.finished])

    def mark(self, keys: Iterable[JobKey], seen: int = 0) -> None:
        """Look at these keys (again) at once; `seen` is the newest resourceVersion known of their pods, or 0."""
        known = list(keys)
        if known:  # who marks nothing at every step must not keep the desk awake
            self._must.update(known)
            self._marks.add(known, seen)
            self.wake.set()

    def mark_again(self, keys: Iterable[JobKey]) -> None:
        """Look at these keys again, without news: a part of them at a time, behind no more than what has changed."""
        known = list(keys)
        if known:
            self._must.update(known)
            self._marks.add_again(known)
            self.wake.set()

    def take(self, limit: int) -> list[Marked]:
        """Up to `limit` keys to look at, oldest first; forgotten here."""
        return [Marked(key, seen, self._only_changed(key)) for key, seen in self._marks.take(limit)]

    def _only_changed(self, key: JobKey) -> bool:
        """Asked after the key was taken: whoever marks it from now on marks it for the next time, too."""
        found = key in self._must
        self._must.discard(key)
        return not found

    def take_settings_changed(self, settle_seconds: float) -> bool:
        """Whether queues or nodes changed since this was last true, and none has for `settle_seconds`: what an admin
        changes together takes effect together. A cluster that never rests is waited for PATIENCE times as long."""
        with self._lock:
            changed, now = self._settings_changed, self._clock()
            settled = changed is not None and (
                now - changed.last >= settle_seconds or now - changed.first >= PATIENCE * settle_seconds
            )
            if settled:
                self._settings_changed = None
            return settled

    def touch_settings(self) -> None:
        """Have queues and pool computed again."""
        with self._lock:
            now = self._clock()
            self._settings_changed = Changed(self._settings_changed.first if self._settings_changed else now, now)
        self.wake.set()

    def _job_changed(self, before: JobView | None, after: JobView | None) -> None:
        job = after or before
        assert job is not None
        name = _makes(job)
        with self._lock:
            grown = self._names_count and bool(name) and name not in self._named
            if grown:
                self._named.add(name)
        if grown:  # a queue that may not have been created
            self.touch_settings()
        self.raised.note(before, after)
        self.deadlines.note(before, after)
        self.quota_jobs.note(before, after)
        self._marks.add([job.key], 0)
        self.wake.set()

    def _pod_changed(self, before: PodView | None, after: PodView | None) -> None:
        pod = after or before
        assert pod is not None
        if pod.job is not None:
            # Not the pod's own version: that of a deletion is only in the event, and a worker must have seen that too.
            # The first list tells nothing new, and its version may be one that a worker reaches only much later.
            seen = self.pods.resource_version if self.pods.synced else 0
            if before is not None and before.occupies and self._is_empty(pod.job):
                self._marks.add([pod.job], seen)  # the room it holds may be free
                self.wake.set()
            elif self._marks.add_for_pods(pod.job, seen):
                self.wake.set()
        elif before != after:  # of a foreign pod only the room it takes matters
            self.touch_settings()

    def _is_empty(self, key: JobKey) -> bool:
        return not any(pod.occupies for pod in self.pods.indexed(key.uid))

    def _kind_found(self) -> None:
        """Whoever holds room may wait for it."""
        self.mark([job.key for job in self.jobs.values() if job.admission is not None and not job.finished])

    def _foreign_informer(self, resource: Resource) -> Informer[ForeignView]:
        return Informer(
            self._cluster,
            resource,
            trim=views.foreign_view,
            on_change=self._foreign_changed,
            label_selector=labels.JOB_UID,
            errors=self.errors,
        )

    def _foreign_changed(self, before: ForeignView | None, after: ForeignView | None) -> None:
        found = after or before
        if before != after and found is not None and found.job is not None:
            # A worker has a cache of its own, of which nobody knows how far it is.
            self._must.add(found.job)
            self._marks.add_soon(found.job)

    def _queue_changed(self, before: TenantQueue | None, after: TenantQueue | None) -> None:
        if before is not None and after is not None and before.spec == after.spec:
            return  # our own status writes change nothing
        self._forget_rules()
        self.touch_settings()
        queue = after or before
        assert queue is not None
        if before is None or after is None or _barring(before) != _barring(after):
            self.mark_queue(queue.metadata.name)

    def _class_changed(self, before: PriorityClassView | None, after: PriorityClassView | None) -> None:
        found = after or before
        if before != after and found is not None:
            self._forget_rules()
            self.mark([job.key for job in self.jobs.values() if job.priority_class == found.name])

    def _namespace_changed(self, before: NamespaceView | None, after: NamespaceView | None) -> None:
        found = after or before
        if before == after or found is None:
            return
        self._forget_rules()
        selected = {each.metadata.name for each in self.queues.values() if each.spec.namespace_selector is not None}
        for queue in selected:
            self.mark([job.key for job in self.jobs.indexed(queue) if job.key.namespace == found.name])

    def _resource_quota_changed(self, before: Quota | None, after: Quota | None) -> None:
        found = after or before
        if before == after or found is None:
            return
        namespace = found.namespace
        there = sorted(self.quotas.indexed(namespace), key=lambda each: each.name)
        others = {name: each for name, each in self._quotas.items() if name != namespace}
        with self._lock:
            self._quotas = others | ({namespace: tuple(there)} if there else {})
            self._rules = None if self._rules is None else replace(self._rules, quotas=self._quotas)
        self.quota_jobs.quotas_changed(namespace, self.jobs.values)
        self.wake.set()

    def set_yielding(self, namespace: str, keys: frozenset[JobKey]) -> None:
        """These jobs of a namespace let others go first that ResourceQuotas refused, too."""
        with self._lock:
            if self._yielding.get(namespace, frozenset()) != keys:
                others = {name: each for name, each in self._yielding.items() if name != namespace}
                self._yielding = others | ({namespace: keys} if keys else {})
                self._rules = None if self._rules is None else replace(self._rules, yielding=self._yielding)

    def _forget_rules(self) -> None:
        with self._lock:
            self._rules = None

    def _node_changed(self, before: NodeView | None, after: NodeView | None) -> None:
        if before != after:  # heartbeats change nothing that matters
            self.touch_settings()


def _competes(job: JobView) -> bool:
    """Whether a job holds room, or may have its place in the order of a queue without an edit by its owner."""
    if job.finished or job.deleting or job.invalid:
        return False
    return job.admission is not None or not (job.held or job.suspended or (job.waits and job.waits.parked))


def _makes(job: JobView) -> str:
    """The queue that a job makes where queues are implicit: the one that it names, if its namespace implies that; while
    it holds room, the one that it is charged to, whatever its name is. Empty: none."""
    if not _competes(job):
        return ""
    if job.admission is not None:
        return job.admission.queue
    return job.queue if is_implied(job.queue, job.key.namespace) else ""


def _subject(key: JobKey) -> str:
    return f"{TORCHJOBS.kind} {key.namespace}/{key.name}"


def _barring(queue: TenantQueue) -> object:
    """What of a queue its jobs have to be looked at for."""
    return queue.spec.namespaces, queue.spec.namespace_selector, queue.spec.stop_policy
