"""The order inside a queue: by age, which priority moves."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob.jobspec import MAX_PRIORITY
from queues import order
from queues.values import Entry
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, choose, commit, entry, spec

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
def test_score_is_age_shifted_by_bounded_priority(submitted: float, priority: int, aging: float, score: float) -> None:
    assert order.score(entry("job", submitted=submitted, priority=priority), aging) == score


def test_equal_scores_are_ordered_by_namespace_then_name() -> None:
    jobs = [entry(name, namespace=space) for space in ("a-b", "a", "b") for name in ("z", "a-1", "a")]
    placed = sorted(jobs, key=lambda job: order.place(job, 600))
    names = [(job.key.namespace, job.key.name) for job in placed]
    assert names == [(space, name) for space in ("a", "a-b", "b") for name in ("a", "a-1", "z")]


@given(
    priority=st.integers(-(10**6), 10**6),
    aging=st.floats(0, 10**6),
    wait=st.floats(2 * order.BOOST_LIMIT_SECONDS + 1, 1e9),
)
def test_old_job_outranks_any_priority_in_the_end(priority: int, aging: float, wait: float) -> None:
    old, new = entry("old", submitted=0.0), entry("new", submitted=wait, priority=priority)
    assert order.score(old, aging) < order.score(new, aging)


PRIORITIES = st.integers(-MAX_PRIORITY, MAX_PRIORITY)


@given(priority=PRIORITIES, aging=st.integers(1, 31_536_000), wait=st.floats(order.BOOST_LIMIT_SECONDS + 1, 1e9))
def test_job_without_priority_is_not_overtaken_after_the_boost_limit(priority: int, aging: int, wait: float) -> None:
    theirs = entry("theirs", submitted=0.0, namespace="theirs")
    new = entry("new", submitted=wait, priority=priority, namespace="ours")
    assert order.place(theirs, aging) < order.place(new, aging)


@given(priority=PRIORITIES, other=PRIORITIES, wait=st.floats(5 * order.BOOST_LIMIT_SECONDS + 1, 1e9))
def test_returning_job_is_bounded_by_the_boost_limit(priority: int, other: int, wait: float) -> None:
    theirs = entry("theirs", submitted=0.0, namespace="theirs")
    back = replace(entry("back", submitted=wait, priority=priority, namespace="ours"), returning=True)
    assert order.place(theirs, 600) < order.place(back, 600)
    worst = replace(theirs, priority=other)
    late = replace(back, submitted=wait + order.BOOST_LIMIT_SECONDS)
    assert order.place(worst, 600) < order.place(late, 600)


def test_stream_of_urgent_jobs_delays_an_old_job_by_at_most_seven_days() -> None:
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [entry("theirs", submitted=START, namespace="theirs")])
    store.configure([spec("a", jobs=1)], None)
    overtaken = 0
    for hour in range(1, 10 * 24):
        now = START + hour * 3600.0
        store.put([entry(f"urgent-{hour}", "a", now, MAX_PRIORITY, namespace="ours")])
        [taken] = commit(store, choose(store.snapshot(9), now, 1, "jobs")).reservations
        if taken.key.namespace == "theirs":
            break
        overtaken += 1
        store.remove([taken.key])
    assert overtaken == 7 * 24


@given(submitted=st.floats(0, 2e9), later=st.floats(0, 2e9), priority=st.integers(-(10**6), 10**6))
def test_a_returning_job_is_ahead_of_later_ones_and_of_two_limits_before(
    submitted: float, later: float, priority: int
) -> None:
    back = replace(entry("back", submitted=submitted, priority=-priority), returning=True)
    new = entry("new", submitted=submitted + later - 1.9 * order.BOOST_LIMIT_SECONDS, priority=priority)
    assert order.score(back, 600) < order.score(new, 600)


# Jobs of one score


def named(name: str, sequence: str = "", submitted: float = START, namespace: str = "team") -> Entry:
    return replace(entry(name, submitted=submitted, namespace=namespace), sequence=sequence)


def sorted_names(jobs: list[Entry]) -> list[str]:
    return [job.key.name for job in sorted(jobs, key=lambda job: order.place(job, 600))]


def test_digits_in_names_are_compared_as_numbers() -> None:
    jobs = [
        named(name) for name in ("m-110", "m-2", "m-02", "m-10", "m", "m-0", "m2", "m-2b1", "m-2-1", "m-9", "a-1-10")
    ]
    assert sorted_names(jobs) == ["a-1-10", "m", "m-0", "m-02", "m-2", "m-2-1", "m-2b1", "m-9", "m-10", "m-110", "m2"]


def test_namespaces_are_compared_before_names_with_digits_as_numbers() -> None:
    jobs = [named("m-2", namespace="team-10"), named("m-110", namespace="team-9"), named("m-3", namespace="team-9")]
    assert sorted_names(jobs) == ["m-3", "m-110", "m-2"]


def test_sequence_is_compared_before_the_name_and_jobs_without_one_come_last() -> None:
    jobs = [
        named("a"),
        named("b", "20.0"),
        named("c", "3.10"),
        named("d", "3.2"),
        named("e", "003.1"),
        named("f", "3.1"),
    ]
    assert sorted_names(jobs) == ["e", "f", "d", "c", "b", "a"]


def test_sequence_orders_jobs_within_one_second_only() -> None:
    jobs = [named("late", "0.0", START + 1), named("early", "9" * 28 + ".0"), named("named", "", START)]
    assert sorted_names(jobs) == ["early", "named", "late"]


def test_sequence_is_ignored_for_equal_scores_with_other_creation_times() -> None:
    """With 600 s per step of priority both jobs have the same score, and the job of the higher priority comes first."""
    high = replace(named("high", "9.9", START + 600), priority=1)
    assert order.score(high, 600) == order.score(named("low"), 600)
    assert sorted_names([named("low", "0.0"), high]) == sorted_names([named("low"), high]) == ["high", "low"]


dns = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
digit_runs = st.sampled_from(["m-2", "m-02", "m-002", "m-10", "m-110", "m-0", "m-00", "m2", "m", "m-" + "9" * 40])
sequences = st.sampled_from(
    ["", "", "0.0", "1.0", "01.0", "1.00", "1.2", "1.10", "12.0", "9" * 28 + ".0", "0." + "9" * 28]
)
submissions = st.builds(
    named,
    name=digit_runs | dns,
    sequence=sequences,
    submitted=st.sampled_from([START, START + 1, START + 0.5, 0.0]),
    namespace=st.sampled_from(["team-2", "team-10", "team"]) | dns,
)


def numbers(name: str) -> list[tuple[int, int, str]]:
    """Return the sort key of a name by a second implementation: each number is an integer, and everything else is
    compared letter by letter.

    A number sorts in the place of its first digit.
    """
    parts = re.findall(r"[0-9]+|[^0-9]", name)
    return [(ord("0"), int(part), "") if part.isdigit() else (ord(part), 0, part) for part in parts]


def meaning(job: Entry) -> tuple[object, ...]:
    """Return the sort key of jobs with the same score and the same second, as the documentation defines it."""
    micros, _, place = job.sequence.partition(".")
    sequence = (0, int(micros), int(place)) if job.sequence else (1, 0, 0)
    return (*sequence, numbers(job.key.namespace), numbers(job.key.name), str(job.key))


@given(jobs=st.lists(submissions, max_size=12, unique_by=lambda job: job.key))
def test_order_is_total_and_matches_a_second_implementation(jobs: list[Entry]) -> None:
    for second in {int(job.submitted) for job in jobs}:
        same = [replace(job, submitted=float(second)) for job in jobs if int(job.submitted) == second]
        assert sorted_names(same) == [job.key.name for job in sorted(same, key=meaning)]
    placed = [order.place(job, 600) for job in jobs]
    assert len(set(placed)) == len(jobs)
    assert sorted(placed) == sorted(placed, key=lambda place: (place[0], place[1].encode()))
