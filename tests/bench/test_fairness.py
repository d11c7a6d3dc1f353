"""Fairness: what is measured of known picks, and the bounds that hold for both pickers."""

import pytest

from bench import fairness
from bench.fairness import Admission
from queues.rules import Picker, Rules


def test_a_queue_that_joins_begins_with_nothing_owed() -> None:
    alone, both = {"a": 1}, {"a": 1, "b": 1}
    picks = [Admission("a", 8, alone)] * 5 + [Admission("b", 8, both), Admission("b", 8, both), Admission("a", 8, both)]
    measured = fairness.measure(picks)
    assert measured == {"worst_deviation_gpus": 8.0, "worst_wait_fair_turns": 1.5, "longest_run_after_idle": 2}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("picker", fairness.PICKERS)
def test_deviation_waits_and_runs_are_bounded(picker: Picker, seed: int) -> None:
    options = fairness.Options(picks=500, seed=seed)
    steady = fairness.measure(fairness.admissions(options, picker))
    churned = fairness.measure(fairness.churn(options, picker))
    assert steady["worst_deviation_gpus"] <= 8
    assert churned["worst_deviation_gpus"] < 16
    assert max(steady["worst_wait_fair_turns"], churned["worst_wait_fair_turns"]) < 5
    assert churned["longest_run_after_idle"] <= 3


@pytest.mark.parametrize("picker", fairness.PICKERS)
def test_a_large_job_is_admitted_at_last(picker: Picker) -> None:
    figures = fairness.large_job(Rules(cost=fairness.GPU, picker=picker))
    assert figures["across_queues_overtaken"] <= figures["across_queues_bound"]
    assert figures["within_queue_overtaken"] == figures["within_queue_bound"]
