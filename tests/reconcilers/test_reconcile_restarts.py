"""Restarts on a real API server; the tests set the status of pods and requests."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.rbac.permissions import WORKER
from crds import labels
from crds.api_resources import EVENTS, NAMESPACES, NODES, PODS, RECREATE_REQUESTS, TORCHJOBS
from kube.client import KubernetesCluster
from kube.errors import Forbidden, Invalid
from kube.informer import Informer
from reconcilers.observe import Caches, pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from reconcilers.views.node_view import RESTARTS_ALL, NodeView, nodes_informer
from reconcilers.views.recreate_request import RecreateView, recreations_informer
from tests.support.acceptance.stack import until
from tests.support.kube.servers import Server
from tests.support.rbac.gatekeeper import Gatekeeper
from tests.support.reconcilers import recreate_requests
from tests.support.reconcilers.bench import Bench, Counting
from tests.support.reconcilers.builders import task
from tests.support.waiting import SECONDS

MASTER, WORKER_0, WORKER_1 = ALL = ["digits-master-0", "digits-worker-0", "digits-worker-1"]


@dataclass
class Clock:
    """The clock of the reconciler, which a test may set ahead."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Wide(Bench):
    """A bench that also caches nodes and requests."""

    nodes: Informer[NodeView] | None = None
    requests: Informer[RecreateView] | None = None
    clock: Clock = field(default_factory=Clock)

    def runs(self, **spec: Any) -> None:
        """Submit a job and run all its pods."""
        self.submit({"Master": task(), "Worker": task(2, dependsOn=[])}, **spec)
        self.pick()
        self.reconcile()
        for name in ALL:
            self.run(name)
        self.reconcile()
        assert self.job.status.phase == "Running"

    def run(self, name: str, restarts: int = 0) -> None:
        container = {
            "name": "torch",
            "image": "",
            "imageID": "",
            "ready": True,
            "restartCount": restarts,
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
        }
        if restarts:
            container["lastState"] = {"terminated": {"exitCode": 137, "reason": "Error"}}
        status = {"phase": "Running", "containerStatuses": [container]}
        self.cluster.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    def uids(self) -> dict[str, str]:
        return {name: self.cluster.get(PODS, name, self.namespace)["metadata"]["uid"] for name in self.names()}

    def mark(self, name: str, label: str) -> str:
        return str(self.cluster.get(PODS, name, self.namespace)["metadata"]["labels"][label])

    def grace(self, name: str) -> int:
        return int(self.cluster.get(PODS, name, self.namespace)["metadata"]["deletionGracePeriodSeconds"])

    def asked(self) -> dict[str, str]:
        """Return the names of the requests by pod."""
        found = self.cluster.list(RECREATE_REQUESTS, self.namespace).items
        return {each["spec"]["podName"]: each["metadata"]["name"] for each in found}

    def told(self) -> set[str]:
        return {each["reason"] for each in self.cluster.list(EVENTS, self.namespace).items}

    def ask(self, request: str) -> None:
        """Request a restart, as the owner does."""
        note = {"metadata": {"annotations": {labels.RESTART_REQUEST: request}}}
        self.cluster.patch(TORCHJOBS, "digits", note, self.namespace)

    def settle(self) -> None:
        self.reconcile(times=4)


def benches(cluster: KubernetesCluster, namespace: str, **settings: Any) -> Iterator[Wide]:
    counting = Counting(Gatekeeper(cluster, WORKER, strict=True))
    chosen = ReconcileSettings(
        admission_timeout=0.0, most_seconds=60.0, served=frozenset({RECREATE_REQUESTS}), **settings
    )
    with pods_informer(cluster) as pods, nodes_informer(cluster) as nodes:
        requests = recreations_informer(cluster) if chosen.in_place == "kruise" else None
        if requests is not None:
            recreate_requests.install(cluster)
            requests.start()
            assert requests.wait_synced(SECONDS)
        assert pods.wait_synced(SECONDS)
        assert nodes.wait_synced(SECONDS)
        clock = Clock()
        with Reconciler(counting, pods, chosen, clock, caches=Caches(nodes=nodes, recreations=requests)) as reconciler:
            yield Wide(cluster, counting, namespace, pods, reconciler, nodes=nodes, requests=requests, clock=clock)
        if requests is not None:
            requests.stop()


