"""The cancellation of a job on an API server: its requests, and that it is final."""

import pytest

from crds.api_resources import TORCHJOBS
from kube import errors
from tests.support.reconcilers.bench import Bench


def test_a_cancelled_job_costs_one_write_and_keeps_no_pod(bench: Bench) -> None:
    bench.submit()
    bench.pick()
    bench.reconcile(times=2)
    bench.move("Running")
    bench.reconcile()
    before = bench.counting.calls.copy()
    bench.change(cancel=True)
    bench.reconcile()
    assert (bench.job.status.phase, bench.true_condition("Failed")) == (
        "Failed",
        ("Cancelled", "cancelled by its owner"),
    )
    assert bench.job.is_cancelled
    bench.remove(*bench.names())
    bench.reconcile(times=2)
    calls = bench.counting.calls - before
    assert (calls["patch TorchJob"], calls["delete Pod"]) == (1, 3)
    assert bench.services() == []


def test_a_job_that_waits_is_cancelled_with_one_write_and_one_event(bench: Bench) -> None:
    bench.submit(schedulingPolicy={"hold": True}, cancel=True)
    bench.reconcile(times=2)
    assert bench.true_condition("Failed")[0] == "Cancelled"
    assert bench.counting.calls == {"get TorchJob": 2, "patch TorchJob": 1, "create Event": 1}


@pytest.mark.parametrize("cancel", [False, None])
def test_a_cancellation_is_never_taken_back(bench: Bench, cancel: bool | None) -> None:
    bench.submit(cancel=True)
    for refusal in ("cancel may not change back to false", "cancel may not change after the job has finished"):
        with pytest.raises(errors.Invalid, match=refusal):
            bench.change(cancel=cancel)
        bench.reconcile()
    assert bench.cluster.get(TORCHJOBS, "digits", bench.namespace)["spec"]["cancel"] is True
