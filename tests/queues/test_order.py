"""The order inside a queue: age, moved by priority."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.jobspec import MAX_PRIORITY
from queues import order
from queues.choose import choose
from queues.memory_store import MemoryStore

from .builders import START, entry, spec

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


PRIORITIES = st.integers(-MAX_PRIORITY, MAX_PRIORITY)


@given(priority=PRIORITIES, aging=st.integers(1, 31_536_000), wait=st.floats(order.BOOST_LIMIT_SECONDS + 1, 1e9))
def test_a_job_without_priority_is_overtaken_by_no_job_that_comes_a_limit_later(
    priority: int, aging: int, wait: float
) -> None:
    theirs = entry("theirs", submitted=0.0, namespace="theirs")
    new = entry("new", submitted=wait, priority=priority, namespace="ours")
    assert order.place(theirs, aging) < order.place(new, aging)


@given(priority=PRIORITIES, other=PRIORITIES, wait=st.floats(5 * order.BOOST_LIMIT_SECONDS + 1, 1e9))
def test_a_job_that_returns_is_bounded_too(priority: int, other: int, wait: float) -> None:
    theirs = entry("theirs", submitted=0.0, namespace="theirs")
    back = replace(entry("back", submitted=wait, priority=priority, namespace="ours"), returning=True)
    assert order.place(theirs, 600) < order.place(back, 600)
    worst = replace(theirs, priority=other)
    late = replace(back, submitted=wait + order.BOOST_LIMIT_SECONDS)
    assert order.place(worst, 600) < order.place(late, 600)


def test_in_a_queue_of_two_namespaces_a_stream_of_urgent_jobs_delays_an_old_one_for_seven_days_at_most() -> None:
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [entry("theirs", submitted=START, namespace="theirs")])
    store.configure([spec("a", jobs=1)], None)
    overtaken = 0
    for hour in range(1, 10 * 24):
        now = START + hour * 3600.0
        store.put([entry(f"urgent-{hour}", "a", now, MAX_PRIORITY, namespace="ours")])
        [taken] = store.commit(choose(store.snapshot(9), now, 1, "jobs")).reservations
        if taken.key.namespace == "theirs":
            break
        overtaken += 1
        store.remove([taken.key])
    assert overtaken == 7 * 24


@given(submitted=st.floats(0, 2e9), later=st.floats(0, 2e9), priority=st.integers(-(10**6), 10**6))
def test_what_returns_is_ahead_of_all_that_came_later_and_of_two_limits_before(
    submitted: float, later: float, priority: int
) -> None:
    back = replace(entry("back", submitted=submitted, priority=-priority), returning=True)
    new = entry("new", submitted=submitted + later - 1.9 * order.BOOST_LIMIT_SECONDS, priority=priority)
    assert order.score(back, 600) < order.score(new, 600)
