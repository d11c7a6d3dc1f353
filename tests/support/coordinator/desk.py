"""The coordinator and a worker as one object whose steps a test takes by hand, and builders of its objects."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from coordinator.cache import optional_kinds
from coordinator.cache.optional_kinds import OptionalKinds
from coordinator.cache.watches import Watches
from coordinator.elastic.idle_history import Memory
from coordinator.leader.control_loop import ControlLoop
from coordinator.leader.node_places import NodePlaces
from coordinator.leader.reasons import Reasons
from coordinator.leader.status_writer import StatusWriter
from coordinator.rbac.permissions import COORDINATOR, WORKER
from coordinator.reports.report_store import ReportReader
from coordinator.settings import Settings
from coordinator.worker.caches import WorkerCaches
from coordinator.worker.process import reconcile_settings
from crds.api_resources import (
    ALPHA_POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SERVICES,
    TENANT_QUEUES,
    TORCHJOBS,
    Resource,
)
from crds.keys import JobKey
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster, Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from queues.rules import PickRules
from queues.store import QueueStore, StoreSettings
from queues.tasks import Task
from reconcilers.reconcile import Reconciler
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.doubles.recording_meter import RecordingMeter
from tests.support.clock import Clock
from tests.support.queues.builders import registration
from tests.support.rbac.gatekeeper import Gatekeeper
from tests.support.reconcilers.bench import Counting
from tests.support.waiting import SECONDS, patient

LEASE_SECONDS = 15.0
CATCH_UP_SECONDS = 2.0
"""The longest wait for the worker's watch; a bookmark that only the coordinator has got never arrives."""


