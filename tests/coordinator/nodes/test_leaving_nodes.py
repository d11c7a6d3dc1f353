"""Nodes that are about to lose their pods, on an API server whose nodes, scheduler and kubelets the test plays.

On a real API server (KUBEBUILDER_ASSETS) Kubernetes itself makes the evictions and taints. Without KUBEBUILDER_ASSETS,
the tests on a real API server are skipped with a message.
"""

from typing import Any

import pytest

from crds.keys import JobKey
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk
from tests.support.coordinator.machines import Machines, places, until
from tests.support.kube.servers import Server

POLICY = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 4, "joinTimeoutSeconds": 60}
SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "1", "effect": "NoSchedule"}


@pytest.fixture
def machines(desk: Desk, server: Server, namespace: str) -> Machines:
    found = Machines(desk, server, namespace)
    for name in ("n1", "n2"):
        found.add(name)
    return found


def run(machines: Machines, workers: int, **spec: Any) -> JobKey:
    """Return a job whose workers all run. The phase of an elastic job may be Running before all workers run."""
    key = machines.desk.submit("train", machines.namespace, "a", tasks={"Worker": desks.task(workers)}, **spec)
    until(machines, lambda: machines.desk.phase(key) == "Running" and len(places(machines, key)) == workers)
    return key


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
