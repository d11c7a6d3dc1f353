"""Jobs that merely wait take turns at being written to."""

from coordinator.turns import AT_ONCE, FEW, PER_SECOND, Turns
from crds.keys import JobKey
from queues.values import Offer
from tests.coordinator.desk import Clock


def offer(number: int, delay: float = 1.0) -> Offer:
    return Offer(key=JobKey("default", f"job{number}", str(number)), tenant="a", delay=delay)


def test_a_few_jobs_need_not_take_turns() -> None:
    turns = Turns(Clock())
    assert {turns.place(offer(number)).delay for number in range(AT_ONCE)} == {1.0}


def test_many_jobs_are_told_so_many_a_second() -> None:
    turns = Turns(Clock())
    delays = [turns.place(offer(number)).delay for number in range(AT_ONCE + int(10 * PER_SECOND))]
    assert delays == sorted(delays)
    for second in range(1, 10):
        assert abs(sum(second + 1 < each <= second + 2 for each in delays) - PER_SECOND) <= 1


def test_what_is_urgent_takes_no_turn() -> None:
    turns = Turns(Clock())
    for number in range(1000):
        assert turns.place(offer(number, delay=0.0)).delay == 0.0
    assert turns.place(offer(0)).delay == 1.0
    assert len(turns) == 1


def test_a_job_that_is_offered_again_keeps_its_turn() -> None:
    clock = Clock()
    turns = Turns(clock)
    first = [turns.place(offer(number)).delay for number in range(500)]
    clock.step(0.5)
    assert [round(turns.place(offer(number)).delay, 3) for number in range(500)] == [
        round(each - 0.5, 3) for each in first
    ]


def test_turns_that_have_passed_are_forgotten() -> None:
    clock = Clock()
    turns = Turns(clock)
    for number in range(20 * FEW):
        turns.place(offer(number))
        clock.step(1 / PER_SECOND)
    assert len(turns) <= FEW + 1


def test_a_clock_that_is_set_back_makes_nobody_wait_for_it() -> None:
    clock = Clock()
    turns = Turns(clock)
    turns.place(offer(1))
    clock.step(-3600)
    assert turns.place(offer(1)).delay == 1.0
    assert turns.place(offer(2)).delay == 1.0