class Desk:
    """The control loop of a coordinator and one worker, without their processes. The test takes every step."""

    counting: Callable[[Any], Any] = Counting
    """The class of the client between the coordinator and the API server, and between the worker and the API server."""

    def __init__(self, cluster: KubernetesCluster, clock: Clock, **settings: Any) -> None:
        self.cluster = cluster
        self.clock = clock
        self._jumped = 0.0
        usual = {"pool": "none", "lease_seconds": LEASE_SECONDS, "master_address": "loopback"}
        # Other tests install foreign kinds, whose controllers no test plays here.
        usual |= {"gang_scheduler": "none", "in_place": "recreate"}
        self.settings = Settings(**{**usual, **settings})
        self.watching = self.counting(Gatekeeper(cluster, COORDINATOR, strict=True))
        self.working = self.counting(Gatekeeper(cluster, WORKER, strict=True))
        """The clients of coordinator and worker; each allows only what the account of its process allows."""
        self.content = Content()
        reader = MemoryStore(lambda *_: None, content=self.content)
        self.work = MemoryWork(
            clock,
            reader.epoch,
            lambda key: reader.reservations([key]).get(key),
            raise_charge=reader.raise_charge,
        )
        self.store: QueueStore = self.open()
        self.settling = Clock()
        """The clock that delays new settings; `until` steps it."""
        self.watches = Watches(
            self.watching,
            nodes=self.settings.pool == "nodes",
            clock=self.settling,
            foreign=optional_kinds.KINDS,
            leaving_taints=self.settings.taints_of_leaving_nodes,
        )
        levels = self.settings.topology if self.settings.pool == "nodes" else ()
        self.watches.rule_watches.judge(topology=levels)
        self.paused: list[float] = []
        picking = PickRules(cost=self.settings.cost)
        self.leads_for = 1
        """The epoch of the leader whose puts are written."""
        self.statuses = StatusWriter(self.watching, self.watches, lambda: self.leads_for, elapsed=clock)
        self.reasons = Reasons(
            self.statuses.reasons,
            self.watches,
            self.open(),
            picking,
            self.settings.reason_after,
            self.settings.implicit_queues,
            clock,
        )
        self.memory = Memory(self.settings)
        self.reports: ReportReader | None = None
        self.meter = RecordingMeter()
        """The counts of the control loop."""
        self.term = self.new_term()
        self.caches = WorkerCaches(self.working, self.settings)
        self.pods, self.queues = self.caches.pods, self.caches.queues
        self.work.register(registration("worker", 8))

    def new_reconciler(self, **more: Any) -> Reconciler:
        """Return a reconciler as a worker process creates it, once the served kinds are known; `more` are functions of
        its caches."""
        found = reconcile_settings(self.settings, self.caches.served)
        caches = self.caches
        return Reconciler(
            self.working,
            caches.pods,
            replace(found, most_seconds=60.0),
            self.clock,
            caches=replace(caches.reconcile_caches, **more),
        )

    def open(self) -> MemoryStore:
        """Return a store object with the same content, as another process would open it."""
        ports = StoreSettings(ports=(20_000, 20_099))
        return MemoryStore(self.work.mark, ports, self.content, self.work.may_have_pods)

    def new_term(self, store: QueueStore | None = None) -> ControlLoop:
        """Return a control loop as a new leader creates it."""
        self.store = store or self.store
        counts, hints = self.settings.pool == "nodes", self.settings.placement_hints
        self.node_places = NodePlaces(self.watches, self.store.reservations, self.elapsed, counts, hints)
        self.reasons.places = self.node_places.copy
        return ControlLoop(
            self.watches,
            self.store,
            self.work,
            self.settings,
            clock=self.clock,
            elapsed=self.elapsed,
            pause=self._pause,
            reasons=self.reasons,
            lane=self.statuses.jobs,
            memory=self.memory,
            reports=self.reports,
            node_places=self.node_places,
            meter=self.meter,
        )

    def _pause(self, seconds: float) -> None:
        """Record a pause of the leader. During the pause, its watches see what was written before."""
        self.paused.append(seconds)
        self.see()

    def see(self) -> None:
        """Wait until the coordinator's watches show each object as it is now."""
        for informer in self.watches.informers:
            written = self.cluster.list(informer.resource).items
            newest = max((int(each["metadata"]["resourceVersion"]) for each in written), default=0)
            assert informer.wait_for(newest, patient())

    def elapsed(self) -> float:
        """Return the time of the clock that is never set."""
        return self.clock() - self._jumped

    def jump(self, seconds: float) -> None:
        """Set the clock of the machine."""
        self.clock.step(seconds)
        self._jumped += seconds

    def begin(self, epoch: int = 1) -> None:
        """Start the control loop in an epoch. The first leader sees everything that was written before."""
        if epoch == 1:
            self.see()
        self.term = self.new_term()
        self.term.rebuild(epoch)

    @property
    def optional(self) -> tuple[OptionalKinds[Any], ...]:
        """The coordinator's informers of kinds that a cluster may not serve."""
        return self.watches.foreign, self.watches.gang_queues, self.watches.requests.kinds

    def __enter__(self) -> "Desk":
        for informer in (*self.watches.informers, *self.optional, self.caches):
            informer.start()
        for informer in self.informers:
            assert informer.wait_synced(SECONDS)
        self.caches.wait()
        for kinds in self.optional:
            assert kinds.wait_discovered(SECONDS)
            assert all(informer.wait_synced(SECONDS) for informer in kinds.informers)
        self.reconciler = self.new_reconciler()
        return self

    def __exit__(self, *_: object) -> None:
        for informer in (*self.watches.informers, *self.optional, self.caches):
            informer.stop()
        self.reconciler.close()

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (*self.watches.informers, *self.caches.informers)

    def lose(self) -> None:
        """Empty the store and the work queue."""
        fresh = Content()
        for name in Content.__slots__:
            setattr(self.content, name, getattr(fresh, name))
        self.work.clear()
        self.work.register(registration("worker", 8))

    def until(self, condition: Callable[[], object], *, worker: bool = True, seconds: float = SECONDS) -> None:
        """Let coordinator and worker work until the condition holds; the clock stands still."""
        began = time.monotonic()
        while not condition():
            waited = time.monotonic() - began
            assert waited < seconds or waited < patient(seconds), f"not true within {waited:.0f} s"
            self.work.register(registration("worker", 8))
            self.settling.step(1.0)
            busy = self.term.step()
            self.statuses.serve(self.statuses.jobs)
            if not (worker and self.run_worker()) and not busy:
                self.watches.wake.wait(0.005)
                self.watches.wake.clear()

    def write_reasons(self) -> int:
        """Look for the reasons why jobs wait, and write the reasons that are due. Return the number of writes that were
        tried.
        """
        self.reasons.look()
        return self.statuses.serve(self.statuses.reasons)

    def run_worker(self) -> int:
        """Run the batches in the work queue and return the number of keys."""
        self._catch_up()
        tasks: list[Task] = []
        while leases := self.work.pop():
            tasks += self.work.begin(leases)
        for task in tasks:
            holds = partial(self.work.holds, task.key, task.token)
            after = self.reconciler(task, holds, self.work.raise_charge)
            made, settled = self.reconciler.run_versions(task.key)
            self.work.finish(task.key, task.token, requeue_after=after, pods_version=made, settled_version=settled)
        return len(tasks)

    def _catch_up(self) -> None:
        """Wait until the worker has seen every pod group, restart request and node that the coordinator has seen.

        The coordinator marks a key again after a rest, since the worker's cache may be behind. The clock of these rests
        is stepped, and would otherwise be faster than the worker's watch.
        """
        ahead = (*self.watches.foreign.informers, *((self.watches.nodes,) if self.watches.nodes else ()))
        seen = {informer.resource: informer.resource_version for informer in ahead}
        for informer in (*self.caches.groups.informers, *self.caches.recreations.informers, self.caches.nodes):
            if informer.resource in seen:
                informer.wait_for(seen[informer.resource], patient(CATCH_UP_SECONDS))

    def queue(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": name}}
        self.cluster.create(TENANT_QUEUES, {**body, "spec": spec})

    def submit(self, name: str, namespace: str, queue: str, **spec: Any) -> JobKey:
        made = self.cluster.create(TORCHJOBS, manifest(name, queue, **spec), namespace)["metadata"]
        return JobKey(namespace, name, made["uid"])

    def job(self, key: JobKey) -> TorchJob:
        return torchjob.parse(self.cluster.get(TORCHJOBS, key.name, key.namespace))

    def phase(self, key: JobKey) -> str:
        return self.job(key).status.phase

    def pods_of(self, key: JobKey) -> list[str]:
        listed = self.cluster.list(PODS, key.namespace).items
        return sorted(each["metadata"]["name"] for each in listed if each["metadata"]["name"].startswith(key.name))

    def move(self, key: JobKey, phase: str) -> None:
        """Set the phase of the job's pods, as a node does. A failed pod gets an exit code, since a failed pod without
        an exit code counts as lost. Masters come last: once a master has succeeded, a worker that still runs is
        deleted.
        """
        ended = {"name": "torch", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        states = [ended | {"state": {"terminated": {"exitCode": 1}}}] if phase == "Failed" else []
        for name in sorted(self.pods_of(key), reverse=True):
            status = {"phase": phase, "containerStatuses": states}
            self.cluster.patch(PODS, name, {"status": status}, key.namespace, subresource="status")

    def change(self, key: JobKey, **spec: Any) -> None:
        """Change the spec of a job, as its owner does."""
        self.cluster.patch(TORCHJOBS, key.name, {"spec": spec}, key.namespace)

    def waiting(self) -> set[JobKey]:
        """Return the keys of the jobs that wait in the store."""
        return set(self.content.entries)

    def reserved(self) -> set[JobKey]:
        """Return the keys of the jobs that have a reservation in the store."""
        return set(self.content.reservations)


def task(count: int = 1, cpu: str = "1") -> dict[str, Any]:
    """Return one entry of torchTaskSpecs."""
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {"cpu": cpu}}}
    return {"numTasks": count, "template": {"spec": {"containers": [container]}}}


