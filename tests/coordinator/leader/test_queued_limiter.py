"""The order of status writes to waiting jobs: tenants take turns, and the jobs of a tenant also take turns."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.leader.queued_limiter import AT_ONCE, MOST_UNDER_WAY, PER_SECOND, UNDER_WAY_SECONDS, QueuedLimiter
from coordinator.leader.round_robin import RoundRobin
from crds.keys import JobKey
from queues.tasks import Offer
from tests.support.coordinator.desk import Clock

DELAY = 1.0


def key(number: int, tenant: str = "a") -> JobKey:
    return JobKey(tenant, f"job{number}", f"{tenant}-{number}")


def offer(number: int, tenant: str = "a", delay: float = DELAY) -> Offer:
    return Offer(key=key(number, tenant), tenant=tenant, delay=delay)


def answered(turns: QueuedLimiter) -> list[Offer]:
    """Return the offers of now; each job is routed again at once, because its status was written."""
    found = []
    while offers := turns.take_due():
        found += offers
        for each in offers:
            turns.discard(each.key)
    return found


def drained(turns: QueuedLimiter, clock: Clock, seconds: float, step: float = 0.05) -> list[tuple[float, Offer]]:
    """Return the offers of the next seconds, each with the time of the offer since the start."""
    began, found = clock(), []
    while clock() < began + seconds:
        found += [(clock() - began, each) for each in answered(turns)]
        clock.step(step)
    return found


def test_a_few_jobs_are_offered_after_their_delay() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(AT_ONCE):
        turns.add(offer(number))
    clock.step(DELAY - 0.01)
    assert answered(turns) == []
    clock.step(0.01)
    assert answered(turns) == [offer(number, delay=0.0) for number in range(AT_ONCE)]
    assert len(turns) == 0


def test_offers_per_second_are_limited_after_the_burst() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(AT_ONCE + int(10 * PER_SECOND)):
        turns.add(offer(number))
    clock.step(DELAY)
    found = drained(turns, clock, 20)
    assert [each.key for _, each in found] == [key(number) for number in range(AT_ONCE + int(10 * PER_SECOND))]
    seconds = Counter(int(at - 0.01) for at, _ in found)
    assert all(abs(seconds[second] - PER_SECOND) <= 1 for second in range(1, 10))


def test_a_first_job_is_offered_in_time_despite_20_000_jobs_of_another_tenant() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(20_000):
        turns.add(offer(number))
    drained(turns, clock, 5.0)
    turns.add(offer(0, "b"))
    found = drained(turns, clock, DELAY + 1.0)
    assert key(0, "b") in [each.key for _, each in found]


def test_forgotten_jobs_take_no_turn() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(2 * AT_ONCE):
        turns.add(offer(number))
    for number in range(AT_ONCE // 2):
        turns.discard(key(number))
    clock.step(DELAY)
    assert [each.key for each in answered(turns)] == [key(number) for number in range(AT_ONCE // 2, 3 * AT_ONCE // 2)]
    for number in range(3 * AT_ONCE // 2, 2 * AT_ONCE - 1):
        turns.discard(key(number))
    clock.step(1 / PER_SECOND)
    assert [each.key for each in answered(turns)] == [key(2 * AT_ONCE - 1)]
    assert len(turns) == 0


def test_a_job_placed_without_delay_waits_for_its_turn_only() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    turns.add(offer(1))
    turns.add(offer(1, delay=0.0))
    for number in range(2, AT_ONCE + 2):
        turns.add(offer(number, delay=0.0))
    assert [each.key for each in answered(turns)] == [key(number) for number in range(1, AT_ONCE + 1)]
    clock.step(1 / PER_SECOND)
    assert [each.key for each in answered(turns)] == [key(AT_ONCE + 1)]
    assert len(turns) == 0


def test_a_job_that_is_placed_again_keeps_its_turn() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(AT_ONCE + 2):
        turns.add(offer(number))
    clock.step(DELAY)
    answered(turns)
    turns.add(offer(AT_ONCE + 2))
    for number in (AT_ONCE + 1, AT_ONCE):
        turns.add(offer(number))
    found = [each.key for _, each in drained(turns, clock, DELAY + 1)]
    assert found == [key(AT_ONCE), key(AT_ONCE + 1), key(AT_ONCE + 2)]


def test_forgotten_jobs_leave_no_memory() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(AT_ONCE):  # these jobs use all available turns
        turns.add(offer(number, "b"))
    clock.step(DELAY)
    answered(turns)
    for number in range(20_000):
        turns.add(offer(number))
        clock.step(0.0001)
        turns.discard(key(number - 500))
    clock.step(DELAY)
    answered(turns)
    assert len(turns) <= 3 * 500 + 100


def test_a_machine_that_has_slept_offers_no_more_than_one_burst() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(3 * AT_ONCE):
        turns.add(offer(number))
    clock.step(1_000_000)
    assert len(answered(turns)) == AT_ONCE
    assert len(answered(turns)) == 0


def test_busy_workers_get_only_a_few_of_these_keys_a_second() -> None:
    clock = Clock()
    turns = QueuedLimiter(clock)
    for number in range(AT_ONCE):
        turns.add(offer(number, delay=0.0))
    assert [each.key for each in turns.take_due()] == [key(number) for number in range(MOST_UNDER_WAY)]
    assert turns.take_due() == []
    turns.discard(key(0))  # its status was written
    assert [each.key for each in turns.take_due()] == [key(MOST_UNDER_WAY)]
    clock.step(UNDER_WAY_SECONDS)
    assert len(turns.take_due()) == MOST_UNDER_WAY


TENANTS = st.sampled_from("abc")
JOBS = st.lists(st.tuples(st.sampled_from(["add", "discard", "pop"]), TENANTS, st.integers(0, 9)), max_size=200)


@given(JOBS)
def test_tenants_take_turns_while_jobs_come_and_go(steps: list[tuple[str, str, int]]) -> None:
    robin, waiting = RoundRobin(), set[JobKey]()
    passed: Counter[str] = Counter()
    """How many jobs of other tenants were popped since the last turn of each waiting tenant."""
    for what, tenant, number in steps:
        each = key(number, tenant)
        if what == "add":
            robin.add(tenant, float(number), each)
            waiting.add(each)
        elif what == "discard":
            robin.discard(each)
            waiting.discard(each)
        else:
            popped = robin.pop()
            assert (popped is None) == (not waiting)
            if popped is not None:
                own = {job for job in waiting if job.namespace == popped.namespace}
                assert int(popped.name[3:]) == min(int(job.name[3:]) for job in own)
                waiting.discard(popped)
                passed.update({job.namespace for job in waiting} - {popped.namespace})
                passed[popped.namespace] = 0
                assert max(passed.values()) <= 2
        for gone in passed.keys() - {job.namespace for job in waiting}:
            passed[gone] = 0
        assert all((each in robin) == (each in waiting) for each in map(key, range(10)))


def test_a_round_robin_keeps_only_waiting_jobs() -> None:
    robin = RoundRobin()
    for number in range(10_000):
        robin.add("a", float(number), key(number))
        robin.discard(key(number - 100))
    assert len(robin) <= 300
    popped = [robin.pop() for _ in range(101)]
    assert popped == [*(key(number) for number in range(9_900, 10_000)), None]
    assert len(robin) == 0
