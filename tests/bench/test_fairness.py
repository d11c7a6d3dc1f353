"""The fairness benchmark: its figures for fixed picks, and the bounds on the real scheduler."""

import json

import pytest
from click.testing import CliRunner

from bench.benchmarks import fairness
from bench.benchmarks.fairness import Admission
from bench.benchmarks.games import growths, withdrawals
from bench.benchmarks.games.orders import Fluid
from bench.cli import main
from queues.rules import PickRules


def test_a_queue_that_joins_has_no_credit_from_before() -> None:
    alone, both = {"a": 1}, {"a": 1, "b": 1}
    picks = [Admission("a", 8, alone)] * 5 + [Admission("b", 8, both), Admission("b", 8, both), Admission("a", 8, both)]
    measured = fairness.measure(picks)
    assert measured == {"worst_deviation_gpus": 8.0, "worst_wait_fair_turns": 1.5, "longest_run_after_idle": 2}


def test_the_fluid_share_keeps_a_lead_and_drops_a_debt_when_a_queue_empties() -> None:
    fluid = Fluid()
    fluid.see({"a": 1, "b": 1}, "a", 8)
    assert fluid.ahead == {"a": 4, "b": -4}
    fluid.see({"b": 1}, "b", 4)
    assert fluid.ahead == {"a": 2, "b": -2}, "queue a has no jobs and is still ahead"
    fluid.see({"b": 1}, "b", 6)
    assert fluid.ahead == {"b": 0}
    fluid.see({"a": 1, "b": 1, "c": 2}, "a", 8)
    assert fluid.ahead == {"a": 6, "b": -2, "c": -4}
    fluid.see({"a": 1, "b": 1}, "b", 4)
    assert fluid.ahead == {"a": 2, "b": -2}, "the lag of queue c is not kept"


@pytest.mark.proof
def test_no_submission_pattern_gains_more_than_one_largest_job() -> None:
    done = CliRunner().invoke(main, ["fairness", "--games", "--picks", "6000", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert 0 < result["worst_gain_largest_jobs"] <= 1
    assert result["worst_gain_largest_jobs"] == max(
        figures["worst_gain_largest_jobs"] for figures in result["games"].values()
    )
    beyond = [figures.get("worst_beyond_weight_largest_jobs", 0) for figures in result["games"].values()]
    assert 0 < max(beyond) <= 1
    part = {"1:1": 1 / 2, "5:1": 5 / 6, "1:5": 1 / 6}
    for name, figures in result["games"].items():
        if name.split()[0] in {"large", "one_at_a_time", "sizes"} and name.endswith("honest"):
            assert figures["shares"]["player"] == pytest.approx(part[name.split()[1]], abs=0.08)


@pytest.mark.proof
@pytest.mark.parametrize("seed", [1, 2])
def test_capacity_reserved_for_withdrawn_jobs_counts_toward_the_share_of_their_queue(seed: int) -> None:
    figures = withdrawals.run(1500, seed)
    assert 0 < figures["worst_kept_and_used_of_share"] <= 1.02, "the last seconds before a withdrawal are not paid"
    games = figures["withdrawals"]
    assert games.keys() == {"withdraw", "shrink", "displace", "start"}
    for each in games.values():
        assert sum(each.values()) == pytest.approx(1)
    assert games["start"]["player"] > 0
    for shape, by_cost in figures["shapes"].items():
        cheap = withdrawals.SHAPES[shape].cost
        assert by_cost[cheap]["others"] < 0.4
        assert by_cost["dominant"]["others"] > 0.7
        assert 0 < by_cost["dominant"]["player"] < 1 / 6 + 150 / 1500
        assert by_cost["dominant"]["player"] + by_cost["dominant"]["idle"] < 1 / 6 + 150 / 1500
    together = figures["together"]
    assert figures["worst_idle_together_of_share"] == max(each["idle"] for each in together.values()) / (2 / 7) <= 1
    for each in together.values():
        assert sum(each.values()) == pytest.approx(1)
        assert each["idle"] > 0


@pytest.mark.proof
def test_no_change_of_elastic_jobs_gains_more_than_one_largest_growth() -> None:
    figures = growths.run(300, 1)
    assert 0 < figures["worst_growth_gain_largest_jobs"] <= 1
    assert 0 < figures["worst_growth_held_of_share"] <= 1.1
    games = figures["growths"]
    assert games["keep 1:1"]["held_of_share"] > 0.9, "a growth that is kept as long as a job holds the queue's share"
    for weight in ("1:1", "5:1"):
        paid = max(games[f"{name} {weight}"]["held_of_share"] for name in ("take_back", "shrink", "whole"))
        assert 0 < paid < 0.3, "a growth that its owner takes back is paid, though its room was held for a moment"
        assert games[f"never_save {weight}"]["waited_s"] in range(int(growths.IDLE_GRACE), int(growths.IDLE_GRACE) + 3)


@pytest.mark.parametrize("seed", [1, 2])
def test_deviation_wait_and_run_length_are_bounded(seed: int) -> None:
    options = fairness.Options(picks=500, seed=seed)
    steady = fairness.measure(fairness.admissions(options))
    churned = fairness.measure(fairness.churn(options))
    assert steady["worst_deviation_gpus"] <= 8
    assert churned["worst_deviation_gpus"] < 16
    assert max(steady["worst_wait_fair_turns"], churned["worst_wait_fair_turns"]) < 5
    assert churned["longest_run_after_idle"] <= 3


def test_a_large_job_waits_no_longer_than_the_bound() -> None:
    figures = fairness.large_job(PickRules(cost=fairness.GPU))
    assert 30 < figures["across_queues_waited_s"] <= figures["across_queues_bound_s"]
    assert 0 < figures["within_queue_overtaken"] <= figures["within_queue_bound"]