@pytest.fixture
def local(cluster: KubernetesCluster, namespace: str) -> Iterator[Wide]:
    yield from benches(cluster, namespace, in_place="local")


@pytest.fixture
def kruise(cluster: KubernetesCluster, namespace: str) -> Iterator[Wide]:
    yield from benches(cluster, namespace, in_place="kruise")


@pytest.fixture
def cautious(cluster: KubernetesCluster, namespace: str) -> Iterator[Wide]:
    yield from benches(cluster, namespace, node_failures=1, dead_node_grace=5.0)


@pytest.fixture
def brief(cluster: KubernetesCluster, namespace: str) -> Iterator[Wide]:
    yield from benches(cluster, namespace, longest_grace=45.0)


@pytest.fixture
def agents(cluster: KubernetesCluster, namespace: str) -> Iterator[Wide]:
    name = f"new-{namespace}"
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "declaredFeatures": [RESTARTS_ALL]}
    cluster.patch(NODES, name, {"status": status}, subresource="status")
    try:
        yield from benches(cluster, namespace, in_place="kubernetes")
    finally:
        cluster.delete(NODES, name)


def with_agents(bench: Wide) -> dict[str, bool]:
    listed = bench.cluster.list(PODS, bench.namespace).items
    return {each["metadata"]["name"]: bool(each["spec"].get("initContainers")) for each in listed}


@pytest.mark.parametrize("room", ["", "quota"])
def test_pods_have_restart_agents_where_there_is_room_for_them(agents: Wide, room: Any) -> None:
    agents.submit({"Master": task(), "Worker": task(2, dependsOn=[])})
    agents.pick()
    raised: list[Any] = []

    def raise_charge(*args: Any) -> Any:
        raised.append(args[-1])
        return room

    agents.reconcile(raise_charge=raise_charge, times=2)
    assert with_agents(agents) == dict.fromkeys(ALL, not room)
    assert raised == [{"jobs": 1, "pods": 3, "cpu": 3003, "memory": 3 * 2**24}]
    status = agents.job.status
    assert status.in_place is not None
    assert (status.in_place.driver, status.in_place.settled) == (("recreate", True) if room else ("kubernetes", False))
    assert status.admission is not None
    assert status.admission.charge["cpu"] == (3000 if room else 3003)
    assert agents.counting.calls["create Pod"] == 4, "three pods, and one dry run"


def test_embedded_driver_restarts_other_pods_in_place(local: Wide) -> None:
    local.runs()
    before = local.uids()
    local.move("Failed", WORKER_0, exit_code=137)
    local.reconcile()
    assert local.job.status.restart_count == 1
    assert local.names() == [MASTER, WORKER_1]
    local.restarted(MASTER)
    local.reconcile()
    assert local.mark(MASTER, labels.RESTART) == "1"
    local.reconcile()
    local.restarted(WORKER_1)
    local.settle()
    after = local.uids()
    assert [name for name in ALL if after[name] != before[name]] == [WORKER_0]
    assert {local.mark(name, labels.RESTART) for name in ALL} == {"1"}
    local.run(WORKER_0)
    local.settle()
    assert (local.job.status.phase, local.job.status.restart_count) == ("Running", 1)
    assert {"Restarting", "RestartedInPlace"} <= local.told()


def seen(bench: Wide, name: str) -> None:
    """Wait until the cache shows the request."""
    assert bench.requests is not None
    version = int(bench.cluster.get(RECREATE_REQUESTS, name, bench.namespace)["metadata"]["resourceVersion"])
    assert bench.requests.wait_for(version, SECONDS)


def complete(bench: Wide, pod: str, **how: str) -> None:
    """Complete the request for a pod, as Kruise does."""
    assert bench.requests is not None
    version = recreate_requests.finish(bench.cluster, bench.namespace, bench.asked()[pod], **how)
    assert bench.requests.wait_for(version, SECONDS)


