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
