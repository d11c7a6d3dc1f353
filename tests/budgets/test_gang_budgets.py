"""The requests that a gang costs beside the requests for its pods. The numbers of requests agree with
docs/budgets.md.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from crds.api_resources import EVENTS, GANG_QUEUES, POD_GROUPS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import Clock, task
from tests.support.metered import Metered
from tests.support.waiting import until

STATUS = "PATCH torchjobs/status"


@pytest.fixture
def volcano(cluster: KubernetesCluster) -> Iterator[None]:
    """Install Volcano's kinds. The test plays the scheduler."""
    kinds.install_gangs(cluster)
    yield
    kinds.uninstall(cluster, POD_GROUPS, GANG_QUEUES)


@pytest.fixture
def gangs(volcano: None, cluster: KubernetesCluster, clock: Clock) -> Iterator[Metered]:
    """Yield a leader with a queue. Volcano's kinds are installed, so Volcano schedules the gangs."""
    with Metered(cluster, clock, gang_scheduler="auto") as line:
        line.queue("a")
        line.begin()
        yield line


def groups(line: Metered, key: JobKey) -> list[str]:
    return [each["metadata"]["name"] for each in line.cluster.list(POD_GROUPS, key.namespace).items]


def let_in(line: Metered, key: JobKey, phase: str = "Inqueue") -> None:
    """Set the phase of the job's pod groups, as Volcano does."""
    for name in groups(line, key):
        line.cluster.patch(POD_GROUPS, name, {"status": {"phase": phase}}, key.namespace)


def until_it_runs(line: Metered, key: JobKey, pods: int) -> None:
    line.until(lambda: groups(line, key))
    let_in(line, key)
    line.until(lambda: len(line.pods_of(key)) == pods)
    line.move(key, "Running")
    line.until(lambda: line.phase(key) == "Running")
    line.settle()


def test_a_gang_costs_two_writes_in_addition_to_its_pods(gangs: Metered, namespace: str) -> None:
    line = gangs
    line.settle()
    line.note()
    key = line.submit("gang", namespace, "a")
    until_it_runs(line, key, 2)
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded" and not line.reserved() and not groups(line, key))
    line.settle()
    assert line.coordinator == {}
    asked = dict(line.worker)
    assert asked.pop("GET queues", 0) <= 2  # while the group waits, the queue is read to see whether it is open
    assert asked.pop("LIST podgroups", 0) <= 2  # at the end of the job, the cache may not show all its groups yet
    assert 1 <= asked.pop("DELETE podgroups") <= 2  # a stale cache may show the group once more after its deletion
    assert asked == {
        "GET torchjobs": line.reconciles,
        STATUS: 3,  # Admitted, Running, Succeeded
        "CREATE podgroups": 1,
        "CREATE pods": 2,
    }
    assert line.reconciles <= 10


def test_an_admitted_pod_group_is_noticed_without_polling(gangs: Metered, namespace: str) -> None:
    line = gangs
    key = line.submit("patient", namespace, "a")
    line.until(lambda: groups(line, key))
    line.settle()
    line.settling.step(10.0)
    line.settle()
    line.note()
    assert line.pods_of(key) == []
    let_in(line, key)
    line.until(lambda: len(line.pods_of(key)) == 2)
    assert line.worker["CREATE pods"] == 2
    assert line.reconciles <= 2


def test_a_start_gate_costs_one_write_for_each_gated_pod(gangs: Metered, namespace: str) -> None:
    line = gangs
    line.settle()
    line.note()
    workers = task(3) | {"dependsOn": [{"taskType": "Master", "phase": "Running"}]}
    key = line.submit("gated", namespace, "a", tasks={"Master": task(), "Worker": workers})
    until_it_runs(line, key, 4)
    assert line.worker["PATCH pods"] == 3
    assert line.worker["CREATE pods"] == 4


def test_a_running_gang_without_changes_costs_no_request(gangs: Metered, namespace: str) -> None:
    line = gangs
    key = line.submit("resting", namespace, "a")
    until_it_runs(line, key, 2)

    def requests_of_a_round() -> tuple[Counter[str], Counter[str]]:
        line.note()
        for number in range(100):  # Volcano updates counters in the status about once a second
            line.cluster.patch(POD_GROUPS, groups(line, key)[0], {"status": {"running": number}}, namespace)
        line.settling.step(10.0)
        line.settle()
        return line.coordinator, line.worker

    # A slow server may send the last event of the start in the first round.
    requests_of_a_round()
    assert requests_of_a_round() == ({}, {})
    line.term.resync()
    line.settle()
    assert line.worker == {"GET torchjobs": 1}


def test_a_job_without_problems_leaves_no_event(gangs: Metered, namespace: str) -> None:
    line = gangs
    key = line.submit("quiet", namespace, "a")
    until_it_runs(line, key, 2)
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded")
    assert [
        each for each in line.cluster.list(EVENTS, namespace).items if each["involvedObject"]["uid"] == key.uid
    ] == []


def test_watches_of_foreign_kinds_are_resumed_without_a_list(gangs: Metered) -> None:
    line = gangs
    line.settle()
    line.note()
    for informer in (*line.watches.foreign.informers, *line.caches.groups.informers):
        until(lambda informer=informer: informer._reflector._watch is not None)  # type: ignore[misc]
        informer._reflector._watch.close()  # type: ignore[union-attr]
    until(lambda: sum((line.coordinator + line.worker).values()) >= 2)
    assert (line.coordinator, line.worker) == ({"WATCH podgroups": 1}, {"WATCH podgroups": 1})
