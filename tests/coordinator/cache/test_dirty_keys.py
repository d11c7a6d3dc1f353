"""How soon and how often a marked key of a job is taken for work, however often the key is marked."""

from functools import partial
from types import SimpleNamespace
from typing import Any

from coordinator.cache.dirty_keys import PODS_SECONDS, REPEAT_SECONDS, DirtyKeys
from coordinator.cache.watches import Watches
from crds import labels
from crds.keys import JobKey
from kube.api import WatchEvent
from tests.support.coordinator.builders import job
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


def keys_of(kind: str, number: int) -> list[JobKey]:
    return [JobKey(kind, str(each), f"{kind}-{each}") for each in range(number)]


def test_what_frees_room_is_taken_first_and_each_kind_has_a_part_of_each_take() -> None:
    marks = DirtyKeys(Clock())
    for key in keys_of("tells", 100):
        assert marks.add_for_pods(key, 0)
    marks.add(keys_of("begins", 100), 0)
    marks.add(keys_of("ends", 30), 0, "ends")
    marks.add_again(keys_of("again", 100))
    taken = [[key.namespace for key, _ in marks.take(64)] for _ in range(3)]
    assert taken[0] == ["ends"] * 30 + ["begins"] * 12 + ["tells"] * 6 + ["again"] * 16
    assert taken[1] == ["begins"] * 42 + ["tells"] * 6 + ["again"] * 16
    assert taken[2] == ["begins"] * 42 + ["tells"] * 6 + ["again"] * 16
    assert [key.namespace for key, _ in marks.take(64)] == ["begins"] * 4 + ["tells"] * 44 + ["again"] * 16


def test_a_kind_of_which_nothing_waits_leaves_its_part_to_the_others() -> None:
    marks = DirtyKeys(Clock())
    marks.add(keys_of("ends", 100), 0, "ends")
    assert len(marks.take(64)) == 64
    marks.add(keys_of("begins", 1), 0)
    assert [key.namespace for key, _ in marks.take(16)] == ["ends"] * 15 + ["begins"]


def test_a_key_goes_with_the_most_urgent_kind_of_its_marks() -> None:
    clock = Clock()
    marks = DirtyKeys(clock)
    marks.add([ONE, TWO], 0)
    marks.add_for_pods(TWO, 5)
    marks.add([TWO], 3, "ends")
    marks.add([TWO], 0)
    assert marks.take(9) == [(TWO, 5), (ONE, 0)]
    assert not marks.add_for_pods(TWO, 7, "begins")
    assert not marks.add_for_pods(TWO, 6)
    marks.add_for_pods(ONE, 8)
    clock.step(PODS_SECONDS)
    assert marks.take(9) == [(TWO, 7), (ONE, 8)]
    assert not marks.add_for_pods(TWO, 9)
    marks.add_soon(TWO)
    marks.add_for_pods(ONE, 9)
    clock.step(PODS_SECONDS)
    assert marks.take(9) == [(TWO, 9), (ONE, 9)]


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


def change_pod(watches: Watches, job: JobKey, name: str, version: int, phase: str) -> None:
    key = {labels.JOB_NAME: job.name, labels.JOB_UID: job.uid}
    owner = {"controller": True, "uid": job.uid}
    known = {"namespace": "a", "uid": name, "resourceVersion": str(version), "ownerReferences": [owner]}
    pod = {"metadata": {"name": name, "labels": key, **known}, "spec": {}, "status": {"phase": phase}}
    watches.pods._reflector._sink.apply(WatchEvent("MODIFIED", pod))


def test_the_job_whose_last_pod_has_ended_is_taken_first_and_one_whose_pods_only_change_last() -> None:
    server: Any = SimpleNamespace(serves=bool)
    watches = Watches(server, nodes=False, clock=Clock())
    watches.pods._synced.set()
    runs, fails = JobKey("a", "runs", "3"), JobKey("a", "fails", "4")
    for version, phase in enumerate(("Pending", "Running"), start=1):
        change_pod(watches, runs, "runs", version, phase)
    watches.mark([TWO])
    for version, (name, phase) in enumerate((("stays", "Running"), ("fails", "Running"), ("fails", "Failed")), start=3):
        change_pod(watches, fails, name, version, phase)
    for version, phase in enumerate(("Running", "Succeeded"), start=6):
        change_pod(watches, ONE, "ends", version, phase)
    assert [each.key for each in watches.take(9)] == [ONE, TWO, fails, runs]
    summaries = [watches.pods_of(key, 0) for key in (runs, fails, ONE)]
    assert [(pods.occupy, pods.ended) for pods in summaries] == [(True, False), (True, True), (False, True)]


def test_a_job_that_has_ended_is_taken_before_jobs_that_were_submitted() -> None:
    server: Any = SimpleNamespace(serves=bool)
    watches = Watches(server, nodes=False, clock=Clock())
    watches._job_changed(None, job(key=TWO))
    watches._job_changed(job(key=ONE), job(key=ONE, finished=True))
    assert [each.key for each in watches.take(9)] == [ONE, TWO]


def test_the_end_of_the_last_pod_of_a_job_is_taken_at_once() -> None:
    server: Any = SimpleNamespace(serves=bool)
    watches = Watches(server, nodes=False, clock=Clock())
    watches.pods._synced.set()
    change = partial(change_pod, watches, ONE)
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
