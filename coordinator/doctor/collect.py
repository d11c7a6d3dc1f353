"""Reads everything that `torchq doctor` compares.

One rule: this module only reads. An account that may list and get, and a read-only account on Redis, are enough.
"""

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import Any, TypeVar

from coordinator.cache import rule_views, views
from coordinator.cache.routing_rules import Quotas, RoutingRules
from coordinator.cache.views import JobView, PodView
from coordinator.doctor.gang_setup import GangSetup
from coordinator.doctor.inspection import ClusterInspection, Inspection, LeaseView
from coordinator.doctor.strays import Strays
from coordinator.follow import wait_reasons
from coordinator.leader import rebuild_request
from coordinator.leader.election import EPOCH_ANNOTATION, ERRORS_ANNOTATION
from coordinator.rbac.permissions import LEASE, SYSTEM_NAMESPACE
from coordinator.routing import chosen_ports, eligibility, gang_queues, namespace_quota, queue_specs, route
from coordinator.routing.chosen_ports import Owners
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
from crds.torchjob import conditions, resource_quota
from crds.torchjob.resource_quota import Quota
from gang import backends, volcano
from kube import errors
from kube.api import Cluster, Manifest
from queues.installation import Installation
from queues.store import QueueReader
from queues.values import QueueSpec
from queues.work import WorkSource

T = TypeVar("T")
LONGEST = 1000
"""The most characters of a message about an object."""
LONGEST_WAIT = 1.0
"""The longest wait in seconds that is not worth a word: the shortest that a kubelet can be given."""
_WAIT = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)? restarting")


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

    def queues(self) -> tuple[QueueSpec, ...]:
        """Read the tenant queues alone."""
        return tuple(queue_specs.spec(queue) for queue in self._read(TENANT_QUEUES, _queue({}), {}))

    def _cluster(self) -> ClusterInspection:
        wrong: dict[str, str] = {}
        slow: set[str] = set()
        strays, split = Strays(), dict[JobKey, str]()
        gangs = GangSetup(self.cluster.serves, time.time())
        # Jobs are read after pods, so that the attempt of a pod is compared with a job that is at least as new.
        pods = self._read(PODS, _pod(slow, strays, gangs), wrong, label_selector=labels.JOB_UID)
        try:  # only the doctor's own account may list ConfigMaps, and not that of a coordinator, in which it may run
            self._read(CONFIG_MAP_HEADS, strays.note_code, wrong, label_selector=labels.CODE)
        except errors.Forbidden as error:
            strays.unread = str(error)
        jobs = self._read(TORCHJOBS, _job(strays, split), wrong)
        queues = self._read(TENANT_QUEUES, _queue(wrong), wrong)
        self._read_gangs(gangs, wrong)
        namespaces = self._read(NAMESPACES, rule_views.namespace_view, wrong)
        classes = self._read(PRIORITY_CLASSES, rule_views.priority_class_view, wrong)
        quotas = _by_namespace(self._read(RESOURCE_QUOTAS, resource_quota.read, wrong))
        rules = RoutingRules(
            queues={queue.metadata.name: queue.spec for queue in queues},
            priorities={priority_class.name: priority_class.value for priority_class in classes},
            namespaces={namespace.name: namespace.labels for namespace in namespaces},
            quotas=quotas,
            topology=_known_levels(jobs),
            implicit=False,
        )
        lease, now = self._lease(), time.time()
        uids, own = {namespace.name: namespace.uid for namespace in namespaces}, SYSTEM_NAMESPACE
        return ClusterInspection(
            jobs={job.key: job for job in jobs},
            pods=tuple(pods),
            specs={queue.metadata.name: queue_specs.spec(queue) for queue in queues},
            rules=replace(
                _with_gang_rooms(rules, gangs, jobs, pods),
                yielding=_yielding(jobs, pods, quotas, rules, now),
                ports=_ports(jobs, pods, rules, now),
            ),
            lease=None if lease is None else _lease_view(lease),
            installation=Installation(uids[own], self.lease_namespace) if own in uids else None,
            skipped=self._errors_in_status(lease),
            unreadable=wrong,
            ineffective={queue.metadata.name: why for queue in queues if (why := _ineffective(queue))},
            slow_nodes=frozenset(slow - {""}),
            split_gangs=split,
            gangs=gangs,
            strays=strays,
            now=now,
        )

    def _read(
        self, resource: Resource, trim: Callable[[Manifest], T], wrong: dict[str, str], *, label_selector: str = ""
    ) -> list[T]:
        """Return the valid objects of a kind; the others are added to `wrong` with the reason."""
        views_read = []
        pages = self.cluster.pages(resource, label_selector=label_selector)
        for item in chain.from_iterable(page.items for page in pages):
            try:
                views_read.append(trim(item))
            except Exception as error:
                wrong[_subject(resource, item)] = _short(f"cannot be read: {type(error).__name__}: {error}")
        return views_read

    def _read_gangs(self, gangs: GangSetup, wrong: dict[str, str]) -> None:
        """Note the groups of jobs, and the queues of gang schedulers, as far as this account may read them."""
        for resource in filter(self.cluster.serves, (*backends.KINDS, *backends.QUEUES)):
            try:
                if resource in backends.QUEUES:
                    gangs.queues = {queue.name: queue for queue in self._read(resource, volcano.read_queue, wrong)}
                else:
                    trim = backends.get_backend_of_kind(resource).trim
                    gangs.groups += self._read(resource, trim, wrong, label_selector=labels.JOB_UID)
            except errors.Forbidden as error:
                gangs.unread = str(error)

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
        with contextlib.suppress(errors.NotFound):
            return self.cluster.get(LEASES, LEASE, self.lease_namespace)
        return None

    def repair(self, seconds: float) -> None:
        """Have the leader rebuild the queues. Raises CoordinatorError if the leader does not rebuild within
        `seconds`."""
        rebuild_request.request_rebuild(self.cluster, LEASE, self.lease_namespace, seconds=seconds)


