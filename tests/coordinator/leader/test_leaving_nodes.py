"""Nodes that are about to lose their pods, on an API server whose nodes, scheduler and kubelets the test plays.

On a real API server (KUBEBUILDER_ASSETS) the evictions and taints are those of Kubernetes; without one, the tests on it
are skipped, with that reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from crds import labels
from crds.api_resources import NODES, PODS
from crds.keys import JobKey
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.kube.servers import Server

POLICY = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 4, "joinTimeoutSeconds": 60}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
ROOM = {"cpu": "2", "memory": "4Gi", "pods": "10"}
SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "1", "effect": "NoSchedule"}


@dataclass
class Machines:
    """Two nodes of two CPUs each, with the scheduler and the kubelets that the test plays."""

    desk: Desk
    server: Server
    namespace: str
    careless: bool = False
    """Whether pods are bound to the first node with room, whatever it says."""
    bound: dict[str, list[str]] = field(default_factory=dict)
    """The nodes to which the pods of each name were bound, in this order."""

    def add(self, name: str) -> None:
        self.desk.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        status = {"conditions": [READY], "allocatable": ROOM, "capacity": ROOM}
        self.desk.cluster.patch(NODES, name, {"status": status}, subresource="status")

    def change(self, name: str, **spec: Any) -> None:
        self.desk.cluster.patch(NODES, name, {"spec": spec})

    def work(self) -> None:
        """Bind the pods that wait, let bound ones run, and remove those that are being deleted."""
        pods = self.desk.cluster.list(PODS, self.namespace).items
        for pod in pods:
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if "deletionTimestamp" in pod["metadata"]:
                desks.remove(self.desk.cluster, PODS, name, self.namespace)
            elif not node:
                self._bind(pod, pods)
            elif pod["status"].get("phase") != "Running":
                self.desk.cluster.patch(PODS, name, {"status": self._status(pod)}, self.namespace, subresource="status")

    def _status(self, pod: Manifest) -> Manifest:
        is_shut = "initContainers" in pod["spec"] and labels.START not in pod["metadata"]["annotations"]
        gate = {"name": "torchq-start", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        return {"initContainerStatuses": [gate]} if is_shut else {"phase": "Running"}

    def _bind(self, pod: Manifest, pods: list[Manifest]) -> None:
        used = [each["spec"].get("nodeName") for each in pods]
        for node in sorted(self.desk.cluster.list(NODES).items, key=lambda each: each["metadata"]["name"]):
            spec, name = node["spec"], node["metadata"]["name"]
            keeps_away = [
                each for each in spec.get("taints") or () if not each["key"].startswith("node.kubernetes.io/")
            ]
            if used.count(name) >= 2 or not (self.careless or not (spec.get("unschedulable") or keeps_away)):
                continue
            metadata = {"name": pod["metadata"]["name"]}
            target = {"apiVersion": "v1", "kind": "Node", "name": name}
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
            code, answer = self.server.send("POST", PODS.path(self.namespace, metadata["name"], "binding"), body)
            assert code == 201, answer
            self.bound.setdefault(metadata["name"], []).append(name)
            pod["spec"]["nodeName"] = name
            return

    def evict(self, pod: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        code, answer = self.server.send("POST", PODS.path(self.namespace, pod, "eviction"), body)
        assert code == 201, answer


@pytest.fixture
def desk(cluster: KubernetesCluster) -> Iterator[Desk]:
    with Desk(cluster, Clock(), pool="nodes") as found:
        found.queue("a")
        found.begin()
        yield found
    desks.clear(cluster)
    for node in cluster.list(NODES).items:
        desks.remove(cluster, NODES, node["metadata"]["name"], "")


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Machines:
    found = Machines(desk, server, namespace)
    for name in ("n1", "n2"):
        found.add(name)
    return found


def until(machines: Machines, condition: Callable[[], object]) -> None:
    def look() -> object:
        machines.desk.clock.step(0.05)
        machines.work()
        return condition()

    machines.desk.until(look)


def run(machines: Machines, workers: int, **spec: Any) -> JobKey:
    """Return a job whose workers run."""
    key = machines.desk.submit("train", machines.namespace, "a", tasks={"Worker": desks.task(workers)}, **spec)
    until(machines, lambda: machines.desk.phase(key) == "Running" and places(machines, key) != [])
    return key


def places(machines: Machines, key: JobKey) -> list[str]:
    """Return the nodes of the running pods of a job, by name of the pod."""
    pods = {each["metadata"]["name"]: each for each in machines.desk.cluster.list(PODS, key.namespace).items}
    return [
        each["spec"].get("nodeName", "")
        for name, each in sorted(pods.items())
        if "deletionTimestamp" not in each["metadata"] and each["status"].get("phase") == "Running"
    ]


def counted(machines: Machines, key: JobKey) -> tuple[int, int, dict[str, int]]:
    status = machines.desk.job(key).status
    return status.restart_count, status.disruptions, dict(status.node_failures)


@pytest.mark.parametrize("leaves", [{"unschedulable": True}, {"taints": [SPOT]}])
def test_pods_of_a_leaving_node_run_elsewhere_and_nothing_is_counted(
    machines: Machines, leaves: dict[str, Any]
) -> None:
    key = run(machines, 1)
    assert places(machines, key) == ["n1"]
    machines.change("n1", **leaves)
    until(machines, lambda: places(machines, key) == ["n2"] and machines.desk.job(key).status.departed == {})
    assert counted(machines, key) == (0, 0, {})
    assert machines.bound == {"train-worker-0": ["n1", "n2"]}


def test_evicted_pod_is_made_elsewhere_and_nothing_is_counted(machines: Machines) -> None:
    key = run(machines, 2, restartScope="Task")
    machines.evict("train-worker-1")
    until(machines, lambda: len(machines.bound["train-worker-1"]) == 2 and len(places(machines, key)) == 2)
    assert counted(machines, key) == (0, 0, {})
    assert len(machines.bound["train-worker-0"]) == 1


def test_pods_stay_where_no_other_node_could_hold_the_job(machines: Machines) -> None:
    machines.change("n2", unschedulable=True)
    key = run(machines, 2)
    machines.change("n1", unschedulable=True)
    for _ in range(20):
        until(machines, lambda: True)
    assert places(machines, key) == ["n1", "n1"]
    machines.evict("train-worker-0")  # as `kubectl drain` does
    until(machines, lambda: len(places(machines, key)) < 2)
    assert counted(machines, key) == (0, 0, {})


def test_pod_that_is_bound_to_its_old_node_again_stays_there(machines: Machines) -> None:
    machines.careless = True
    key = run(machines, 1)
    machines.change("n1", unschedulable=True)
    until(machines, lambda: len(machines.bound["train-worker-0"]) == 2 and places(machines, key) == ["n1"])
    until(machines, lambda: machines.desk.job(key).status.departed == {})
    for _ in range(20):
        until(machines, lambda: True)
    assert machines.bound == {"train-worker-0": ["n1", "n1"]}


def test_elastic_job_shrinks_if_its_pods_find_no_room(machines: Machines) -> None:
    key = run(machines, 4, torchElasticPolicy=POLICY)
    assert places(machines, key) == ["n1", "n1", "n2", "n2"]
    machines.change("n2", taints=[SPOT])
    until(machines, lambda: machines.desk.phase(key) == "Running" and places(machines, key) == ["n1", "n1"])
    until(machines, lambda: machines.desk.job(key).status.departed != {})
    machines.desk.clock.step(POLICY["joinTimeoutSeconds"])
    until(machines, lambda: machines.desk.content.reservations[key].charge["cpu"] == 2000)
    job = machines.desk.job(key)
    assert job.admission is not None
    assert (job.admission.workers, counted(machines, key)) == (2, (0, 0, {}))
    assert job.status.scaling is not None
    assert (job.status.scaling.from_workers, job.status.scaling.to) == (2, 4)