def test_kruise_restarts_healthy_pods_at_once_and_leaves_the_failed_one_to_its_node(kruise: Wide) -> None:
    kruise.runs()
    before = kruise.uids()
    kruise.run(WORKER_0, restarts=1)  # the node has restarted the failed container
    kruise.reconcile()
    assert (kruise.job.status.restart_count, kruise.job.status.restart_generation) == (1, 1)
    assert kruise.asked() == {MASTER: f"{MASTER}-1", WORKER_1: f"{WORKER_1}-1"}
    seen(kruise, f"{WORKER_1}-1")
    kruise.settle()
    assert {kruise.mark(name, labels.RESTART) for name in ALL} == {"0"}  # rank 0 comes first
    kruise.run(MASTER, restarts=1)
    complete(kruise, MASTER)
    complete(kruise, WORKER_1, phase="Failed")
    kruise.settle()
    assert (kruise.mark(MASTER, labels.RESTART), kruise.mark(WORKER_0, labels.RESTART)) == ("1", "1")
    after = kruise.uids()
    assert [name for name in ALL if after[name] != before[name]] == [WORKER_1]
    kruise.run(WORKER_1)
    kruise.settle()
    status = kruise.job.status
    assert (status.phase, status.restart_count, status.restart_generation) == ("Running", 1, 1)
    assert WORKER_1 not in kruise.asked()  # the request was for the replaced pod
    assert "NotRestartedInPlace" in kruise.told()
    # The next failure counts again.
    kruise.run(MASTER, restarts=2)
    kruise.reconcile()
    assert kruise.job.status.restart_count == 2


def test_requested_restart_of_single_pod_is_no_failure(kruise: Wide) -> None:
    kruise.runs()
    kruise.ask('{"id": "a", "task": "Worker", "index": 1}')
    kruise.reconcile()
    assert (list(kruise.asked()), kruise.job.status.restart_request) == ([WORKER_1], "a")
    seen(kruise, kruise.asked()[WORKER_1])
    kruise.run(WORKER_1, restarts=1)
    kruise.settle()  # a requested restart is no failure
    complete(kruise, WORKER_1)
    kruise.settle()
    status = kruise.job.status
    assert (status.phase, status.restart_count, status.restart_generation) == ("Running", 0, 0)
    notes = kruise.cluster.get(PODS, WORKER_1, kruise.namespace)["metadata"]["annotations"]
    assert notes[labels.RESTARTS_HANDLED] == "1"
    kruise.run(WORKER_1, restarts=2)
    kruise.reconcile()
    assert kruise.job.status.restart_count == 1


def test_trainer_that_exits_with_0_when_kruise_restarts_it_has_not_succeeded(kruise: Wide) -> None:
    kruise.runs()
    before = kruise.uids()
    kruise.ask('{"id": "a", "task": "Master"}')
    kruise.reconcile()
    kruise.move("Succeeded", MASTER, exit_code=0)  # the request of the pod may not be in the cache yet
    kruise.settle()
    after = kruise.uids()
    assert [name for name in ALL if after[name] != before[name]] == [MASTER]
    status = kruise.job.status
    assert (status.phase, status.restart_count, status.disruptions) == ("Running", 0, 0)
    assert "NotRestartedInPlace" in kruise.told()


def test_pods_are_replaced_when_kruise_refuses(kruise: Wide) -> None:
    kruise.runs()
    before = kruise.uids()
    kruise.ask('{"id": "a"}')

    def refuse() -> None:
        raise Invalid("the pod is not active")

    kruise.counting.before["create ContainerRecreateRequest"] = refuse
    with pytest.raises(Invalid):
        kruise.reconcile()
    kruise.settle()
    after = kruise.uids()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert "NotRestartedInPlace" in kruise.told()


