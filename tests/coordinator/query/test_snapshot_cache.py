"""A snapshot that is updated by differences predicts what the picker of the store will do."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues.pick_cycle import PickCycle
from queues.picking.snapshot_cache import FIRST, SnapshotCache, can_show_more, nearly_used_up
from queues.rules import PickRules
from queues.values import Pick
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, choose, commit, entries, entry, key, reservation, spec

RULES = PickRules()
QUEUES = ("a", "b", "c")


class Seen(MemoryStore):
    """A store that records how many jobs each snapshot showed."""

    def __init__(self) -> None:
        super().__init__(lambda *_: None)
        self.shown: list[int] = []

    def snapshot(self, *arguments: object, **options: object) -> object:  # type: ignore[override]
        snapshot = super().snapshot(*arguments, **options)  # type: ignore[arg-type]
        self.shown.append(sum(len(view.heads) for view in snapshot.queues))
        return snapshot


def opened(pool: dict[str, int] | None = None, **counts: int) -> Seen:
    store = Seen()
    store.rebuild(1, [], [each for name, count in counts.items() for each in entries(name, count)])
    store.configure([spec(name, weight) for weight, name in enumerate(QUEUES, start=1)], pool)
    return store


def jobs(picks: tuple[Pick, ...]) -> list[str]:
    return [pick.waiting.entry.key.name for pick in picks]


def the_pickers(store: Seen, count: int) -> list[str]:
    return jobs(choose(store.snapshot(500), START, count, RULES).picks)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 5, 20, 60, 90, 200])
def test_a_forecast_of_any_length_has_the_picks_of_the_picker(count: int) -> None:
    store = opened(a=40, b=40, c=3)
    following = SnapshotCache(store, lambda: START)
    assert jobs(following.forecast(RULES, count)[1]) == the_pickers(store, count)


def test_a_forecast_reads_few_jobs_for_few_picks() -> None:
    store = opened(a=400, b=400, c=400)
    following = SnapshotCache(store, lambda: START)
    following.forecast(RULES, 2)
    assert store.shown == [3 * FIRST]
    following.forecast(RULES, 30)
    assert sum(store.shown) < 3 * 60


def test_a_forecast_with_a_full_pool_reads_few_jobs() -> None:
    store = opened({"jobs": 0}, a=400, b=400, c=400)
    following = SnapshotCache(store, lambda: START)
    assert following.forecast(RULES, 100)[1] == ()
    assert len(following.forecast(RULES, 100, roomy=True)[1]) == 100


def test_a_queue_with_only_unrunnable_heads_is_read_further() -> None:
    store = Seen()
    store.rebuild(
        1, [], [*(entry(f"big{at}", "a", START + at, cpu=9) for at in range(8)), entry("fits", "a", START + 9, cpu=1)]
    )
    store.configure([spec("a", 1, cpu=4)], None)
    assert jobs(SnapshotCache(store, lambda: START).forecast(RULES, 3)[1]) == ["fits"]


def test_unrunnable_jobs_of_a_strict_queue_hide_no_other_job() -> None:
    store = Seen()
    store.rebuild(1, [], [entry(f"{cpu}-{at}", "a", START + at, cpu=cpu) for at, cpu in enumerate((1, 9, 1, 9, 1))])
    store.configure([replace(spec("a", 1, cpu=4), strict=True)], None)
    assert jobs(SnapshotCache(store, lambda: START).forecast(RULES, 9)[1]) == ["1-0", "1-2", "1-4"]


@pytest.mark.parametrize(("quota", "pool"), [({"cpu": 4}, None), ({}, {"cpu": 4})])
def test_a_queue_whose_heads_find_no_room_is_read_further(quota: dict[str, int], pool: dict[str, int] | None) -> None:
    store = Seen()
    waiting = [*entries("a", 40, cpu=4), entry("fits", "a", START + 99, cpu=1)]
    store.rebuild(1, [reservation("runs", "a", cpu=1)], waiting)
    store.configure([spec("a", 1, **quota), spec("b")], pool)
    assert jobs(SnapshotCache(store, lambda: START).forecast(RULES, 3)[1]) == ["fits"]
    told = PickCycle(store, RULES).run(START, 3, 128)
    assert [each.key.name for each in told.reservations] == ["fits"]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "remove", "commit", "configure"]), st.sampled_from(QUEUES), st.integers(0, 9)
        ),
        max_size=25,
    )
)
def test_a_snapshot_updated_by_differences_equals_a_whole_one(changes: list[tuple[str, str, int]]) -> None:
    now = [START]
    store = opened({"jobs": 30}, a=5, b=5, c=5)
    following = SnapshotCache(store, lambda: now[0])
    for kind, queue, number in changes:
        match kind:
            case "put":
                store.put([entry(f"{queue}-new{number}", queue, START - number)])
            case "remove":
                store.remove([key(f"{queue}-000{number}"), key(f"{queue}-new{number}")])
            case "commit":
                commit(store, choose(store.snapshot(50), START, number, RULES))  # type: ignore[arg-type]
            case "configure":
                store.configure([spec(name, number + 1) for name in QUEUES], {"jobs": 20 + number})
        now[0] += 2  # the snapshot is stale
        seen, picks = following.forecast(RULES, 6)
        assert jobs(picks) == the_pickers(store, 6)
        assert {view.spec.name: view.waiting for view in seen.queues} == {
            view.spec.name: view.waiting
            for view in store.snapshot(1).queues  # type: ignore[attr-defined]
        }


def test_queues_that_are_used_up_and_queues_that_can_show_more() -> None:
    store = opened(a=9, b=2, c=9)
    snapshot = MemoryStore.snapshot(store, 2)
    picks = choose(snapshot, START, 9, RULES).picks
    assert nearly_used_up(snapshot, picks) <= {"a", "c"}
    assert nearly_used_up(snapshot, ()) == frozenset()
    assert can_show_more(snapshot, 4, ["a"])
    assert not can_show_more(snapshot, 4, ["b"])
    assert not can_show_more(snapshot, 2, ["a", "b", "c"])
