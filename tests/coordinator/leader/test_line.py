"""The life of a job in one process, from submission to end, on the embedded API server and on a real API server.

The test sets the phases of the pods, as a node does.
"""

from collections.abc import Iterator

import pytest

from coordinator.routing import eligibility
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from reconcilers.metrics import HELD_SECONDS
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.waiting import until

WRITES = ("create", "patch", "delete")


@pytest.fixture
def line(cluster: KubernetesCluster, clock: Clock) -> Iterator[Desk]:
    """Yield a desk on each kind of server."""
    with Desk(cluster, clock) as desk:
        yield desk


def test_a_job_that_succeeds_costs_three_status_writes(line: Desk, namespace: str) -> None:
    line.queue("a", quota={"jobs": 1})
    line.begin()
    key = line.submit("train", namespace, "a")
    line.until(lambda: len(line.pods_of(key)) == 2)
    assert line.phase(key) == "Admitted"
    line.move(key, "Running")
    line.until(lambda: line.phase(key) == "Running")
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded" and not line.reserved())
    job = line.job(key)
    assert (job.status.tenant_queue, job.admission.queue, job.status.completion_time is not None) == ("a", "a", True)
    calls = line.working.calls
    assert calls["patch TorchJob"] == 3  # Admitted, Running, Succeeded
    assert calls["create Pod"] == 2
    assert {name: count for name, count in calls.items() if name.startswith("list")} == {}
    assert calls["pages Pod"] == 1
    assert all(line.watching.calls[f"pages {kind}"] == 1 for kind in ("TorchJob", "Pod", "TenantQueue"))
    assert not [name for name in line.watching.calls if name.startswith((*WRITES, "list", "get"))]


def test_the_leader_measures_once_how_long_a_job_holds_room_after_its_end(line: Desk, namespace: str) -> None:
    line.queue("a")
    line.begin()
    gone, ended = (line.submit(name, namespace, "a", tasks={"Master": desks.task()}) for name in ("gone", "ended"))
    line.until(lambda: line.pods_of(gone) and line.pods_of(ended))
    line.move(ended, "Succeeded")
    line.cluster.delete(TORCHJOBS, gone.name, namespace)
    line.until(lambda: line.phase(ended) == "Succeeded" and not line.reserved())
    assert line.meter.observed[HELD_SECONDS.name, "reconcile"] == 1
    assert line.meter.observed[HELD_SECONDS.name, "release"] == 1


def test_a_job_that_waits_and_succeeds_costs_four_status_writes(line: Desk, namespace: str, clock: Clock) -> None:
    line.queue("a", stopPolicy="Hold")
    line.begin()
    key = line.submit("train", namespace, "a")
    line.until(lambda: line.waiting() == {key})
    clock.step(line.settings.queued_after)
    line.until(lambda: line.phase(key) == "Queued")
    line.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})
    line.until(lambda: len(line.pods_of(key)) == 2)
    line.move(key, "Running")
    line.until(lambda: line.phase(key) == "Running")
    line.move(key, "Succeeded")
    line.until(lambda: line.phase(key) == "Succeeded" and not line.reserved())
    assert line.working.calls["patch TorchJob"] == 4


def test_jobs_of_two_queues_share_a_pool_by_weight(cluster: KubernetesCluster, namespace: str, clock: Clock) -> None:
    with Desk(cluster, clock, pool="cpu=2") as line:
        line.queue("heavy", weight=2, stopPolicy="Hold")
        line.queue("light", stopPolicy="Hold")
        line.begin()
        keys = [line.submit(f"{name}-{index}", namespace, name) for index in range(3) for name in ("heavy", "light")]
        line.until(lambda: line.waiting() == set(keys))
        for name in ("heavy", "light"):
            line.cluster.patch(TENANT_QUEUES, name, {"spec": {"stopPolicy": "None"}})
        until(lambda: all(queue.spec.is_open for queue in line.watches.queues.values()))
        order: list[str] = []
        for _ in keys:
            line.until(lambda: len(line.reserved()) == 1)
            (key,) = line.reserved()
            order.append(key.name.partition("-")[0])
            line.until(lambda key=key: len(line.pods_of(key)) == 2)
            line.move(key, "Succeeded")
            line.until(lambda key=key: line.phase(key) == "Succeeded" and key not in line.reserved())
        assert order == ["heavy", "light", "heavy", "heavy", "light", "light"]


