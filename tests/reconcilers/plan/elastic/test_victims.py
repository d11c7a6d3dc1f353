"""The workers that a job loses first, and the names that are refused."""

from dataclasses import replace
from typing import Any

import pytest

from reconcilers.plan.elastic.victims import Workers
from reconcilers.pods.grants import Grant
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import job, pod, task


def worker(index: int, phase: str = "Running", **fields: Any) -> PodView:
    return pod("Worker", index, phase, **({"node": "n1"} | fields))


def found(*pods: PodView, count: int = 7, mode: str = "Rendezvous", **fields: Any) -> Workers:
    """Return the workers of a job with a Master and a task Rendezvous."""
    others = {"Master": task(), "Rendezvous": task(auxiliary=True, critical=True)}
    tasks = others | {"Worker": task(count, dependsOn=[{"taskType": "Rendezvous"}], **fields)}
    status = sizes.granted("Running", count, count)
    described = job(tasks, status, torchElasticPolicy={"numMaxReplicas": 9, "mode": mode})
    assert described.admission is not None
    grant = Grant(described, described.admission)
    by_name = {each.name: each for each in pods}
    return Workers(job=grant.job, members=grant.members, pods=by_name, leaving_nodes=frozenset({"n9"}))


def test_workers_that_train_go_last_and_of_equals_the_last() -> None:
    pods = (
        worker(0),
        worker(1, node="n9"),
        worker(2, "Failed"),
        worker(3, "Succeeded"),
        worker(4, "Pending", node=""),
        worker(5),
    )
    order = [int(name.rpartition("-")[2]) for name in found(*pods).choose(9)]
    assert order == [6, 4, 2, 1, 5, 0, 3]
    assert found(*pods).choose(2) == ("digits-worker-6", "digits-worker-4")
    assert found(*pods).choose(0) == found(*pods).choose(-1) == ()


@pytest.mark.parametrize("leaving", [{"disruption": "DisruptionTarget"}, {"deleting": True}, {"node": "n9"}])
def test_worker_that_is_about_to_be_lost_goes_before_others(leaving: dict[str, Any]) -> None:
    assert found(worker(0), worker(1, **leaving), worker(2), count=3).choose(1) == ("digits-worker-1",)


def test_worker_that_does_not_run_goes_before_others_even_if_it_is_about_to_be_lost() -> None:
    pods = (worker(0), worker(1, "Pending"), worker(2, "Pending", deleting=True), worker(3, deleting=True))
    assert found(*pods, count=4).choose(2) == ("digits-worker-2", "digits-worker-1")


def test_spot_workers_go_before_others() -> None:
    pods = (worker(0), worker(1, node="n9"), worker(2))
    workers = found(*pods, count=3, spotTaskSpec={"numSpotTasks": 1})
    assert [workers.members[f"digits-worker-{index}"].spot for index in range(3)] == [False, False, True]
    assert workers.choose(2) == ("digits-worker-1", "digits-worker-2")
    first = workers.members["digits-worker-0"]
    members = {**workers.members, first.name: replace(first, spot=True)}
    assert replace(workers, members=members).choose(3)[1:] == ("digits-worker-2", "digits-worker-0")
    assert replace(workers, members={**members, "digits-worker-2": replace(first, index=2)}).choose(2)[1] == first.name


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["worker-1", "worker-2"], ""),
        (["worker-0"], ""),
        ([], "no pods are named"),
        (["worker-1", "worker-1"], "pods are named twice: digits-worker-1"),
        (["worker-9", "other"], "the job has no such pods: digits-worker-9, digits-other"),
        (["master-0"], "pod digits-master-0 cannot be removed: it belongs to the task Master; only workers can be"),
        (["rendezvous-0"], "pod digits-rendezvous-0 cannot be removed: it belongs to the task Rendezvous"),
    ],
)
def test_names_are_refused_with_the_reason(names: list[str], why: str) -> None:
    refusal = found(count=4).refusal([f"digits-{name}" for name in names])
    assert refusal.startswith(why) if why else not refusal


def test_lead_of_a_static_world_and_critical_workers_are_refused() -> None:
    def static(**fields: Any) -> Workers:
        tasks = {"Worker": task(3, **fields)}
        policy = {"mode": "InPlaceRestart"}
        described = job(tasks, sizes.granted("Running", 3, 3), torchElasticPolicy=policy)
        assert described.admission is not None
        grant = Grant(described, described.admission)
        return Workers(job=grant.job, members=grant.members, pods={})

    assert static().choose(3) == ("digits-worker-2", "digits-worker-1")
    assert "the other pods connect to it" in static().refusal(["digits-worker-0"])
    assert "the task Worker is critical" in static(critical=True).refusal(["digits-worker-1"])
    assert static(critical=True).choose(3) == ()
