"""Searches of long queues for jobs that can go though no job can that is known."""

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues import unread_search
from queues.pick_cycle import PickCycle
from queues.placement.gangs import Gang, Members
from queues.placement.places import Places
from queues.rules import PickRules
from queues.store import QueueStore
from queues.values import Entry, NextEntries, QueueSpec
from tests.support.queues.builders import GPU, START, entry, key, opened, reservation, resources, spec
from tests.support.queues.clusters import room_of, shape

RULES = PickRules(cost="jobs")


def line(demands: Collection[dict[str, int]]) -> list[Entry]:
    """Return waiting jobs of one queue, one per second."""
    return [entry(f"a-{at:04}", "a", START + at, **demand) for at, demand in enumerate(demands)]


def picked(store: QueueStore, depth: int, rounds: int = 40, places: Places | None = None) -> list[str]:
    """Return the names of the jobs that rounds pick which read `depth` jobs of a queue."""
    ages = {"a": [1000.0]}  # so no first job gets late meanwhile
    cycle = PickCycle(store, RULES, ages=lambda _: ages, places=lambda: places)
    times = [START + 1000 + round * unread_search.SECONDS for round in range(rounds)]
    reservations = [reservation for now in times for reservation in cycle.run(now, 8, depth).reservations]
    return [reservation.key.name for reservation in reservations]


def names(found: NextEntries) -> tuple[list[str], int, int]:
    return [waiting.entry.key.name for waiting in found.heads], found.after, found.waiting


def test_store_finds_jobs_with_other_demands_behind_the_known_ones(store: QueueStore) -> None:
    store.rebuild(2, [], line([{"gpu": 1}, {"gpu": 1}, {"cpu": 2}, {"gpu": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 2}]))
    store.configure([spec("a"), spec("b")], None)
    known = [{"jobs": 1, GPU: 1}]

    assert names(store.find_others("a", 1, known, 9, 9)) == (["a-0002", "a-0004", "a-0005"], 6, 6)
    assert names(store.find_others("a", 3, [*known, {"jobs": 1, "cpu": 2}], 9, 9)) == (["a-0004"], 6, 6)
    assert names(store.find_others("a", 1, known, 3, 9)) == (["a-0002"], 4, 6), "looks at three"
    assert names(store.find_others("a", 1, known, 9, 2)) == (["a-0002", "a-0004"], 5, 6), "returns two"
    assert names(store.find_others("a", 7, known, 9, 9)) == ([], 7, 6)
    assert names(store.find_others("b", 0, [], 9, 9)) == ([], 0, 0)


@pytest.mark.parametrize("queue", [spec("a", gpu=2, cpu=8), spec("a")])
def test_jobs_for_cpus_pass_hundreds_of_jobs_that_wait_for_gpus(queue: QueueSpec) -> None:
    demands = [{"gpu": 2}] + [{"gpu": 1}] * 400 + [{"cpu": 1}] * 9
    store = opened([queue], line(demands), {GPU: 2, "cpu": 8})

    assert picked(store, 128) == ["a-0000", *(f"a-{at:04}" for at in range(401, 409))]


def test_a_job_is_found_behind_more_jobs_that_can_never_run_than_are_read() -> None:
    store = opened([spec("a", gpu=2)], line([{"gpu": 3}] * 40 + [{"gpu": 1}] * 3), {GPU: 8})

    assert picked(store, 16) == ["a-0040", "a-0041"]


def test_jobs_for_nodes_that_are_gone_hide_no_job_with_the_same_demand() -> None:
    store = opened([spec("a", gpu=2)], line([{"gpu": 1}] * 43), {GPU: 8})
    gone, here = (Gang((Members(shape(where, **{GPU: 1}), 1),)) for where in ("gone", ""))
    rooms = [room_of([{GPU: 8, "pods": 9}], {"gone": 0}) for _ in range(2)]
    places = Places(*rooms, lambda name, *_: gone if name < str(key("a-0040")) else here)

    assert picked(store, 16, places=places) == ["a-0040", "a-0041"]


def test_a_queue_with_only_jobs_left_that_never_run_holds_up_no_other_queue() -> None:
    others = [entry(f"b-{number}", "b", START + number, cpu=1) for number in range(3)]
    waiting = line([{"gpu": 9}] * 16 + [{"gpu": 1}] * 2 + [{"gpu": 9}] * 60)
    store = opened([spec("a"), spec("b")], [*waiting, *others], {GPU: 8, "cpu": 1})
    cycle = PickCycle(store, RULES, ages=lambda _: {"a": [1000.0], "b": [1000.0]})
    for number in range(40):
        cycle.run(START + 1000 + number, 8, 16)
        store.remove([each for each in store.all_reservations() if each.name < "b-2" and each.name > "b"])

    assert {each.name for each in store.all_reservations()} == {"a-0016", "a-0017", "b-2"}


