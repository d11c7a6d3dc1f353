"""The rules of picks."""

import math

import pytest

from queues.rules import PickRules


@pytest.mark.parametrize(
    ("ages", "longest", "expected"),
    [
        ([], math.inf, 30),
        ([1, 2, 3], math.inf, 30),
        ([7200, 5, 90_000, 100, 60], math.inf, 100),
        ([600, 601], math.inf, 601),
        ([90_000, 90_001], 3600, 3600),
        ([90_000, 90_001], 5, 5),
        ([], 5, 5),
    ],
)
def test_patience_is_the_median_age_of_what_runs_within_its_bounds(
    ages: list[float], longest: float, expected: float
) -> None:
    found = PickRules(longest_patience=longest).patience({"a": ages[:2], "b": ages[2:]})
    assert found.pool == expected
    assert found.within("a") == min(max(ages[:2], default=0), longest)
    assert found.within("c") == 0


@pytest.mark.parametrize(
    ("ages", "holds", "hold"),
    [
        ([], [], 1),
        ([0.1], [], 1),
        ([30, 60, 90], [], 60),
        ([9999], [(60, 1), (120, 1)], 90),
        ([], [(60, 1_000_000), *((0.5, 1) for _ in range(4000))], pytest.approx(60, abs=0.3)),
        ([], [(60, 1_000_000), *((90_000, 1) for _ in range(9))], pytest.approx(60, abs=1)),
        ([], [(0.5, 8)], 1),
    ],
)
def test_a_hold_is_the_mean_by_cost_of_what_ended_last_or_the_mean_age_of_what_runs(
    ages: list[float], holds: list[tuple[float, int]], hold: float
) -> None:
    assert PickRules().patience({"a": ages[:1], "b": ages[1:]}, holds).hold == hold
