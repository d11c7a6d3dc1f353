"""The informers of TenantQueues, PriorityClasses, namespaces and ResourceQuotas, which are the inputs of routing.

One rule: a change marks only the jobs that it may concern.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from coordinator.cache import rule_views
from coordinator.cache.quota_jobs import GangQueueJobs, QuotaJobs
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.rule_views import NamespaceView, PriorityClassView
from coordinator.cache.views import JobView
from crds.api_resources import NAMESPACES, PRIORITY_CLASSES, RESOURCE_QUOTAS, TENANT_QUEUES
from crds.keys import JobKey
from crds.tenantqueue import TenantQueue
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from kube.informer import Informer

T = TypeVar("T")


class Reactions(Protocol):
    """The effects of a change of rules."""

    quota_jobs: QuotaJobs
    gang_jobs: GangQueueJobs
    wake: threading.Event

    @property
    def jobs(self) -> Informer[JobView]:
        """The informer of TorchJobs."""

    def mark(self, keys: Iterable[JobKey]) -> None:
        """Route these jobs."""

    def mark_queue(self, queue: str) -> None:
        """Route every unfinished job that names the queue."""

    def touch_settings(self) -> None:
        """Make the leader compute queues and pool again."""


class RuleWatches:
    """The informers of the inputs of routing, and the rules computed from their objects; any thread may read them."""

    def __init__(self, make_informer: Callable[..., Informer[Any]], reactions: Reactions) -> None:
        self._reactions = reactions
        self._lock = threading.Lock()
        self._rules: RoutingRules | None = None
        self._judged: dict[str, Any] = {"quotas": {}, "yielding": {}, "ports": {}, "tried_again": frozenset()}
        self._judged |= {"gang_scheduler": "none", "gang_rooms": None, "gang_holders": frozenset()}
        """The rules that follow from more than the objects, by their names in RoutingRules."""
        self.queues: Informer[TenantQueue] = make_informer(TENANT_QUEUES, rule_views.queue_view, self._queue_changed)
        self.classes: Informer[PriorityClassView] = make_informer(
            PRIORITY_CLASSES, rule_views.priority_class_view, self._class_changed
        )
        self.namespaces: Informer[NamespaceView] = make_informer(
            NAMESPACES, rule_views.namespace_view, self._namespace_changed
        )
        self.quotas: Informer[Quota] = make_informer(
            RESOURCE_QUOTAS, resource_quota.read, self._resource_quota_changed, lambda quota: quota.namespace
        )

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All informers of this class."""
        return (self.queues, self.classes, self.namespaces, self.quotas)

    def rules(self) -> RoutingRules:
        """Return the current rules. The result is the same object until a watched object changes."""
        with self._lock:
            if self._rules is None:
                self._rules = RoutingRules(
                    queues={queue.metadata.name: queue.spec for queue in self.queues.values()},
                    priorities={priority.name: priority.value for priority in self.classes.values()},
                    namespaces={namespace.name: namespace.labels for namespace in self.namespaces.values()},
                    **self._judged,
                )
            return self._rules

    def judge(self, **found: Any) -> None:
        """Record the rules that were found, by their names in RoutingRules."""
        with self._lock:
            if any(self._judged.get(name) != value for name, value in found.items()):
                self._judged = {**self._judged, **found}
                self._rules = None if self._rules is None else replace(self._rules, **found)

    def judge_yielding(self, namespace: str, keys: frozenset[JobKey]) -> None:
        """Record which refused jobs of a namespace let older refused jobs go first."""
        others = {name: jobs for name, jobs in self._judged["yielding"].items() if name != namespace}
        self.judge(yielding=others | ({namespace: keys} if keys else {}))

    def _forget_rules(self) -> None:
        with self._lock:
            self._rules = None

    def _queue_changed(self, before: TenantQueue | None, after: TenantQueue | None) -> None:
        if before is not None and after is not None and before.spec == after.spec:
            return  # the coordinator's own status writes change nothing
        self._forget_rules()
        self._reactions.touch_settings()
        queue = after or before
        assert queue is not None
        if before is None or after is None or _access(before) != _access(after):
            self._reactions.gang_jobs.touch()
            self._reactions.mark_queue(queue.metadata.name)

    def _class_changed(self, before: PriorityClassView | None, after: PriorityClassView | None) -> None:
        priority = after or before
        if before != after and priority is not None:
            self._forget_rules()
            jobs = self._reactions.jobs.values()
            self._reactions.mark([job.key for job in jobs if job.priority_class == priority.name])

    def _namespace_changed(self, before: NamespaceView | None, after: NamespaceView | None) -> None:
        namespace = after or before
        if before == after or namespace is None:
            return
        self._forget_rules()
        selecting = {queue.metadata.name for queue in self.queues.values() if queue.spec.namespace_selector is not None}
        for queue in selecting:
            jobs = self._reactions.jobs.indexed(queue)
            self._reactions.mark([job.key for job in jobs if job.key.namespace == namespace.name])

    def _resource_quota_changed(self, before: Quota | None, after: Quota | None) -> None:
        changed = after or before
        if before == after or changed is None:
            return
        namespace = changed.namespace
        quotas = sorted(self.quotas.indexed(namespace), key=lambda quota: quota.name)
        others = {name: objects for name, objects in self._judged["quotas"].items() if name != namespace}
        self.judge(quotas=others | ({namespace: tuple(quotas)} if quotas else {}))
        self._reactions.quota_jobs.quotas_changed(namespace, self._reactions.jobs.values)
        self._reactions.wake.set()


def _access(queue: TenantQueue) -> object:
    """Return the part of a queue that decides which jobs may use it and whether they may be picked."""
    spec = queue.spec
    return spec.namespaces, spec.namespace_selector, spec.stop_policy, spec.gang_queues, spec.gang_queue