def test_a_failed_job_gives_a_reason_and_frees_its_room(line: Desk, namespace: str) -> None:
    line.queue("a")
    line.begin()
    key = line.submit("train", namespace, "a", backoffLimit=0)
    line.until(lambda: len(line.pods_of(key)) == 2)
    line.move(key, "Failed")
    line.until(lambda: line.phase(key) == "Failed" and not line.reserved())
    assert any(each.type == "Failed" and each.message for each in line.job(key).status.conditions)


def test_a_job_with_a_dependency_cycle_fails_with_a_reason(line: Desk, namespace: str) -> None:
    line.queue("a")
    line.begin()
    tasks = {
        "A": {**desks.task(), "dependsOn": [{"taskType": "B", "phase": "Succeeded"}]},
        "B": {**desks.task(), "dependsOn": [{"taskType": "A", "phase": "Succeeded"}]},
    }
    made = line.cluster.create(desks.TORCHJOBS, desks.manifest("loop", "a", tasks=tasks), namespace)
    line.until(lambda: status(line, namespace).get("phase") == "Failed")
    (reason,) = [each for each in status(line, namespace)["conditions"] if each["status"] == "True"]
    assert "dependency cycle A -> B -> A" in reason["message"]
    assert made["metadata"]["uid"] not in {key.uid for key in line.reserved() | line.waiting()}


def status(line: Desk, namespace: str) -> dict[str, object]:
    return line.cluster.get(desks.TORCHJOBS, "loop", namespace).get("status") or {}


def test_only_a_job_on_the_host_network_gets_a_port(cluster: KubernetesCluster, clock: Clock, namespace: str) -> None:
    with Desk(cluster, clock, master_address="service") as line:
        line.queue("a")
        line.begin()
        host = desks.task()
        host["template"]["spec"]["hostNetwork"] = True
        there = line.submit("there", namespace, "a", tasks={"Master": host, "Worker": desks.task() | {"dependsOn": []}})
        here = line.submit("here", namespace, "a")
        line.until(lambda: all(len(line.pods_of(each)) == 2 for each in (there, here)))
        held, none = (line.job(each).status.admission for each in (there, here))
        assert held is not None
        assert none is not None
        assert (held.port, none.port) == (20_000, 0)
        (container,) = line.cluster.get(PODS, "there-master-0", namespace)["spec"]["containers"]
        assert [each["hostPort"] for each in container["ports"]] == [20_000]
        worker = line.cluster.get(PODS, "there-worker-0", namespace)["spec"]["containers"][0]
        assert {each["name"]: each.get("value") for each in worker["env"]}["MASTER_PORT"] == "20000"


def test_jobs_that_chose_one_port_go_one_after_the_other(
    cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    task = desks.task()
    task["template"]["spec"]["containers"][0]["env"] = [{"name": "MASTER_PORT", "value": "29500"}]
    with Desk(cluster, clock, master_address="loopback") as line:
        line.queue("a")
        line.queue("held", stopPolicy="Hold")
        line.begin()
        hold = line.submit("hold", namespace, "held", tasks={"Master": task})
        keys = [line.submit(name, namespace, "a", tasks={"Master": task}) for name in ("one", "two", "three")]
        one, two, three = sorted(keys, key=lambda key: line.job(key).sequence)

        def has_port(key: JobKey) -> bool:
            held = line.reserved()
            assert len(held) <= 1
            return held == {key} and bool(line.pods_of(key))

        line.until(lambda: has_port(one))
        taken = f"port 29500 is taken by job {namespace}/"
        line.until(lambda: {said(line, key) for key in (hold, two, three)} == {f"{taken}{one.name}"})
        line.change(one, suspend=True)
        line.until(lambda: has_port(two))
        line.until(lambda: said(line, three) == f"{taken}{two.name}")
        line.see()
        line.cluster.delete(desks.TORCHJOBS, two.name, namespace)
        line.until(lambda: has_port(three))
        line.move(three, "Succeeded")
        line.until(lambda: line.waiting() == {hold})
        line.change(one, suspend=False)
        line.until(lambda: has_port(one))


def said(line: Desk, key: JobKey) -> str:
    """Return why a job is out of the order of its queue."""
    job = line.watches.job(key)
    return eligibility.of(job, line.watches.rules(), 0.0).sentence if job is not None else ""
