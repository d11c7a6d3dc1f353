"""Reads everything that `torchq doctor` compares.

One rule: this module only reads. An account that may list and get, and a read-only account on Redis, are enough.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from coordinator.cache import rule_views, views
from coordinator.cache.routing_rules import Quotas, RoutingRules
from coordinator.cache.rule_views import NamespaceView
from coordinator.cache.views import JobView, PodView
from coordinator.doctor import slow_restarts
from coordinator.doctor.inspection import ClusterInspection, Inspection, LeaseView
from coordinator.doctor.strays import Strays
from coordinator.leader import rebuild_request
from coordinator.leader.election import EPOCH_ANNOTATION, ERRORS_ANNOTATION
from coordinator.rbac.permissions import LEASE, SYSTEM_NAMESPACE
from coordinator.routing import namespace_quota, queue_specs, route
from crds import excerpts, integers, labels, tenantqueue
from crds.api_resources import (
    CONFIG_MAP_HEADS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.tenantqueue import TenantQueue
from crds.torchjob import resource_quota
from crds.torchjob.resource_quota import Quota
from kube import errors
from kube.api import Cluster, Manifest
from queues.installation import Installation
from queues.store import QueueReader
from queues.work import WorkSource

T = TypeVar("T")
LONGEST = 1000
"""The most characters of a message about an object."""


@dataclass(frozen=True, slots=True)
class Collector:
    """Reads cluster, queue store and work."""

    cluster: Cluster
    store: QueueReader
    work: WorkSource
    lease_namespace: str

    def collect(self) -> Inspection:
        """Read everything once."""
        return Inspection(self._cluster(), self.store.inspect(), self.work.inspect())

    def _cluster(self) -> ClusterInspection:
        wrong: dict[str, str] = {}
        slow: set[str] = set()
        strays = Strays()
        # Jobs are read after pods, so that the attempt of a pod is compared with a job that is at least as new.
        pods = self._read(PODS, _pod(slow, strays), wrong, label_selector=labels.JOB_UID)
        self._read_code(strays, wrong)
        jobs = self._read(TORCHJOBS, _job(strays), wrong)
        queues = self._read(TENANT_QUEUES, _queue(wrong), wrong)
        namespaces = self._read(NAMESPACES, rule_views.namespace_view, wrong)
        classes = self._read(PRIORITY_CLASSES, rule_views.priority_class_view, wrong)
        quotas = _by_namespace(self._read(RESOURCE_QUOTAS, resource_quota.read, wrong))
        rules = RoutingRules(
            queues={queue.metadata.name: queue.spec for queue in queues},
            priorities={priority_class.name: priority_class.value for priority_class in classes},
            namespaces={namespace.name: namespace.labels for namespace in namespaces},
            quotas=quotas,
            implicit=False,
        )
        lease, now = self._lease(), time.time()
        return ClusterInspection(
            jobs={job.key: job for job in jobs},
            pods=tuple(pods),
            specs={queue.metadata.name: queue_specs.spec(queue) for queue in queues},
            rules=replace(rules, yielding=_yielding(jobs, pods, quotas, rules, now)),
            lease=None if lease is None else _lease_view(lease),
            installation=_installation(namespaces, self.lease_namespace),
            skipped=self._errors_in_status(lease),
            unreadable=wrong,
            ineffective={queue.metadata.name: description for queue in queues if (description := _ineffective(queue))},
            slow_nodes=frozenset(slow - {""}),
            strays=strays,
            now=now,
        )

    def _read(
        self, resource: Resource, trim: Callable[[Manifest], T], wrong: dict[str, str], *, label_selector: str = ""
    ) -> list[T]:
        """Return the valid objects of a kind; the others are added to `wrong` with the reason."""
        views_read = []
        for item in (
            item for page in self.cluster.pages(resource, label_selector=label_selector) for item in page.items
        ):
            try:
                views_read.append(trim(item))
            except Exception as error:
                wrong[_subject(resource, item)] = _short(f"cannot be read: {type(error).__name__}: {error}")
        return views_read

    def _read_code(self, strays: Strays, wrong: dict[str, str]) -> None:
        """Note the ConfigMaps with code. Only the doctor's own account may list them, and not that of a coordinator, in
        which doctor may run."""
        try:
            self._read(CONFIG_MAP_HEADS, strays.note_code, wrong, label_selector=labels.CODE)
        except errors.Forbidden as error:
            strays.unread = str(error)

    def _errors_in_status(self, lease: Manifest | None) -> dict[str, str]:
        """Return the errors that the leader reports in its Lease, and embedded nodes in their status."""
        errors_text = str(((lease or {}).get("metadata") or {}).get("annotations", {}).get(ERRORS_ANNOTATION, ""))
        skipped = {"coordinator": _short(errors_text)} if errors_text else {}
        for node in self.cluster.list(NODES).items:
            for condition in (node.get("status") or {}).get("conditions") or ():
                if condition.get("type") == labels.OBJECT_ERRORS and condition.get("status") == "True":
                    skipped[f"node {node['metadata']['name']}"] = _short(str(condition.get("message")))
        return skipped

    def _lease(self) -> Manifest | None:
        try:
            return self.cluster.get(LEASES, LEASE, self.lease_namespace)
        except errors.NotFound:
            return None

    def repair(self, seconds: float) -> None:
        """Have the leader rebuild the queues. Raises CoordinatorError if the leader does not do so within `seconds`."""
        rebuild_request.request_rebuild(self.cluster, LEASE, self.lease_namespace, seconds=seconds)


def _by_namespace(quotas: Iterable[Quota]) -> dict[str, tuple[Quota, ...]]:
    by_namespace: dict[str, list[Quota]] = {}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        by_namespace.setdefault(quota.namespace, []).append(quota)
    return {namespace: tuple(namespace_quotas) for namespace, namespace_quotas in by_namespace.items()}


def _yielding(
    jobs: Iterable[JobView], pods: Iterable[PodView], quotas: Quotas, rules: RoutingRules, now: float
) -> dict[str, frozenset[JobKey]]:
    """Return by namespace the refused jobs that let older refused jobs go first, as the leader determines them."""
    pod_counts = Counter(pod.job for pod in pods if pod.occupies)
    refused: dict[str, list[JobView]] = {}
    for job in jobs:
        if job.waits is not None and job.waits.refusal is not None:
            refused.setdefault(job.key.namespace, []).append(job)
    return {
        namespace: namespace_quota.yielding_jobs(
            namespace_jobs,
            quotas.get(namespace, ()),
            now,
            services=True,
            arrived=pod_counts.__getitem__,
            place=partial(route.sort_key, rules=rules),
        )
        for namespace, namespace_jobs in refused.items()
    }


def _installation(namespaces: Iterable[NamespaceView], lease_namespace: str) -> Installation | None:
    uids = {namespace.name: namespace.uid for namespace in namespaces}
    return Installation(uids[SYSTEM_NAMESPACE], lease_namespace) if SYSTEM_NAMESPACE in uids else None


def _lease_view(lease: Manifest) -> LeaseView:
    spec: Mapping[str, Any] = lease.get("spec") or {}
    epoch = str((lease["metadata"].get("annotations") or {}).get(EPOCH_ANNOTATION, ""))
    return LeaseView(
        holder=str(spec.get("holderIdentity") or ""),
        epoch=integers.parse(epoch, 0),
        renewed=str(spec.get("renewTime") or ""),
        seconds=float(spec.get("leaseDurationSeconds") or 0),
    )


def _short(text: str) -> str:
    return excerpts.excerpt(text, LONGEST)


def _job(strays: Strays) -> Callable[[Manifest], JobView]:
    """Return a reader of jobs that notes their code, and who else has written their statuses."""

    def read(manifest: Manifest) -> JobView:
        view = views.job_view(manifest)
        strays.note_job(view.key, manifest)
        return view

    return read


def _pod(slow: set[str], strays: Strays) -> Callable[[Manifest], PodView]:
    """Return a reader of pods that notes which nodes start containers again late, and pods that no job owns."""

    def read(manifest: Manifest) -> PodView:
        strays.note_pod(manifest)
        slow.add(slow_restarts.slow_node(manifest))
        return views.pod_view(manifest)

    return read


def _queue(wrong: dict[str, str]) -> Callable[[Manifest], TenantQueue]:
    """Return a reader of queues that works as the coordinator's: an invalid queue admits nothing."""

    def read(manifest: Manifest) -> TenantQueue:
        try:
            return tenantqueue.read(manifest)
        except InvalidObject as error:
            wrong[_subject(TENANT_QUEUES, manifest)] = _short(f"admits nothing until it is corrected: {error}")
            return rule_views.queue_view(manifest)

    return read


def _ineffective(queue: TenantQueue) -> str:
    """Return the limits of a queue that have no effect; empty if all have one."""
    return _short("; ".join(f"{problem.field}: {problem.message}" for problem in tenantqueue.ineffective(queue)))


def _subject(resource: Resource, manifest: Manifest) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{resource.kind} {'/'.join(filter(None, (metadata.get('namespace'), metadata.get('name'))))}"
