"""A real kube-scheduler puts pods on the nodes that torchq names to it."""

from collections.abc import Iterator

import pytest

from crds.api_resources import NODES, PODS
from kube.api import Manifest
from kube.client import KubernetesCluster
from reconcilers.pods import node_affinity
from tests.support.coordinator import desk as desks
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.waiting import patient, until

GPU = "nvidia.com/gpu"
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
NODE_COUNT = 6


@pytest.fixture
def scheduling(server: Server, cluster: KubernetesCluster) -> Iterator[KubernetesCluster]:
    """Return a cluster of six nodes with eight GPUs each, whose labels do not repeat their names."""
    if server.embedded:
        pytest.skip("the embedded scheduler reads no preferences")
    names = [f"n{number}" for number in range(NODE_COUNT)]
    for name in names:
        metadata = {"name": name, "labels": {node_affinity.HOSTNAME: f"host-of-{name}"}}
        cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        status = {"conditions": [READY], "allocatable": ROOM, "capacity": ROOM}
        cluster.patch(NODES, name, {"status": status}, subresource="status")
        cluster.patch(NODES, name, {"spec": {"taints": None}})
    with servers.scheduler(server):
        yield cluster
    for name in names:
        desks.remove(cluster, NODES, name, "")


def pod(name: str, node: str) -> Manifest:
    resources = {"requests": {"cpu": "4", "memory": "16Gi", GPU: "1"}, "limits": {GPU: "1"}}
    spec = {"containers": [{"name": "torch", "image": "torch:1", "resources": resources}]}
    if node:
        node_affinity.prefer(spec, node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def bind(cluster: KubernetesCluster, namespace: str, nodes: list[str]) -> list[str]:
    """Create pods that prefer these nodes (empty: none), and return on which nodes they are bound."""
    for number, node in enumerate(nodes):
        cluster.create(PODS, pod(f"pod-{number:02}", node), namespace)

    def bound() -> list[str]:
        pods = sorted(cluster.list(PODS, namespace).items, key=lambda each: str(each["metadata"]["name"]))
        return [each["spec"].get("nodeName", "") for each in pods]

    found = until(bound, all, patient(60))
    for number in range(len(nodes)):
        desks.remove(cluster, PODS, f"pod-{number:02}", namespace)
    return found


def test_pods_fill_the_nodes_that_they_prefer(scheduling: KubernetesCluster, namespace: str) -> None:
    hinted = [f"n{number // 8}" for number in range(4 * 8)]
    spread = bind(scheduling, namespace, [""] * len(hinted))
    assert len(set(spread)) == NODE_COUNT
    assert bind(scheduling, namespace, hinted) == hinted
