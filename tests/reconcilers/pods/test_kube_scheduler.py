"""A real kube-scheduler, and a real Volcano, put pods on the nodes that torchq names to them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import eq

import pytest

from crds.api_resources import NODES, POD_GROUPS, PODS, Resource
from crds.schema.definitions import definition
from crds.torchjob import demand as demands
from embedded import volcano_crds
from gang.values import Gang as BoundTogether
from gang.volcano import Volcano
from kube.api import Manifest
from kube.client import KubernetesCluster
from queues.placement import pod_nodes
from queues.placement.gangs import EVERY, Gang, Members, Shape
from queues.placement.node_room import NodeRoom
from queues.placement.places import Places
from queues.placement.typical_pods import typical_of
from reconcilers.pods import node_affinity
from tests.support.coordinator import desk as desks
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.waiting import patient, until

GPU = "nvidia.com/gpu"
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
NODE_COUNT = 6
HYPER_NODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
"""Volcano's scheduler waits until this kind is served."""


@dataclass(frozen=True)
class Scheduling:
    """A cluster with a scheduler."""

    cluster: KubernetesCluster
    gang_scheduler: Volcano | None


@pytest.fixture(params=["kube-scheduler", "volcano"])
def scheduling(request: pytest.FixtureRequest, server: Server, cluster: KubernetesCluster) -> Iterator[Scheduling]:
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
    if request.param == "volcano":
        volcano_crds.install(cluster)
        volcano_crds.define(cluster, definition(HYPER_NODES, [], {"type": "object"}, [], {}))
        with servers.volcano(server):
            yield Scheduling(cluster, Volcano())
    else:
        with servers.scheduler(server):
            yield Scheduling(cluster, None)
    for name in names:
        desks.remove(cluster, NODES, name, "")


def pod(name: str, node: str, cpu: int = 4, gpus: int = 1) -> Manifest:
    resources = {"requests": {"cpu": str(cpu), "memory": "16Gi", GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"containers": [{"name": "torch", "image": "torch:1", "resources": resources}]}
    if node:
        node_affinity.prefer(spec, node)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def bind(scheduling: Scheduling, namespace: str, nodes: list[str], sizes: list[tuple[int, int]]) -> list[str]:
    """Create pods of some CPUs and GPUs that prefer these nodes (empty: none), as one gang where the scheduler binds
    gangs. Return on which nodes they are bound."""
    cluster, gang_scheduler = scheduling.cluster, scheduling.gang_scheduler
    tasks = [f"cpu{cpu}-gpu{gpus}" for cpu, gpus in sizes]  # what fits no pod of a task, Volcano remembers for the task
    gang = BoundTogether(
        name="gang", namespace=namespace, owner={}, labels={}, minimum=Counter(tasks), total=len(nodes), resources={}
    )
    if gang_scheduler:
        group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": {"name": gang.name}}
        cluster.create(POD_GROUPS, {**group, "spec": gang_scheduler.size(gang)}, namespace)
    for number, (node, size) in enumerate(zip(nodes, sizes, strict=True)):
        made = pod(f"pod-{number:02}", node, *size)
        if gang_scheduler:
            binding = gang_scheduler.bind(gang, tasks[number])
            made["metadata"]["annotations"] = dict(binding.annotations)
            made["spec"] |= binding.spec
        cluster.create(PODS, made, namespace)

    def bound() -> list[str]:
        pods = sorted(cluster.list(PODS, namespace).items, key=lambda each: str(each["metadata"]["name"]))
        return [each["spec"].get("nodeName", "") for each in pods]

    found = until(bound, all, patient(60))
    for number in range(len(nodes)):
        desks.remove(cluster, PODS, f"pod-{number:02}", namespace)
    if gang_scheduler:
        desks.remove(cluster, POD_GROUPS, gang.name, namespace)
    return found


def test_pods_fill_the_nodes_that_they_prefer(scheduling: Scheduling, namespace: str) -> None:
    hinted, sizes = [f"n{number // 8}" for number in range(4 * 8)], [(4, 1)] * 32
    spread = bind(scheduling, namespace, [""] * len(hinted), sizes)
    assert len(set(spread)) == NODE_COUNT
    assert bind(scheduling, namespace, hinted, sizes) == hinted


def test_pods_of_jobs_of_mixed_sizes_land_where_they_were_placed(scheduling: Scheduling, namespace: str) -> None:
    jobs = [[(8, 1)] * 5, [(4, 4), (2, 1), (2, 1)], [(30, 2)], [(64, 8)], [(8, 1)] * 4, [(8, 4)], [(3, 2)] * 3]
    typical = typical_of(Counter(demand(*size) for job in jobs for size in job))
    places = Places(room(), room(), lambda *_: None)
    places.set_typical(typical)
    places.names_nodes = True
    placed = list[str]()
    for number, job in enumerate(jobs):
        kinds = Counter(job)
        gang = Gang(tuple(Members(Shape(demand(*size)), count) for size, count in kinds.items()))
        nodes = pod_nodes.read(places.take(f"job-{number}", gang))
        placed += [nodes[kind][each] for kind, count in enumerate(kinds.values()) for each in range(count)]
    assert len(set(placed)) < NODE_COUNT
    landed = bind(scheduling, namespace, placed, [size for job in jobs for size in job])
    assert sum(map(eq, landed, placed)) >= 0.95 * len(placed)


def demand(cpu: int, gpus: int) -> tuple[tuple[str, int], ...]:
    """Return what a pod asks for."""
    return tuple(sorted(demands.pod_demand(pod("pod", "", cpu, gpus)["spec"]).items()))


def room() -> NodeRoom:
    """Return the nodes, empty."""
    found = NodeRoom(lambda _: EVERY)
    for number in range(NODE_COUNT):
        found.set_capacity(found.index(f"n{number}"), demands.read_resources(ROOM))
    return found
