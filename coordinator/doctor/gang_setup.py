"""Whether gang schedulers are set up so that they bind the gangs of the jobs that exist.

One rule: pure. The behaviour of a scheduler is judged by the objects that it writes, since no account of torchq may
read its settings. A finding names only the first object, so that the finding does not change with the number of other
objects.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.doctor.findings import Finding
from crds import labels, timestamps
from crds.api_resources import Resource
from crds.keys import JobKey
from gang import backends
from gang.backend import Backend
from gang.values import GangQueue, GroupView
from kube.api import Manifest

SILENT_SECONDS = 30.0
"""How long a scheduler may leave a new pod or group without a condition."""
DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(slots=True)
class GangSetup:
    """Collects the facts about gang schedulers that one reading of the cluster shows."""

    serves: Callable[[Resource], bool] = lambda _: True
    now: float = 0.0
    unseen: dict[str, str] = field(default_factory=dict)
    """By scheduler, the first pod of a job about which it has written nothing for SILENT_SECONDS."""
    bound: set[str] = field(default_factory=set)
    """The uids of the jobs with a pod on a node."""
    schedulers: dict[str, set[str]] = field(default_factory=dict)
    """By the uid of a job, the schedulers that its pods name."""
    groups: list[GroupView] = field(default_factory=list)
    queues: Mapping[str, GangQueue] | None = None
    """The queues of the gang scheduler; None if they could not be read."""
    unread: str = ""
    """Why groups or queues could not be read; empty if they could."""

    def note_pod(self, pod: Manifest) -> None:
        """Note a pod of a job."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        uid = str((metadata.get("labels") or {}).get(labels.JOB_UID, ""))
        scheduler = str(spec.get("schedulerName") or DEFAULT_SCHEDULER)
        self.schedulers.setdefault(uid, set()).add(scheduler)
        if spec.get("nodeName"):
            self.bound.add(uid)
            return
        since = timestamps.seconds_or_none(metadata.get("creationTimestamp")) or self.now
        is_told = any(condition.get("type") == "PodScheduled" for condition in status.get("conditions") or ())
        if not (is_told or "deletionTimestamp" in metadata) and self.now - since >= SILENT_SECONDS:
            self.unseen.setdefault(scheduler, f"pod {metadata['namespace']}/{metadata['name']}")

    def used_backends(self, jobs: Iterable[JobView]) -> Mapping[str, Backend]:
        """Return the gang schedulers of the jobs that hold room or name one."""
        names = {name for job in jobs if not job.finished and (name := _scheduler(job))}
        return {name: backends.get_backend(name, self.serves) for name in sorted(names - {"none"})}

    def findings(self, jobs: Mapping[JobKey, JobView], rules: RoutingRules) -> Iterator[Finding]:
        """Yield the parts that are not set up, given the jobs and TenantQueues that exist."""
        used = self.used_backends(jobs.values())
        for name, backend in used.items():
            if backend.resource is not None and not self.serves(backend.resource):
                kind = f"{backend.resource.plural}.{backend.resource.group}/{backend.resource.version}"
                yield Finding("gang-kind-missing", f"gang scheduler {name}", f"the API server does not serve {kind}")
        yield from self._silent(used)
        yield from self._gates(used)
        yield from self._queues(jobs, rules)
        yield from self._names(jobs)

    def _silent(self, used: Mapping[str, Backend]) -> Iterator[Finding]:
        unseen = dict(self.unseen)
        for group in self.groups:
            backend = backends.get_backend_of_kind(group.resource)
            is_old = group.since is not None and self.now - group.since >= SILENT_SECONDS
            if backend.queues is not None and not (group.seen or group.deleting) and is_old:
                unseen.setdefault(backend.scheduler, f"PodGroup {group.namespace}/{group.name}")
        checks = {backend.scheduler or DEFAULT_SCHEDULER: backend.check for backend in used.values()}
        for scheduler, what in unseen.items():
            check = checks.get(scheduler, "check that it runs")
            message = f"it has written nothing about {what} for {SILENT_SECONDS:.0f} s: {check}"
            yield Finding("gang-scheduler-silent", f"scheduler {scheduler}", message)

    def _gates(self, used: Mapping[str, Backend]) -> Iterator[Finding]:
        """Yield the gangs of Kubernetes whose pods are bound though no scheduler has a word about their group."""
        for group in self.groups:
            backend = used.get("kubernetes")
            if backend is None or group.resource != backend.resource or group.seen or group.job_uid not in self.bound:
                continue
            message = f"PodGroup {group.namespace}/{group.name} has no condition, and its pods are bound singly"
            yield Finding("gang-gate-off", "gang scheduler kubernetes", f"{message}: {backend.check}")
            return

    def _queues(self, jobs: Mapping[JobKey, JobView], rules: RoutingRules) -> Iterator[Finding]:
        if self.queues is None:
            return
        named: dict[str, str] = {}
        for tenant, spec in sorted(rules.queues.items()):
            for queue in (*spec.gang_queues, *filter(None, (spec.gang_queue,))):
                named.setdefault(queue, f"TenantQueue {tenant}")
        for key, job in sorted(jobs.items()):
            if job.gang_queue and not job.finished:
                named.setdefault(job.gang_queue, f"TorchJob {key.namespace}/{key.name}")
        for queue, by in named.items():
            found = self.queues.get(queue)
            if found is None:
                yield Finding("gang-queue", f"gang queue {queue}", f"{by} names it, and it does not exist")
            elif found.refusal:
                yield Finding("gang-queue", f"gang queue {queue}", f"{by} names it: {found.refusal}")

    def _names(self, jobs: Mapping[JobKey, JobView]) -> Iterator[Finding]:
        """Yield the jobs whose pods no gang scheduler binds, because the jobs name no gang scheduler."""
        for key, job in sorted(jobs.items()):
            named = self.schedulers.get(key.uid, set())
            admission = job.admission
            if admission is None or admission.gang_scheduler != "coscheduling" or DEFAULT_SCHEDULER not in named:
                continue
            message = (
                f"its pods name {DEFAULT_SCHEDULER}, and coscheduling is usually a plugin of a second scheduler: "
                "the setting gang_scheduler_name names it"
            )
            yield Finding("gang-scheduler-name", str(key), message)


def _scheduler(job: JobView) -> str:
    granted = job.admission.gang_scheduler if job.admission is not None else None
    return granted or job.gang_scheduler
