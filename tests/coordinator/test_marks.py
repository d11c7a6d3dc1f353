"""How often a key is looked at, however often it is marked."""

from coordinator.marks import PODS_SECONDS, Marks
from crds.keys import JobKey
from tests.coordinator.desk import Clock

ONE, TWO = JobKey("a", "one", "1"), JobKey("a", "two", "2")


def test_a_job_is_looked_at_at_once_and_its_pods_after_a_rest() -> None:
    clock = Clock()
    marks = Marks(clock)
    assert marks.add_for_pods(ONE, 5)
    assert marks.take(9) == [(ONE, 5)]
    assert not marks.add_for_pods(ONE, 7)
    assert not marks.add_for_pods(ONE, 6)
    assert marks.take(9) == []
    marks.add([ONE], 0)
    assert marks.take(9) == [(ONE, 7)]
    assert not marks.add_for_pods(ONE, 8)
    clock.step(PODS_SECONDS)
    assert marks.take(9) == [(ONE, 8)]
    clock.step(PODS_SECONDS)
    assert marks.take(9) == []
    assert marks.add_for_pods(ONE, 9)


def test_what_others_have_to_have_seen_is_looked_at_after_a_rest() -> None:
    clock = Clock()
    marks = Marks(clock)
    marks.add_soon(ONE)
    marks.add_soon(ONE)
    assert marks.take(9) == []
    clock.step(PODS_SECONDS)
    assert marks.take(9) == [(ONE, 0)]
    marks.add_for_pods(TWO, 4)
    marks.add_soon(TWO)
    assert marks.take(9) == [(TWO, 4)]
    marks.add_soon(TWO)
    assert marks.take(9) == []
    clock.step(PODS_SECONDS)
    assert marks.take(9) == [(TWO, 0)]
    clock.step(2 * PODS_SECONDS)
    assert len(marks) == 0


def test_a_thousand_changes_in_a_second_are_a_few_looks() -> None:
    clock = Clock()
    marks = Marks(clock)
    looks = []
    for number in range(1_000):
        marks.add_for_pods(ONE, number)
        looks += marks.take(9)
        clock.step(0.001)
    clock.step(PODS_SECONDS)
    looks += marks.take(9)
    assert len(looks) <= 2 + 1 / PODS_SECONDS
    assert looks[-1] == (ONE, 999)


def test_the_oldest_first_and_no_more_than_asked_for() -> None:
    marks = Marks(Clock())
    marks.add([TWO, ONE], 0)
    marks.add([TWO], 3)
    assert marks.take(1) == [(TWO, 3)]
    assert marks.take(1) == [(ONE, 0)]


def test_nothing_of_a_key_is_remembered_after_its_rest() -> None:
    clock = Clock()
    marks = Marks(clock)
    for key in (ONE, TWO):
        marks.add_for_pods(key, 1)
    assert len(marks.take(9)) == 2
    for key in (ONE, TWO):
        assert not marks.add_for_pods(key, 2)
    clock.step(PODS_SECONDS)
    assert len(marks.take(9)) == 2
    clock.step(PODS_SECONDS)
    assert len(marks) == 0
