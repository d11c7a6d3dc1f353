"""Workers that idle growth added, and the node that they leave for a job that needs a whole one."""

import pytest

from crds.api_resources import PODS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube.servers import Server

POLICY = {"numMinReplicas": 1, "numMaxReplicas": 6, "autoscale": "Idle", "resizeEverySeconds": 1}
SPREAD = ["n1", "n1", "n2", "n2", "n3", "n3"]


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Machines:
    """Return three nodes of 2 CPUs."""
    found = Machines(desk, server, namespace)
    for name in ("n1", "n2", "n3"):
        found.add(name, {"node": name}, cpu="2")
    return found


def submit(machines: Machines, name: str, queue: str, cpu: int, node: str = "", **spec: object) -> JobKey:
    tasks = {"Worker": desks.task(1, str(cpu))}
    tasks["Worker"]["template"]["spec"]["nodeSelector"] = {"node": node} if node else {}
    return machines.desk.submit(name, machines.namespace, queue, tasks=tasks, **spec)


def grown(machines: Machines) -> JobKey:
    """Return a job that has grown to all nodes: its first worker and its rendezvous are on n1, two workers on n2, and
    the last two on n3."""
    key = submit(machines, "grown", "a", 1, torchElasticPolicy=POLICY)
    until(machines, lambda: len(places(machines, key)) == 1)

    def look() -> bool:
        machines.desk.clock.step(5)
        return places(machines, key) == SPREAD

    until(machines, look)
    return key


def workers(cluster: KubernetesCluster, key: JobKey) -> list[str]:
    pods = [each["metadata"] for each in cluster.list(PODS, key.namespace).items]
    return sorted(pod["name"] for pod in pods if pod["name"].startswith("grown-w") and "deletionTimestamp" not in pod)


def test_the_workers_on_the_node_that_the_job_needs_leave_and_no_others(machines: Machines) -> None:
    key = grown(machines)
    whole = submit(machines, "whole", "b", 2, node="n2")
    until(machines, lambda: places(machines, whole) == ["n2"])
    assert places(machines, key) == ["n1", "n1", "n3", "n3"]
    assert workers(machines.desk.cluster, key) == [f"grown-worker-{index}" for index in (0, 3, 4)]


def test_no_workers_leave_for_a_job_whose_node_they_cannot_free(machines: Machines) -> None:
    key = grown(machines)
    whole = submit(machines, "whole", "b", 2, node="n1")
    for _ in range(30):
        machines.desk.clock.step(1)
        until(machines, lambda: True)
    assert places(machines, key) == SPREAD, "the first worker does not leave"
    assert whole not in machines.desk.reserved()