@pytest.mark.parametrize("silent", [True, False])
def test_pod_on_dead_node_is_replaced_and_node_is_avoided(cautious: Wide, server: Server, silent: bool) -> None:
    name = f"node-{cautious.namespace}"
    cautious.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    say_of_node(cautious, name, "True")
    cautious.submit({"Master": task()}, backoffLimit=0)
    cautious.pick()
    cautious.reconcile()
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": MASTER}, "target": {"name": name}}
    assert server.send("POST", PODS.path(cautious.namespace, MASTER, "binding"), binding)[0] == 201
    cautious.run(MASTER)
    cautious.settle()
    before = cautious.uids()
    if silent:
        say_of_node(cautious, name, "Unknown")
    else:
        cautious.cluster.delete(NODES, name)
        until(lambda: cautious.nodes is not None and cautious.nodes.get("", name) is None)
        cautious.reconcile()
        assert cautious.uids() == before  # the cache of nodes may be behind
        cautious.clock.ahead = 60.0
    cautious.settle()
    status = cautious.job.status
    assert (status.restart_count, status.disruptions, status.excluded_nodes) == (0, 1, (name,))
    assert cautious.uids()[MASTER] != before[MASTER]
    affinity = cautious.cluster.get(PODS, MASTER, cautious.namespace)["spec"]["affinity"]["nodeAffinity"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" in affinity  # no other node exists
    assert {"Restarting", "NodeExcluded"} <= cautious.told()
    if silent:
        cautious.cluster.delete(NODES, name)


@pytest.mark.parametrize("own", [True, False])
def test_grace_is_limited_to_longest_grace(brief: Wide, server: Server, own: bool) -> None:
    name = f"node-{brief.namespace}"
    brief.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    endless = task()
    endless["template"]["spec"]["terminationGracePeriodSeconds"] = 2**31
    brief.submit({"Master": endless})
    brief.pick()
    brief.reconcile()
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": MASTER}, "target": {"name": name}}
    assert server.send("POST", PODS.path(brief.namespace, MASTER, "binding"), binding)[0] == 201
    brief.run(MASTER)
    brief.settle()
    if own:  # the owner has deleted the pod with the longest possible grace period
        brief.cluster.delete(PODS, MASTER, brief.namespace, grace_period_seconds=2**31)
        brief.settle()
        assert brief.grace(MASTER) == 2**31
    brief.change(suspend=True)
    brief.settle()
    assert brief.grace(MASTER) == 45
    assert "GracePeriodShortened" in brief.told()
    brief.counting.calls.clear()
    brief.settle()
    assert brief.counting.calls.keys() == {"get TorchJob"}  # the grace period is shortened once
    brief.remove(MASTER)
    brief.cluster.delete(NODES, name)


def say_of_node(bench: Wide, name: str, ready: str) -> None:
    """Set the Ready condition of a node, as the node or the node controller does."""
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-02T03:04:05Z"}
    made = bench.cluster.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")
    assert bench.nodes is not None
    assert bench.nodes.wait_for(int(made["metadata"]["resourceVersion"]), SECONDS)


def test_job_waits_for_pod_kept_by_finalizers(cautious: Wide) -> None:
    cautious.runs()
    kept = {"metadata": {"finalizers": ["example.com/keep"]}}
    cautious.cluster.patch(PODS, WORKER_0, kept, cautious.namespace)
    cautious.move("Failed", WORKER_0, exit_code=137)
    cautious.settle()
    assert cautious.names() == [WORKER_0]
    cautious.clock.ahead = 100.0
    cautious.settle()
    assert cautious.true_condition("Admitted")[0] == "PodsStuck"
    assert WORKER_0 in cautious.true_condition("Admitted")[1]
    cautious.counting.calls.clear()
    assert cautious.reconcile() == 5.0
    assert cautious.counting.calls == {"get TorchJob": 1}  # the reconcile does not loop
    cautious.cluster.patch(PODS, WORKER_0, {"metadata": {"finalizers": None}}, cautious.namespace)
    cautious.settle()
    assert cautious.names() == ALL
    for name in ALL:
        cautious.run(name)
    cautious.settle()
    assert cautious.true_condition("Admitted")[0] == "Running"


def test_terminating_namespace_is_reported_as_pods_forbidden(cautious: Wide, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["server"] == "embedded":
        pytest.skip("what is in a namespace is gone with it")
    cautious.submit()
    cautious.cluster.delete(NAMESPACES, cautious.namespace)
    cautious.pick()
    with pytest.raises(Forbidden):
        cautious.reconcile()
    reason, message = cautious.true_condition("Admitted")
    assert reason == "PodsForbidden"
    assert "being terminated" in message
