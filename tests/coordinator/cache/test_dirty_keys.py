"""How often a marked key is taken for work, however often it is marked."""

from types import SimpleNamespace
from typing import Any

from coordinator.cache.dirty_keys import PODS_SECONDS, REPEAT_SECONDS, DirtyKeys
from coordinator.cache.watches import Watches
from crds import labels
from crds.keys import JobKey
from kube.api import WatchEvent
from tests.support.coordinator.desk import Clock

ONE, TWO = JobKey("a", "one", "1"), JobKey("a", "two", "2")


def test_a_mark_for_a_job_is_taken_at_once_and_one_for_its_pods_after_a_rest() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
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


def test_keys_without_news_get_a_share_of_each_take_after_the_news() -> None:
    marks = DirtyKeys(Clock())
    again = [JobKey("evil", str(number), str(number)) for number in range(1_000)]
    marks.add_again(again)
    marks.add([ONE], 3)
    assert marks.take(8) == [(ONE, 3), (again[0], 0), (again[1], 0)]
    assert marks.take(8) == [(again[2], 0), (again[3], 0)]
    news = [JobKey("a", str(number), f"a{number}") for number in range(100)]
    marks.add(news, 0)
    assert marks.take(8) == [(key, 0) for key in (*news[:6], *again[4:6])]
    assert len(marks) == 1_094 - 6


def test_a_key_is_taken_once_with_its_newest_version() -> None:
    marks = DirtyKeys(Clock())
    marks.add_again([ONE, TWO])
    marks.add([ONE], 5)
    marks.add_again([ONE])
    assert marks.take(8) == [(ONE, 5), (TWO, 0)]
    marks.add_again([ONE])
    assert marks.take(1) == [(ONE, 0)]
    assert len(marks) == 0


def test_add_soon_delays_a_key_by_one_rest() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
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


def test_a_key_is_marked_once_more_where_a_worker_may_be_behind() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
    marks.add_soon(ONE, repeat=True)
    clock.step(PODS_SECONDS)
    assert (marks.take(9), marks.take_repeats()) == ([(ONE, 0)], [])
    clock.step(REPEAT_SECONDS)
    assert (marks.take_repeats(), marks.take_repeats()) == ([ONE], [])
    assert (marks.take(9), len(marks)) == ([], 0)


def test_a_thousand_changes_in_a_second_are_taken_a_few_times() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
    looks = []
    for number in range(1_000):
        marks.add_for_pods(ONE, number)
        looks += marks.take(9)
        clock.step(0.001)
    clock.step(PODS_SECONDS)
    looks += marks.take(9)
    assert len(looks) <= 2 + 1 / PODS_SECONDS
    assert looks[-1] == (ONE, 999)


def test_take_returns_the_oldest_keys_up_to_the_limit() -> None:
    marks = DirtyKeys(Clock())
    marks.add([TWO, ONE], 0)
    marks.add([TWO], 3)
    assert marks.take(1) == [(TWO, 3)]
    assert marks.take(1) == [(ONE, 0)]


def test_a_key_is_forgotten_after_its_rest() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
    for key in (ONE, TWO):
        marks.add_for_pods(key, 1)
    assert len(marks.take(9)) == 2
    for key in (ONE, TWO):
        assert not marks.add_for_pods(key, 2)
    clock.step(PODS_SECONDS)
    assert len(marks.take(9)) == 2
    clock.step(PODS_SECONDS)
    assert len(marks) == 0


def test_the_end_of_the_last_pod_of_a_job_is_taken_at_once() -> None:
    server: Any = SimpleNamespace(serves=bool)
    watches = Watches(server, nodes=False, clock=Clock())
    watches.pods._synced.set()

    def change(name: str, version: int, phase: str) -> None:
        key = {labels.JOB_NAME: "one", labels.JOB_UID: "1"}
        owner = {"controller": True, "uid": "1"}
        known = {"namespace": "a", "uid": name, "resourceVersion": str(version), "ownerReferences": [owner]}
        pod = {"metadata": {"name": name, "labels": key, **known}, "spec": {}, "status": {"phase": phase}}
        watches.pods._reflector._sink.apply(WatchEvent("MODIFIED", pod))

    change("zero", 1, "Pending")
    assert watches.take(9) == [(ONE, 1, True)]
    change("one", 2, "Pending")
    change("zero", 3, "Running")
    change("zero", 4, "Succeeded")
    assert watches.take(9) == []
    change("one", 5, "Failed")
    assert watches.take(9) == [(ONE, 5, True)]
    change("one", 6, "Failed")
    assert watches.take(9) == []
