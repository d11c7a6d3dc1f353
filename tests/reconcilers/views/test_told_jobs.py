"""Reconciles of jobs of which the leader told: no read of the job, and nothing follows from what is outdated."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from crds.api_resources import TORCHJOBS
from kube import errors
from queues.tasks import Task
from reconcilers.views import job_brief
from tests.support.reconcilers.bench import Bench


def told(bench: Bench, failures: int = 0) -> Task:
    """Return the task of the picked job, with its brief of now."""
    known = Task(
        key=bench.key,
        token="t",
        tenant="team",
        seen=0,
        failures=failures,
        reservation=bench.reservation,
        brief=job_brief.write(bench.raw()),
    )
    bench.counting.calls.clear()
    return known


def know_spec(bench: Bench) -> None:
    """Let the reconciler read the job once, as it does when the status of the first of many jobs is written."""
    bench.submit()
    bench.reconcile()
    assert bench.job.status.phase == "Queued"


def run(bench: Bench, task: Task) -> float | None:
    bench.catch_up()
    bench.counting.calls.clear()
    return bench.reconciler(task, lambda: True)


def test_a_job_of_which_the_leader_told_is_admitted_without_a_read(bench: Bench) -> None:
    know_spec(bench)
    bench.pick()
    assert run(bench, told(bench)) is None
    assert bench.job.status.phase == "Admitted"
    assert len(bench.names()) == 3
    assert bench.counting.calls["get TorchJob"] == 0


def suspend(bench: Bench) -> None:
    bench.change(suspend=True)


def make_anew(bench: Bench) -> None:
    old = bench.key
    bench.cluster.delete(TORCHJOBS, "digits", bench.namespace)
    bench.submit()
    bench.key = old


@pytest.mark.parametrize("change", [suspend, make_anew])
def test_a_job_that_changed_since_is_not_admitted_but_read(bench: Bench, change: Callable[[Bench], None]) -> None:
    know_spec(bench)
    bench.pick()
    task = told(bench)
    change(bench)
    assert run(bench, task) == 0.0
    assert (bench.names(), bench.job.admission) == ([], None)
    assert run(bench, replace(task, brief=b"")) is None
    assert (bench.names(), bench.job.admission) == ([], None)


def test_a_run_that_would_do_nothing_reads_the_job(bench: Bench) -> None:
    know_spec(bench)
    task = told(bench)  # it waits, and that is written
    suspend(bench)
    assert run(bench, task) is None
    assert bench.job.status.phase == "Suspended"


def test_after_a_failed_run_the_job_is_read(bench: Bench) -> None:
    know_spec(bench)
    bench.pick()
    task = told(bench, failures=1)

    def fail() -> None:
        raise errors.Unreachable("cut")

    bench.counting.before["get TorchJob"] = fail
    with pytest.raises(errors.Unreachable):
        run(bench, task)