def manifest(name: str, queue: str = "", tasks: Mapping[str, Any] | None = None, **spec: Any) -> Manifest:
    """Return a TorchJob; without `tasks` it has one Master and one Worker."""
    policy = {**({"queue": queue} if queue else {}), **spec.pop("schedulingPolicy", {})}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": policy,
            "torchTaskSpecs": tasks or {"Master": task(), "Worker": task() | {"dependsOn": []}},
            **spec,
        },
    }


def owner(key: JobKey) -> dict[str, Any]:
    """Return the owner reference by which a job controls its pods."""
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "name": key.name,
        "uid": key.uid,
        "controller": True,
    }


def clear(cluster: Cluster, may_have: Callable[[Resource], bool] = lambda _: True) -> None:
    """Delete all objects that tests create. `may_have` spares lists of kinds that have no objects."""
    groups = (POD_GROUPS, COSCHEDULING_POD_GROUPS, NATIVE_POD_GROUPS, ALPHA_POD_GROUPS)
    for resource in filter(may_have, (TORCHJOBS, SCALE_OUTS, SCALE_INS, TENANT_QUEUES, PODS, SERVICES, *groups)):
        try:
            items = cluster.list(resource).items
        except errors.NotFound:  # the kind is not installed
            continue
        for item in items:
            metadata = item["metadata"]
            if metadata["name"] != "kubernetes":
                remove(cluster, resource, metadata["name"], metadata.get("namespace", ""))


def remove(cluster: Cluster, resource: Any, name: str, namespace: str) -> None:
    """Delete an object at once, if it exists."""
    try:
        cluster.delete(resource, name, namespace, grace_period_seconds=0)
    except errors.NotFound:
        return