def _by_namespace(quotas: Iterable[Quota]) -> dict[str, tuple[Quota, ...]]:
    ordered = sorted(quotas, key=lambda quota: (quota.namespace, quota.name))
    return {namespace: tuple(found) for namespace, found in groupby(ordered, key=lambda quota: quota.namespace)}


def _known_levels(jobs: Iterable[JobView]) -> tuple[str, ...]:
    """Return the labels that jobs require, apart from those of which the leader says that they are no levels: the
    leader's setting is not known."""
    required = [(job.gang.required, job.reason) for job in jobs if job.gang is not None]
    return tuple(
        {label for label, _ in required} - {label for label, reason in required if reason == eligibility.NO_LEVEL}
    )


def _with_gang_rooms(
    rules: RoutingRules, gangs: GangSetup, jobs: list[JobView], pods: Iterable[PodView]
) -> RoutingRules:
    """Return the rules with the room in the queues of the gang scheduler, as the leader determines it. The setting
    gang_scheduler is not known: the jobs show the scheduler."""
    if gangs.queues is None:
        return rules
    is_usual = any(
        job.reason == gang_queues.CODE or (job.admission is not None and job.admission.gang_scheduler == "volcano")
        for job in jobs
    )
    found = replace(rules, gang_scheduler="volcano" if is_usual else "none")
    by_job: dict[JobKey | None, list[PodView]] = {}
    for pod in pods:
        by_job.setdefault(pod.job, []).append(pod)
    shares = [gang_queues.share_of(job, by_job.get(job.key, ()), found) for job in jobs if not job.finished]
    return replace(found, gang_rooms=gang_queues.rooms(gangs.queues, filter(None, shares)))


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


def _ports(jobs: Iterable[JobView], pods: Iterable[PodView], rules: RoutingRules, now: float) -> Owners:
    """Return to which job each port belongs that a job chose itself, if a job waits for one."""
    chosen = [job for job in jobs if job.ports]
    if not any(job.reason == "PortTaken" for job in chosen):
        return {}
    occupying = {pod.job for pod in pods if pod.occupies}
    rules = replace(rules, implicit=None)
    claims = (eligibility.port_claim(job, rules, now, occupies=job.key in occupying) for job in chosen)
    before = {port: job.key for job in chosen if job.reason != "PortTaken" for port in job.ports}
    return chosen_ports.owners((claim for claim in claims if claim is not None), before)


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


def _job(strays: Strays, split: dict[JobKey, str]) -> Callable[[Manifest], JobView]:
    """Return a reader of jobs that notes their code, who else has written their statuses, and gangs that are not bound
    as a whole."""

    def read(manifest: Manifest) -> JobView:
        view = views.job_view(manifest)
        strays.note_job(view.key, manifest)
        reason, message = wait_reasons.of_pods(manifest)
        if reason == conditions.NOT_WHOLE:
            split[view.key] = message
        return view

    return read


def _pod(slow: set[str], strays: Strays, gangs: GangSetup) -> Callable[[Manifest], PodView]:
    """Return a reader of pods that notes which nodes start containers again late, and pods that no job owns."""

    def read(manifest: Manifest) -> PodView:
        strays.note_pod(manifest)
        gangs.note_pod(manifest)
        slow.add(slow_node(manifest))
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
    """Return the limits of a queue that have no effect; empty if all limits have an effect."""
    return _short("; ".join(f"{problem.field}: {problem.message}" for problem in tenantqueue.ineffective(queue)))


def _subject(resource: Resource, manifest: Manifest) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{resource.kind} {'/'.join(filter(None, (metadata.get('namespace'), metadata.get('name'))))}"


def slow_node(pod: Manifest) -> str:
    """Return the node of a pod, if the node waits long before it starts a container of the pod again; else an empty
    string.

    A kubelet waits 10, 20, 40 .. 300 s before it starts a container once more (CrashLoopBackOff), whatever has ended
    it. The words of a status tell how long, because no account of torchq may read the settings of a kubelet. Only pods
    that OpenKruise restarts in place have the restartPolicy OnFailure.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if spec.get("restartPolicy") != "OnFailure":
        return ""
    states = (container.get("state") or {} for container in status.get("containerStatuses") or ())
    waits = (_WAIT.search(str((state.get("waiting") or {}).get("message") or "")) for state in states)
    parts = ([float(part or 0) for part in found.groups()] for found in waits if found)
    is_slow = any(hours * 3600 + minutes * 60 + seconds > LONGEST_WAIT for hours, minutes, seconds in parts)
    return str(spec.get("nodeName") or "") if is_slow else ""
