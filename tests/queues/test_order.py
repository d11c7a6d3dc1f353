"""The order inside a queue: age, moved by priority."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queues import order

from .builders import entry

DAY = 86400.0


@pytest.mark.parametrize(
    ("submitted", "priority", "aging", "score"),
    [
        (1000, 0, 600, 1000),
        (1500, 1, 600, 900),
        (1700, 1, 600, 1100),
        (1000, -1, 600, 1600),
        (1000, 5, 0, 1000),
        (8 * DAY, 1_000_000, 600, DAY),
        (8 * DAY, -1_000_000, 600, 15 * DAY),
    ],
)
def test_the_score(submitted: float, priority: int, aging: float, score: float) -> None:
    assert order.score(entry("job", submitted=submitted, priority=priority), aging) == score


def test_ties_go_by_namespace_then_name() -> None:
    jobs = [entry(name, namespace=space) for space in ("a-b", "a", "b") for name in ("z", "a-1", "a")]
    placed = sorted(jobs, key=lambda job: order.place(job, 600))
    names = [(job.key.namespace, job.key.name) for job in placed]
    assert names == [(space, name) for space in ("a", "a-b", "b") for name in ("a", "a-1", "z")]


@given(
    priority=st.integers(-(10**6), 10**6),
    aging=st.floats(0, 10**6),
    wait=st.floats(2 * order.BOOST_LIMIT_SECONDS + 1, 1e9),
)
def test_age_wins_in_the_end(priority: int, aging: float, wait: float) -> None:
    old, new = entry("old", submitted=0.0), entry("new", submitted=wait, priority=priority)
    assert order.score(old, aging) < order.score(new, aging)


@given(submitted=st.floats(0, 2e9), later=st.floats(0, 2e9), priority=st.integers(-(10**6), 10**6))
def test_what_returns_is_ahead_of_all_that_came_later_and_of_two_limits_before(
    submitted: float, later: float, priority: int
) -> None:
    back = replace(entry("back", submitted=submitted, priority=-priority), returning=True)
    new = entry("new", submitted=submitted + later - 1.9 * order.BOOST_LIMIT_SECONDS, priority=priority)
    assert order.score(back, 600) < order.score(new, 600)
