"""The turns of loops, and the loop that is late."""

import threading

import pytest

from kube.process import turns
from kube.process.turns import Turns
from tests.support.clock import Clock


@pytest.fixture
def registry(clock: Clock) -> Turns:
    return Turns(clock)


def test_a_loop_is_late_once_it_has_not_turned_for_30_seconds(registry: Turns, clock: Clock) -> None:
    slow, busy = registry.loop("term"), registry.loop("election")
    slow.mark()
    clock.step(30)
    busy.mark()
    assert registry.late() == ()
    clock.step(1)
    assert registry.late() == ("term",)
    assert registry.late(seconds=0.5) == ("term", "election")
    assert slow.age == 31
    slow.mark()
    assert registry.late() == ()


def test_a_loop_that_never_turns_is_late_as_well(registry: Turns, clock: Clock) -> None:
    registry.loop("term")
    clock.step(31)
    assert registry.late() == ("term",)


def test_a_loop_that_has_ended_is_never_late(registry: Turns, clock: Clock) -> None:
    with registry.loop("term") as turn:
        turn.mark()
    clock.step(3_600)
    assert registry.late() == ()
    turn.mark()
    clock.step(31)
    assert registry.late() == ("term",)


def test_a_loop_that_waits_is_not_late_and_has_its_time_again_afterwards(registry: Turns, clock: Clock) -> None:
    turn = registry.loop("term")
    with turn.waiting("the API server"):
        clock.step(3_600)
        assert (registry.late(), turn.waits_for) == ((), "the API server")
    clock.step(30)
    assert (registry.late(), turn.waits_for) == ((), "")
    clock.step(1)
    assert registry.late() == ("term",)


def test_a_wait_with_a_limit_is_late_after_it(registry: Turns, clock: Clock) -> None:
    turn = registry.loop("term")
    with turn.waiting("the rebuild", seconds=60):
        clock.step(90)
        assert registry.late() == ()
        clock.step(1)
        assert registry.late() == ("term",)


def test_a_short_wait_takes_nothing_from_a_longer_allowance(registry: Turns, clock: Clock) -> None:
    turn = registry.loop("term")
    turn.allow(100)
    with turn.waiting("the API server", seconds=1):
        clock.step(1)
    clock.step(129)
    assert registry.late() == ()
    clock.step(1)
    assert registry.late() == ("term",)


def test_a_loop_of_the_same_name_takes_the_place_of_the_one_before(registry: Turns, clock: Clock) -> None:
    registry.loop("watch/podgroups")
    clock.step(31)
    registry.loop("watch/podgroups").mark()
    assert registry.late() == ()


def test_the_current_loop_is_that_of_the_thread(registry: Turns) -> None:
    turn, other = registry.loop("term"), []
    turn.mark()
    thread = threading.Thread(target=lambda: other.append(turns.current()))
    thread.start()
    thread.join()
    assert turns.current() is turn
    assert other[0] not in registry.loops


def test_rounds_turn_until_stopped_and_may_pause_for_long(registry: Turns, clock: Clock) -> None:
    turn, stop = registry.loop("status"), threading.Event()
    for number, _ in enumerate(turn.rounds(stop, 0.001)):
        assert turn.age == 0
        if number:
            stop.set()
    clock.step(3_600)
    assert registry.late() == ()
