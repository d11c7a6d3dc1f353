"""Ranks by the labels of nodes, on an API server. The test plays the nodes, the scheduler and the kubelets."""

from collections.abc import Iterator
from typing import Any

import pytest

from crds import labels
from crds.api_resources import NODES, PODS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube.servers import Server

RACKS = {"n1": "b", "n2": "a", "n3": "b"}


@pytest.fixture
def machines(cluster: KubernetesCluster, server: Server, namespace: str) -> Iterator[Machines]:
    with Desk(cluster, Clock(), pool="nodes", topology_labels="example.org/rack") as desk:
        desk.queue("a")
        desk.begin()
        found = Machines(desk, server, namespace)
        for name, rack in RACKS.items():
            found.add(name, {"example.org/rack": rack})
        yield found
    desks.clear(cluster)
    for node in cluster.list(NODES).items:
        desks.remove(cluster, NODES, node["metadata"]["name"], "")


def found_ranks(machines: Machines, key: JobKey) -> dict[str, str]:
    pods = machines.desk.cluster.list(PODS, key.namespace).items
    return {each["metadata"]["name"]: each["metadata"]["annotations"].get(labels.RANK, "") for each in pods}


def check_hosts(machines: Machines, key: JobKey) -> None:
    """Check that each pod has the list of all pods in the order of ranks."""
    pods = machines.desk.cluster.list(PODS, key.namespace).items
    ranks = sorted(found_ranks(machines, key).items(), key=lambda entry: int(entry[1]))
    content = "".join(f"{name} slots=1\n" for name, _ in ranks)
    assert {each["metadata"]["annotations"].get(labels.HOSTS) for each in pods} == {content}


def run(machines: Machines, tasks: dict[str, Any], **spec: Any) -> JobKey:
    key = machines.desk.submit("train", machines.namespace, "a", tasks=tasks, **spec)
    until(machines, lambda: machines.desk.phase(key) == "Running")
    return key


def test_pods_of_one_rack_have_ranks_in_a_row(machines: Machines) -> None:
    # Master and worker 0 are on n1 and worker 3 and 4 on n3, in one rack; worker 1 and 2 are on n2.
    key = run(machines, {"Master": desks.task(), "Worker": desks.task(5)})
    assert places(machines, key) == ["n1", "n1", "n2", "n2", "n3", "n3"]
    names = [name for name, _ in sorted(found_ranks(machines, key).items(), key=lambda entry: int(entry[1]))]
    assert [name.removeprefix("train-") for name in names] == [
        "master-0", "worker-0", "worker-3", "worker-4", "worker-1", "worker-2",
    ]  # fmt: skip
    master = machines.desk.cluster.get(PODS, "train-master-0", key.namespace)
    assert master["metadata"]["annotations"][labels.TOPOLOGY] == "example.org/rack=b"
    env = {each["name"]: each for each in master["spec"]["containers"][0]["env"]}
    assert env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"] == f"metadata.annotations['{labels.RANK}']"
    assert env["WORLD_SIZE"]["value"] == "6"
    check_hosts(machines, key)


def test_ranks_are_given_anew_after_a_restart(machines: Machines) -> None:
    key = run(machines, {"Worker": desks.task(4) | {"restartPolicy": "OnFailure"}})
    assert places(machines, key) == ["n1", "n1", "n2", "n2"]
    machines.change("n1", unschedulable=True)  # both pods there move to n3
    until(machines, lambda: places(machines, key).count("n1") == 0 and machines.desk.phase(key) == "Running")
    until(machines, lambda: len(places(machines, key)) == 4)
    where = dict(zip(sorted(found_ranks(machines, key)), places(machines, key), strict=True))
    by_rank = sorted(found_ranks(machines, key).items(), key=lambda entry: int(entry[1]))
    racks = [RACKS[where[name]] for name, _ in by_rank]
    assert racks in (["b", "b", "a", "a"], ["a", "a", "b", "b"])
    assert by_rank[0] == ("train-worker-0", "0")
    check_hosts(machines, key)
