"""The numbers of pictures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.dashboard import charts
from coordinator.dashboard.charts import Bar, Segment

AMOUNTS = st.floats(min_value=-10, max_value=1e12, allow_nan=False)


def segments(bar: Bar) -> list[tuple[str, float, float]]:
    return [(each.kind, each.start, each.length) for each in bar.segments]


@pytest.mark.parametrize(
    ("share", "target", "filled", "tick"),
    [
        (0.25, 0.5, [("used", 0, 25)], 50),
        (None, None, [], None),
        (0.0, 0.0, [], 0),
        (1.7, 2.0, [("used", 0, 100)], 100),
        (-1.0, None, [], None),
    ],
)
def test_a_share_has_a_tick_at_its_target(
    share: float | None, target: float | None, filled: list[tuple[str, float, float]], tick: float | None
) -> None:
    bar = charts.share_bar(share, target, "words")
    assert (segments(bar), bar.tick, bar.label) == (filled, tick, "words")


@pytest.mark.parametrize(
    ("used", "idle", "quota", "expected", "tick"),
    [
        # A quota ends at 80 of 100.
        (4, 0, 8, [("used", 0, 40)], 80),
        (6, 2, 8, [("used", 0, 40), ("idle", 40, 20)], 80),
        # What is borrowed is beyond the tick, in the same scale: 16 of a quota of 8.
        (16, 0, 8, [("used", 0, 50), ("borrowed", 50, 50)], 50),
        # Idle growth is the last part of what is used, within the quota and beyond.
        (16, 12, 8, [("used", 0, 25), ("idle", 25, 25), ("borrowed-idle", 50, 50)], 50),
        (16, 4, 8, [("used", 0, 50), ("borrowed", 50, 25), ("borrowed-idle", 75, 25)], 50),
        (5, 9, 8, [("idle", 0, 50)], 80),
        (3, 0, 0, [("borrowed", 0, 100)], 0),
        (0, 0, 0, [], 0),
    ],
)
def test_a_quota_ends_at_its_tick(
    used: float, idle: float, quota: float, expected: list[tuple[str, float, float]], tick: float
) -> None:
    bar = charts.quota_bar(used, idle, quota, None, "")
    assert (segments(bar), bar.tick, bar.track) == (expected, tick, tick)


def test_without_a_quota_the_whole_is_that_of_the_pool() -> None:
    assert segments(charts.quota_bar(4, 1, None, 16, "")) == [("used", 0, 18.75), ("idle", 18.75, 6.25)]
    assert segments(charts.quota_bar(4, 0, None, None, "")) == [("used", 0, 100)]
    assert segments(charts.quota_bar(0, 0, None, None, "")) == []


@given(AMOUNTS, AMOUNTS, st.none() | AMOUNTS, st.none() | AMOUNTS)
def test_no_bar_leaves_its_picture(used: float, idle: float, quota: float | None, whole: float | None) -> None:
    bar = charts.quota_bar(used, idle, quota, whole, "")
    ends = [each.start + each.length for each in bar.segments]
    assert all(0 <= each.start <= 100 and each.length >= 0 for each in bar.segments)
    assert all(end <= 100.02 and math.isfinite(end) for end in ends)


def test_parts_that_are_more_than_the_whole_fill_it() -> None:
    assert segments(charts.parts_bar([("used", 3), ("idle", 1)], 8, "")) == [("used", 0, 37.5), ("idle", 37.5, 12.5)]
    assert segments(charts.parts_bar([("used", 9), ("idle", 1)], 8, "")) == [("used", 0, 90), ("idle", 90, 10)]
    assert segments(charts.parts_bar([("used", 0)], 0, "")) == []


def test_times_are_cut_off_at_the_ends_and_short_ones_can_be_seen() -> None:
    spans = [("waited", 0.0, 110.0), ("held", 110.0, 150.0), ("held", 150.0, 150.01), ("held", 180.0, 400.0)]
    assert charts.time_bar([*spans, ("held", 300.0, 400.0)], 100.0, 200.0, "").segments == (
        Segment("waited", 0, 10),
        Segment("held", 10, 40),
        Segment("held", 50, 0.4),
        Segment("held", 80, 20),
    )
    assert segments(charts.time_bar([("held", 199.99, 300.0)], 100.0, 200.0, "")) == [("held", 99.6, 0.4)]
    assert charts.time_bar(spans, 5.0, 5.0, "").segments == ()


def test_a_curve_leaves_out_steps_without_a_value() -> None:
    found = charts.curve([0.5, None, 0.0, 1.5], [None, 0.25, 0.25, None], "words")
    assert found.area == "M0 100V50H25V100ZM75 100V0H100V100Z"
    assert found.line == "M25 75H50V75H75"
    assert charts.curve([], [], "").area == ""


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([], ""),
        ([3.0], ""),
        ([1.0, 3.0, 2.0], "M0 100L50 0L100 50"),
        ([2.0, 2.0], "M0 50L100 50"),
        ([1.0, float("nan"), float("inf"), 2.0], "M0 100L100 0"),
    ],
)
def test_a_trend_is_from_its_lowest_to_its_highest_value(values: list[float], path: str) -> None:
    assert charts.trend(values, "").line == path
