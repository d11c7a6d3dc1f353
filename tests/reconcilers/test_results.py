"""The result of a job: rank 0 gives the result, and the status keeps it."""

from typing import Any

import pytest

from crds.api_resources import PODS
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task

MASTER, WORKER = "digits-master-0", "digits-worker-0"


def begin(bench: Bench, tasks: dict[str, Any] | None = None, **spec: Any) -> None:
    bench.submit(tasks, **{"successPolicy": "Master", **spec})
    bench.pick()
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()


def end(bench: Bench, name: str, said: str, code: int = 0) -> None:
    """Set the status of a pod that has ended, as its node does."""
    ended = {"exitCode": code, "reason": "", "message": said, "finishedAt": "2026-01-02T03:04:05Z"}
    container = {"name": "torch", "state": {"terminated": ended}, "image": "", "imageID": "", "ready": False}
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [container | {"restartCount": 0}]}
    bench.cluster.patch(PODS, name, {"status": status}, bench.namespace, subresource="status")


def result(accuracy: float) -> str:
    return f'{{"torchq-result": {{"accuracy": {accuracy}}}}}'


def test_result_of_rank_0_is_written_with_the_end_of_the_job_and_costs_one_read(bench: Bench) -> None:
    begin(bench)
    writes = bench.counting.calls["patch TorchJob"]
    end(bench, WORKER, result(0.1))
    end(bench, MASTER, result(0.9))
    bench.reconcile(times=2)
    assert (bench.job.status.phase, bench.job.status.result) == ("Succeeded", '{"accuracy":0.9}')
    assert bench.counting.calls["patch TorchJob"] == writes + 1
    assert bench.counting.calls["get Pod"] == 1
    bench.remove(MASTER)
    bench.reconcile()
    assert bench.job.status.result == '{"accuracy":0.9}'


def test_job_whose_pods_give_nothing_has_no_result_and_reads_nothing(bench: Bench) -> None:
    begin(bench)
    end(bench, WORKER, "done")
    end(bench, MASTER, "done")
    bench.reconcile()
    assert "result" not in bench.raw()["status"]
    assert bench.counting.calls["get Pod"] == 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        pytest.param({WORKER: 0.2}, 0.2, id="another pod than that of rank 0"),
        pytest.param({WORKER: 0.2, MASTER: 0.1}, 0.1, id="rank 0 before another"),
        pytest.param({"digits-worker-1": 0.3, WORKER: 0.2}, 0.2, id="the first of others"),
        pytest.param({"digits-evaluator-1": 0.4, MASTER: 0.1}, 0.4, id="a later stage before rank 0 of an earlier one"),
        pytest.param({"digits-evaluator-0": 0.5, "digits-evaluator-1": 0.4}, 0.5, id="the first of a later stage"),
    ],
)
def test_the_pod_that_says_that_it_has_rank_0_gives_the_result(
    bench: Bench, given: dict[str, float], kept: float
) -> None:
    evaluator = task(2, dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}])
    begin(bench, {"Master": task(), "Worker": task(2), "Evaluator": evaluator}, successPolicy="AllTasks")
    for names in ((MASTER, WORKER, "digits-worker-1"), ("digits-evaluator-0", "digits-evaluator-1")):
        bench.reconcile(times=2)
        bench.move("Running")
        for name in names:
            end(bench, name, result(given[name]) if name in given else "done")
        bench.reconcile(times=2)
    assert (bench.job.status.phase, bench.job.status.result) == ("Succeeded", f'{{"accuracy":{kept}}}')


def test_unreadable_result_does_not_keep_the_job_from_its_end(bench: Bench) -> None:
    begin(bench)
    end(bench, MASTER, '{"torchq-result": [}')
    bench.reconcile()
    assert bench.job.status.phase == "Succeeded"
    assert "result" not in bench.raw()["status"]


def test_rank_0_that_ended_before_the_others_keeps_its_result(bench: Bench) -> None:
    begin(bench, {"Worker": task(2)})
    end(bench, WORKER, result(0.9))
    bench.reconcile()
    assert bench.job.status.phase == "Running"
    end(bench, "digits-worker-1", "")
    bench.reconcile()
    assert (bench.job.status.phase, bench.job.status.result) == ("Succeeded", '{"accuracy":0.9}')


def test_result_of_the_last_run_counts(bench: Bench) -> None:
    begin(bench, {"Master": task(restartPolicy="OnFailure"), "Worker": task(dependsOn=[])})
    end(bench, MASTER, result(0.1), 1)
    bench.counting.log_end = lambda *_, **__: ""  # type: ignore[attr-defined]
    bench.reconcile()
    bench.remove(*bench.names())
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()
    assert bench.job.status.restart_count == 1
    end(bench, MASTER, result(0.9))
    bench.reconcile()
    assert (bench.job.status.phase, bench.job.status.result) == ("Succeeded", '{"accuracy":0.9}')


def test_failed_job_keeps_the_result_that_rank_0_gave(bench: Bench) -> None:
    begin(bench, {"Worker": task(2, restartPolicy="Never")})
    end(bench, WORKER, result(0.9))
    end(bench, "digits-worker-1", "ValueError: no data", 1)
    bench.reconcile()
    assert (bench.job.status.phase, bench.job.status.result) == ("Failed", '{"accuracy":0.9}')


@pytest.mark.parametrize(("code", "retries", "reason"), [(3, 6, "PodFailed"), (137, 0, "BackoffLimitExceeded")])
def test_job_that_failed_has_the_exit_code_of_the_pod_to_blame(
    bench: Bench, code: int, retries: int, reason: str
) -> None:
    begin(bench, {"Worker": task(2, restartPolicy="ExitCode")}, backoffLimit=retries)
    end(bench, "digits-worker-1", "no data", code)
    bench.reconcile()
    status = bench.raw()["status"]
    found = next(each for each in status["conditions"] if each["type"] == "Failed")
    assert (status["phase"], found["reason"], status["exitCode"]) == ("Failed", reason, code)


def test_result_is_absent_if_the_pod_of_rank_0_was_deleted_meanwhile(bench: Bench) -> None:
    begin(bench)
    end(bench, MASTER, result(0.9))
    bench.catch_up()
    bench.counting.before["get Pod"] = lambda: bench.remove(MASTER)
    bench.reconcile()
    assert bench.job.status.phase == "Succeeded"
    assert "result" not in bench.raw()["status"]


@pytest.mark.parametrize("giver", [0, 1])
def test_where_torchrun_chooses_the_ranks_the_pod_that_gives_a_result_counts(bench: Bench, giver: int) -> None:
    begin(bench, {"Worker": task(2)}, torchElasticPolicy={"numMinReplicas": 1, "numMaxReplicas": 2})
    for index in range(2):
        end(bench, f"digits-worker-{index}", result(0.9) if index == giver else "")
    bench.reconcile(times=2)
    assert (bench.job.status.phase, bench.job.status.result) == ("Succeeded", '{"accuracy":0.9}')