def test_no_job_passes_the_first_one_of_a_queue_in_strict_order() -> None:
    queue = QueueSpec(name="a", quota=resources(gpu=2, cpu=8), strict=True)
    store = opened([queue], line([{"gpu": 2}, *([{"gpu": 1}] * 40), {"cpu": 1}]), {GPU: 8, "cpu": 8})

    assert picked(store, 16) == ["a-0000"]


def test_no_job_passes_one_that_was_found_behind_jobs_that_never_run_in_strict_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread_search, "LOOKED_AT", 8)
    queue = QueueSpec(name="a", quota=resources(gpu=2, cpu=8), strict=True)
    waiting = line([{"gpu": 3}] * 40 + [{"gpu": 2}] * 2 + [{"gpu": 3}] * 20 + [{"cpu": 1}])
    store = opened([queue], waiting, {GPU: 8, "cpu": 8})
    cycle = PickCycle(store, RULES, ages=lambda _: {"a": [1000.0]})
    for number in range(40):  # the queue is read anew in each round
        store.put([entry(f"z-{number}", "a", START + 999, gpu=3)])
        cycle.run(START + 1000 + number, 8, 16)

    assert [each.key.name for each in store.all_reservations().values()] == ["a-0040"]


@pytest.mark.parametrize("rounds", [1, 4])
def test_no_job_passes_in_strict_order_when_a_job_in_front_is_cancelled(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_search, "LOOKED_AT", 4)
    queue = QueueSpec(name="a", quota=resources(gpu=2), strict=True)
    store = opened([queue], line([{"gpu": 3}] * 40 + [{"gpu": 2}, {"gpu": 1}]), {GPU: 8})
    cycle = PickCycle(store, RULES, ages=lambda _: {"a": [1000.0]})
    for number in range(20):
        if number == rounds:
            store.remove([key("a-0000")])
        cycle.run(START + 1000 + number, 8, 16)

    assert [each.key.name for each in store.all_reservations().values()] == ["a-0040"]


def test_the_first_job_that_was_found_stays_the_first_one_whatever_is_found_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread_search, "LOOKED_AT", 4)
    waiting = line([{"gpu": 9}] * 40 + [{"gpu": 8}] + [{"gpu": 9}] * 9 + [{"gpu": 8, "cpu": 1}] * 3)
    store = opened([spec("a"), spec("b")], waiting, {GPU: 8, "cpu": 9}, [reservation("runs", "b", gpu=1)])
    cycle = PickCycle(store, RULES, ages=lambda _: {"a": [1000.0]})
    for number in range(30):
        store.put([entry(f"b-{number}", "b", START + number)])  # it overtakes the first job of a
        if number % 3:
            store.put([entry(f"a-9{number}", "a", START + 900, gpu=9)])  # then the queue is read anew
        cycle.run(START + 1000 + number, 8, 16)

    record = store._content.overtaken["a"]
    assert (record.key, record.times >= 20) == (key("a-0040"), True)


def test_searches_end_when_nothing_has_changed() -> None:
    store = opened([spec("a", gpu=1)], line([{"gpu": 1}] * 100), {GPU: 8})
    asked = []
    find = store.find_others
    store.find_others = lambda *arguments: asked.append(arguments) or find(*arguments)  # type: ignore[method-assign,func-returns-value]

    picked(store, 16, 40)

    assert 1 <= len(asked) <= 2


demands = st.fixed_dictionaries({"gpu": st.integers(0, 2), "cpu": st.integers(0, 3)})


@settings(max_examples=100)
@given(st.lists(demands, max_size=25), st.integers(1, 8), st.integers(1, 9))
def test_depth_of_reading_changes_no_pick(waiting: list[dict[str, int]], depth: int, window: int) -> None:
    queue = spec("a", gpu=4, cpu=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unread_search, "LOOKED_AT", window)
        near = picked(opened([queue], line(waiting), {GPU: 9, "cpu": 9}), depth, 60)

    assert near == picked(opened([queue], line(waiting), {GPU: 9, "cpu": 9}), 1000, 20)
