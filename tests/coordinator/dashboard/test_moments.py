"""Waits as the times at which they began."""

import pytest

from coordinator.dashboard import moments


def test_a_wait_is_shown_as_the_time_at_which_it_began() -> None:
    assert moments.began([("a", 30.0), ("b", None)], 100.0, {}) == {"a": 70.0}


@pytest.mark.parametrize(("seconds", "expected"), [(30.9, 70.0), (28.5, 70.0), (20.0, 80.4), (90.0, 10.4)])
def test_a_time_that_trembles_stays_and_one_that_differs_moves(seconds: float, expected: float) -> None:
    assert moments.began([("a", seconds)], 100.4, {"a": 70.0}) == {"a": pytest.approx(expected)}


def test_a_wait_that_is_over_is_forgotten() -> None:
    assert moments.began([("b", 1.0)], 100.0, {"a": 70.0}) == {"b": 99.0}


def test_a_stamp_is_a_time_in_utc() -> None:
    assert moments.stamp(1_793_491_200.4) == "2026-11-01T00:00:00Z"
    assert moments.stamp(None) == ""
