"""Jobs on nodes that are half full, and the drain of a node, where a real scheduler binds the pods.

The nodes and their kubelets are played. On a real API server (KUBEBUILDER_ASSETS), with a real kube-scheduler and with
a real Volcano.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from crds.api_resources import PODS, TENANT_QUEUES
from crds.keys import JobKey
from crds.schema.definitions import definition
from embedded import volcano_crds
from kube.client import KubernetesCluster
from tests.reconcilers.pods.test_kube_scheduler import HYPER_NODES
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube import servers
from tests.support.kube.servers import Server

GPU = "nvidia.com/gpu"
ROOM = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
SMALL = ((1, 4), (2, 2), (4, 1), (1, 1), (2, 4), (3, 1))
"""The pods of the jobs that half-full nodes hold, and the GPUs of each pod."""
Start = Callable[[Server], AbstractContextManager[None]]


@pytest.fixture(params=["kube-scheduler", "volcano"])
def desk_settings(request: pytest.FixtureRequest, server: Server, cluster: KubernetesCluster) -> dict[str, Any]:
    if server.embedded:
        pytest.skip("the embedded scheduler is played by other tests")
    if request.param == "kube-scheduler":
        return {"gang_scheduler": "none"}
    volcano_crds.install(cluster)
    volcano_crds.define(cluster, definition(HYPER_NODES, [], {"type": "object"}, [], {}))
    return {"gang_scheduler": "volcano"}


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Iterator[Machines]:
    start: Start = servers.volcano if desk.settings.gang_scheduler == "volcano" else servers.scheduler
    with start(server):
        yield Machines(desk, server, namespace, binds=False)


def add_nodes(machines: Machines, count: int) -> list[str]:
    """Add nodes with eight GPUs each, and return their names."""
    names = [f"n{number:02}" for number in range(count)]
    for name in names:
        machines.add(name, **ROOM)
        machines.change(name, taints=None)
    return names


def submit(machines: Machines, name: str, queue: str, pods: int, gpus: int, **spec: Any) -> JobKey:
    task = desks.task(pods)
    amounts = {GPU: str(gpus)}
    task["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", **amounts}, "limits": amounts}
    return machines.desk.submit(name, machines.namespace, queue, tasks={"Worker": task}, **spec)


def occupy(machines: Machines, node: str, gpus: int) -> None:
    """Put a foreign pod on a node."""
    resources = {"limits": {GPU: str(gpus)}}
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "main:1", "resources": resources}]}
    metadata = {"name": f"on-{node}", "labels": {"app": "other"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    machines.desk.cluster.create(PODS, body, machines.namespace)


def play(machines: Machines, nodes: int, small: int, large: int) -> tuple[float, int]:
    """Submit jobs of one pod with eight GPUs among smaller ones, on nodes that have four free, and let jobs succeed as
    soon as all of their pods run. Return the largest part of all GPUs that the large jobs held at any look, and how
    many of the others ended."""
    for node in add_nodes(machines, nodes):
        occupy(machines, node, 4)
    machines.desk.see()
    every = max(1, small // large)
    waiting, giants = dict[JobKey, int](), list[JobKey]()
    for number in range(small):
        if number % every == 0 and len(giants) < large:
            giants.append(submit(machines, f"large-{number}", "a", 1, 8))
        pods, gpus = SMALL[number % len(SMALL)]
        waiting[submit(machines, f"small-{number}", "ab"[number % 2], pods, gpus)] = pods
    most, ended = 0.0, 0

    def look() -> bool:
        nonlocal most, ended
        held = machines.desk.reserved()
        most = max(most, 8 * len(held.intersection(giants)) / (8 * nodes))
        for key in [key for key, pods in waiting.items() if key in held and len(places(machines, key)) == pods]:
            machines.desk.move(key, "Succeeded")
            del waiting[key]
            ended += 1
        return not waiting

    until(machines, look)
    return most, ended


def test_jobs_that_no_half_full_node_holds_hold_nothing_while_others_run(machines: Machines) -> None:
    """By the sum of what is free, such jobs were admitted: on 50 nodes, 6 of 120 jobs held 24 % of all GPUs."""
    assert play(machines, nodes=5, small=11, large=2) == (0.0, 11)


def test_gangs_of_a_drained_node_are_bound_elsewhere_and_nothing_is_counted(machines: Machines) -> None:
    add_nodes(machines, 2)
    gang, stays = submit(machines, "gang", "a", 2, 2), submit(machines, "stays", "b", 1, 2, evictions="Refuse")
    until(machines, lambda: len(places(machines, gang)) == 2 and len(places(machines, stays)) == 1)
    (drained,) = places(machines, stays)
    machines.change(drained, unschedulable=True)
    until(machines, lambda: drained not in places(machines, gang) and len(places(machines, gang)) == 2)
    status = machines.desk.job(gang).status
    assert (status.restart_count, status.disruptions, dict(status.node_failures)) == (0, 0, {})
    assert places(machines, stays) == [drained]
    more = submit(machines, "more", "b", 1, 4)  # beside the gang on the open node, whatever the other one holds
    until(machines, lambda: len(places(machines, more)) == 1)
    assert drained not in places(machines, more)


def test_a_drained_queue_gives_its_room_to_others_and_runs_again(machines: Machines) -> None:
    add_nodes(machines, 1)
    drained = submit(machines, "drained", "a", 2, 4)
    until(machines, lambda: len(places(machines, drained)) == 2)
    other = submit(machines, "other", "b", 2, 4)
    machines.desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "HoldAndDrain"}})
    until(machines, lambda: len(places(machines, other)) == 2)
    machines.desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})
    machines.desk.move(other, "Succeeded")
    until(machines, lambda: len(places(machines, drained)) == 2)
