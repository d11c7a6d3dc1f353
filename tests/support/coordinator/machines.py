"""Nodes, a scheduler and kubelets that a test plays, beside a desk."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from crds import labels
from crds.api_resources import NODES, PODS
from crds.keys import JobKey
from crds.node_requirements import PlaceCondition, place_condition
from crds.resources import amounts
from crds.torchjob import demand
from kube.api import Manifest
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk
from tests.support.kube.servers import Server

READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
ROOM = {"cpu": "2", "memory": "4Gi", "pods": "10"}


@dataclass
class Machines:
    """Nodes of two CPUs each, or of others, with their scheduler and their kubelets."""

    desk: Desk
    server: Server
    namespace: str
    careless: bool = False
    """Whether pods are bound to the first node with room, whatever state the node reports."""
    binds: bool = True
    """Whether the test plays the scheduler; if not, a real one binds pods."""
    bound: dict[str, list[str]] = field(default_factory=dict)
    """The nodes to which the pods of each name were bound, in this order."""

    def add(self, name: str, marks: Mapping[str, str] | None = None, **room: str) -> None:
        """Create a node with room for two pods or with other room, and with some labels."""
        metadata = {"name": name, "labels": dict(marks or {})}
        self.desk.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        status = {"conditions": [READY], "allocatable": {**ROOM, **room}, "capacity": {**ROOM, **room}}
        self.desk.cluster.patch(NODES, name, {"status": status}, subresource="status")
        self.desk.see()

    def change(self, name: str, **spec: Any) -> None:
        self.desk.cluster.patch(NODES, name, {"spec": spec})

    def work(self) -> None:
        """Bind the waiting pods, let bound pods run, and remove the pods that are being deleted."""
        pods = self.desk.cluster.list(PODS, self.namespace).items
        for pod in pods:
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if "deletionTimestamp" in pod["metadata"]:
                desks.remove(self.desk.cluster, PODS, name, self.namespace)
            elif not node:
                if self.binds:
                    self._bind(pod, pods)
            elif pod["status"].get("phase") not in ("Running", "Succeeded", "Failed"):
                self.desk.cluster.patch(PODS, name, {"status": self._status(pod)}, self.namespace, subresource="status")

    def _status(self, pod: Manifest) -> Manifest:
        is_shut = "initContainers" in pod["spec"] and labels.START not in pod["metadata"]["annotations"]
        gate = {"name": "torchq-start", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        return {"initContainerStatuses": [gate]} if is_shut else {"phase": "Running"}

    def _bind(self, pod: Manifest, pods: list[Manifest]) -> None:
        for node in sorted(self.desk.cluster.list(NODES).items, key=lambda each: each["metadata"]["name"]):
            spec, name = node["spec"], node["metadata"]["name"]
            taints = [each for each in spec.get("taints") or () if not each["key"].startswith("node.kubernetes.io/")]
            on_node = [demand.pod_demand(each["spec"]) for each in pods if each["spec"].get("nodeName") == name]
            used, room = reduce(amounts.add, on_node, {}), demand.read_resources(node["status"]["allocatable"])
            is_shut = bool(spec.get("unschedulable") or taints) and not self.careless
            condition = PlaceCondition.parse(place_condition(pod["spec"]))
            is_shut = is_shut or not condition.allows(name, node["metadata"].get("labels") or {}, ())
            if is_shut or not amounts.fits(demand.pod_demand(pod["spec"]), used, room | {amounts.OTHERS: 0}):
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


def until(machines: Machines, condition: Callable[[], object]) -> None:
    def look() -> object:
        machines.desk.clock.step(0.05)
        machines.work()
        return condition()

    machines.desk.until(look)


def places(machines: Machines, key: JobKey) -> list[str]:
    """Return the nodes of the running pods of a job, by the names of the pods."""
    pods = {each["metadata"]["name"]: each for each in machines.desk.cluster.list(PODS, key.namespace).items}
    return [
        each["spec"].get("nodeName", "")
        for name, each in sorted(pods.items())
        if "deletionTimestamp" not in each["metadata"] and each["status"].get("phase") == "Running"
        if each["metadata"]["labels"].get(labels.JOB_UID) == key.uid
    ]
