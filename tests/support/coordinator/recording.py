"""A cluster whose jobs are recorded: the simulated API server, a stepped clock, and recorders whose watches are stepped
from outside."""

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from coordinator.recorder.database import DatabaseAccess, OpenStore
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder import Recorder
from coordinator.recorder.recorder_lease import RecorderLease
from coordinator.recorder.sights import Sights
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS, Resource
from crds.torchjob.status import Admission, TorchJobStatus
from history.errors import NotReachable
from kube.api import Manifest
from kube.process.turns import Turns
from reconcilers.plan import closed_holds
from tests.doubles.memory_history import MemoryHistory
from tests.faults.api import Api, ApiClient
from tests.faults.caches import Feed, Logs
from tests.support.clock import Clock
from tests.support.crds import builders

NAMESPACE = "default"
CHARGE = {"jobs": 1, "pods": 2, "nvidia.com/gpu": 8}


class RecordedCluster:
    """The API server, and what owners and workers write."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.api = Api(self.clock)
        self.client = ApiClient(self.api)
        self.logs = Logs()
        self.api.store.subscribe(self.logs.hear)

    @property
    def seconds(self) -> int:
        """The time of the API server."""
        return int(self.clock.now)

    def submit(self, name: str, **spec: Any) -> str:
        """Create a job and return its uid."""
        body = {**builders.job(**spec), "metadata": {"name": name}}
        made = self.client.create(TORCHJOBS, body, NAMESPACE)
        return str(made["metadata"]["uid"])

    def admit(self, name: str, attempt: int = 1, charge: Mapping[str, int] = CHARGE) -> None:
        """Write the admission of a job, as its worker does."""
        admission = Admission(
            queue="team",
            attempt=attempt,
            epoch=1,
            pick=1,
            charge=dict(charge),
            admitted_at=self._now(),
            gang_scheduler="none",
            success_policy="AllTasks",
        )
        self.write(name, "Running", admission=admission, attempt=attempt)

    def suspend(self, name: str) -> None:
        """Write that a job has given its room back."""
        self.write(name, "Suspended", admission=None)

    def finish(self, name: str, phase: str = "Succeeded") -> None:
        """Write the end of a job."""
        self.write(name, phase, completion_time=self._now())

    def write(self, name: str, phase: str, **change: Any) -> None:
        """Write the status of a job, with the hold that ends by the change."""
        before = TorchJobStatus.model_validate(self.job(name).get("status") or {})
        condition = {
            "type": phase,
            "status": "True",
            "reason": phase,
            "message": "",
            "lastTransitionTime": self._now().isoformat(),
        }
        after = before.model_copy(update={"phase": phase, **change})
        after = TorchJobStatus.model_validate({**after.manifest(), "conditions": [condition]})
        after = after.model_copy(update={"holds": closed_holds.after(before, after, self._now())})
        patch = {"status": {**dict.fromkeys(before.manifest()), **after.manifest()}}
        self.client.patch(TORCHJOBS, name, patch, NAMESPACE, subresource="status")

    def job(self, name: str) -> Manifest:
        """Return a job."""
        return self.client.get(TORCHJOBS, name, NAMESPACE)

    def delete(self, name: str, resource: Resource = TORCHJOBS) -> None:
        """Delete an object."""
        self.client.delete(resource, name, NAMESPACE if resource.namespaced else "", grace_period_seconds=0)

    def make_pod(self, name: str, job: str, uid: str) -> None:
        """Create a pod of a job, as its worker does, and let it run."""
        metadata = {
            "name": name,
            "labels": {labels.JOB_UID: uid, labels.QUEUE: "team"},
            "annotations": {labels.CHARGE: '{"cpu":1000}'},
            "ownerReferences": [
                {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "name": job, "uid": uid, "controller": True}
            ],
        }
        spec = {"containers": [{"name": "torch", "image": "train"}]}
        self.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, NAMESPACE)
        self.client.patch(PODS, name, {"status": {"phase": "Running"}}, NAMESPACE, subresource="status")

    def weigh(self, queue: str, weight: int) -> None:
        """Create a queue or change its weight."""
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": queue}}
        names = [each.name for each in self.api.objects(TENANT_QUEUES)]
        if queue in names:
            self.client.patch(TENANT_QUEUES, queue, {"spec": {"weight": weight}})
        else:
            self.client.create(TENANT_QUEUES, body | {"spec": {"weight": weight}})

    def _now(self) -> datetime:
        return datetime.fromtimestamp(int(self.clock.now), UTC)


class FailingHistory:
    """A store in memory that takes no calls while it is `away`, and whose calls may fail."""

    def __init__(self) -> None:
        self.kept = MemoryHistory()
        self.away = False
        self.calls = 0
        self.fail_at: dict[int, str | BaseException] = {}
        """The calls that fail, by their number: before they take effect, after, or after with this error."""

    def close(self) -> None:
        """Do nothing."""

    def __getattr__(self, name: str) -> Any:
        """Return a method of the store that may fail."""
        return partial(self._call, getattr(self.kept, name))

    def _call(self, effect: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self.calls += 1
        when = "before" if self.away else self.fail_at.get(self.calls, "")
        if when == "before":
            raise NotReachable("the database does not answer")
        answer = effect(*given, **named)
        if when:
            raise NotReachable("the database does not answer") if when == "after" else when  # type: ignore[misc]
        return answer


class RecorderProcess:
    """One recorder on the cluster. Its watches deliver an event at each call of `hear`."""

    def __init__(
        self,
        cluster: RecordedCluster,
        store: FailingHistory,
        name: str = "a",
        namespace: str = "kube-system",
        client: Any = None,
        days: int = 0,
    ) -> None:
        """`client` is how the process sees its Lease, in this namespace."""
        self.cluster, self.store = cluster, store
        self.client = client or cluster.client
        self.is_cut = False
        self.pending = PendingRows()
        self.sights = Sights(cluster.client, self.pending, cluster.clock)  # type: ignore[arg-type]
        self.feeds = [Feed(informer, cluster.logs.of(informer)) for informer in self.sights.informers]
        self.lease = RecorderLease(self.client, name, namespace, {}, cluster.clock)
        self.recorder = Recorder(
            self.sights,
            self.pending,
            DatabaseAccess(self._open, cluster.clock),
            self.lease,
            now=cluster.clock,
            clock=cluster.clock,
            days=days,
        )

    def _open(self) -> OpenStore:
        if self.store.away:
            raise NotReachable("the database does not answer")
        return cast(OpenStore, self.store)

    def list(self) -> None:
        """Read whole lists, as at the start or when the API server cannot go on with a watch."""
        for feed in self.feeds:
            assert feed.list()

    def cut(self) -> None:
        """Cut the process off from its watches, which it knows."""
        self.is_cut = True
        for feed in self.feeds:
            feed.informer._reflector.failing = "no answer"
            feed.informer._reflector.restarts += 1

    def mend(self, *, is_forgotten: bool) -> None:
        """Let the process go on after a cut: with whole lists if the API server has forgotten what it had seen last."""
        self.is_cut = False
        for feed in self.feeds:
            feed.informer._reflector.failing = ""
        if is_forgotten:
            self.list()

    def hear(self) -> bool:
        """Deliver one event, and return whether there was one."""
        for feed in self.feeds:
            if feed.behind:
                feed.deliver()
                return True
        return False

    def catch_up(self) -> None:
        """Deliver all events."""
        while self.hear():
            pass

    def step(self, seconds: float = 0.0) -> None:
        """Deliver all events, and let the loop turn after a time."""
        self.catch_up()
        self.cluster.clock.step(seconds)
        self.recorder.step()

    def stop(self) -> None:
        """End the process, as a stop signal does."""
        self.catch_up()
        stop = threading.Event()
        stop.set()
        self.recorder.run(stop, Turns())
