"""Differences between snapshots, the changes that a commit reports, places of jobs, and limits of cohorts."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queues import errors, redis_keys
from queues.pick_cycle import PickCycle
from queues.redis import connection
from queues.rules import PickRules
from queues.storage.redis_store import RedisStore
from queues.store import PendingCommit, QueueStore
from queues.values import Batch, QueuePosition, QueueSnapshot, QueueSpec, Snapshot
from tests.doubles.memory_store import MemoryStore
from tests.queues import conftest
from tests.queues.storage.test_store_twins import Step, answer, steps
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entries,
    entry,
    key,
    reservation,
    resources,
    spec,
    specs,
)


class Follower:
    """A reader that takes one full snapshot and then only differences."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store
        self.shown = store.snapshot(9)
        self.views = self._by_name(self.shown)

    def look(self) -> Snapshot:
        found = self.store.snapshot(9, self.shown.change)
        self.views = self._by_name(found) if found.whole else self.views | self._by_name(found)
        self.shown = found
        return replace(found, whole=True, departed={}, queues=tuple(self.views[name] for name in sorted(self.views)))

    def _by_name(self, snapshot: Snapshot) -> dict[str, QueueSnapshot]:
        return {view.spec.name: view for view in snapshot.queues}


def check_differences(store: QueueStore, history: list[Step]) -> None:
    store.rebuild(1, [], [])
    store.configure([QueueSpec(name="a", weight=2), QueueSpec(name="b")], {GPU: 9})
    follower = Follower(store)
    for step in history:
        answer(store, step)
        assert follower.look() == replace(store.snapshot(9), departed={})


@given(history=steps)
def test_differences_add_up_to_the_full_snapshot_in_memory(history: list[Step]) -> None:
    check_differences(MemoryStore(lambda *_: None), history)


@given(history=steps)
@settings(max_examples=30)
def test_differences_add_up_to_the_full_snapshot_on_redis(redis_url: str, history: list[Step]) -> None:
    client = connection.connect(redis_url, client_name="test")
    client.flushall()
    check_differences(RedisStore(client), history)
    client.close()


@pytest.fixture
def known(store: QueueStore) -> Snapshot:
    """Return a snapshot of three queues with two jobs each."""
    store.configure(specs(a=1, b=1, c=1), None)
    store.put([*entries("a", 2), *entries("b", 2), *entries("c", 2)])
    return store.snapshot(9)


def names(snapshot: Snapshot) -> list[str]:
    return [view.spec.name for view in snapshot.queues]


def test_difference_has_changed_queues_and_requested_queues_only(store: QueueStore, known: Snapshot) -> None:
    assert known.whole
    nothing = store.snapshot(9, known.change)
    assert (nothing.whole, names(nothing), nothing.change) == (False, [], known.change)
    store.put([entry("new", "b")])
    changed = store.snapshot(1, known.change, ["c", "nobody", "b"])
    assert (changed.whole, names(changed)) == (False, ["b", "c"])
    assert [len(view.heads) for view in changed.queues] == [1, 1]
    assert [view.waiting for view in changed.queues] == [3, 2]
    assert changed.change > known.change
    assert names(store.snapshot(9, changed.change)) == []


def test_call_without_effect_keeps_the_change_number(store: QueueStore, known: Snapshot) -> None:
    store.put(entries("a", 2))
    store.remove([key("nobody")])
    store.configure([view.spec for view in known.queues], None)
    assert store.snapshot(9, known.change).change == known.change


@pytest.mark.parametrize(
    "step",
    [
        lambda store: store.configure(specs(a=5, b=1, c=1), None),
        lambda store: store.configure(specs(a=1, b=1, c=1), {GPU: 3}),
        lambda store: store.rebuild(2, [], entries("a", 1)),
    ],
)
def test_snapshot_is_whole_after_new_settings_or_a_rebuild(
    store: QueueStore, known: Snapshot, step: Callable[[QueueStore], None]
) -> None:
    step(store)
    shown = store.snapshot(9, known.change)
    assert shown == store.snapshot(9)
    assert shown.whole


@pytest.mark.parametrize("since", [0, 1, 2**50])
def test_snapshot_is_whole_for_an_unknown_change_number(store: QueueStore, known: Snapshot, since: int) -> None:
    assert store.snapshot(9, since) == known


def test_difference_is_the_same_from_every_store_on_one_place(
    place: conftest.Place, store: QueueStore, known: Snapshot
) -> None:
    other = place.open()
    store.put([entry("new", "b")])
    assert names(other.snapshot(9, known.change)) in (["b"], ["a", "b", "c"])  # a new store reads the settings first
    store.put([entry("newer", "c")])
    seen = other.snapshot(9)
    store.remove([key("new")])
    assert other.snapshot(9, seen.change) == store.snapshot(9, seen.change)


def picked(store: QueueStore, limit: int = 1) -> Batch:
    return choose(store.snapshot(9), START, limit, "jobs")


def test_commit_reports_that_nothing_else_changed(store: QueueStore, known: Snapshot) -> None:
    batch = picked(store)
    assert batch.change == known.change
    committed = commit(store, batch)
    assert (committed.alone, committed.others) == (True, ())
    assert committed.change == store.snapshot(9).change
    assert "a" in names(store.snapshot(9, known.change))
    assert names(store.snapshot(9, committed.change)) == []


def test_commit_names_queues_that_others_changed(store: QueueStore, known: Snapshot) -> None:
    batch = picked(store)
    store.put([entry("new", "c")])
    store.remove([key("b-0001")])
    committed = commit(store, batch)
    assert (committed.alone, committed.others) == (False, ("b", "c"))
    assert names(store.snapshot(9, committed.change, committed.others)) == ["b", "c"]


def test_commit_without_picks_keeps_the_change_number(store: QueueStore, known: Snapshot) -> None:
    batch = picked(store)
    store.remove([key("a-0000")])
    committed = commit(store, batch)
    assert (committed.refused, committed.alone, committed.others) == ("entry", False, ("a",))
    assert committed.change == store.snapshot(9).change
    unknown = commit(store, replace(batch, change=0))
    assert (unknown.alone, unknown.others) == (False, ())


def test_difference_shows_only_entries_behind_the_known_ones(store: QueueStore, known: Snapshot) -> None:
    store.put([*entries("a", 6), *entries("b", 6)])
    seen = store.snapshot(3)
    store.put([entry("new", "b", START + 0.5)])
    shown = store.snapshot(3, seen.change, (), {"a": 3, "b": 3, "c": 1, "nobody": 1})
    assert [(view.spec.name, view.after, view.waiting) for view in shown.queues] == [
        ("a", 3, 6),
        ("b", 0, 7),
        ("c", 1, 2),
    ]
    jobs = [[each.entry.key.name for each in view.heads] for view in shown.queues]
    assert jobs == [["a-0003", "a-0004", "a-0005"], ["b-0000", "new", "b-0001"], ["c-0001"]]
    named = store.snapshot(9, seen.change, ["a"], {"a": 3})
    assert (named.queues[0].after, len(named.queues[0].heads)) == (0, 6)
    whole = store.snapshot(9, 0, (), {"a": 3})
    assert whole == store.snapshot(9)


def test_commit_returns_the_entries_behind_the_known_ones(store: QueueStore, known: Snapshot) -> None:
    store.put([*entries("a", 9), *entries("b", 5)])
    store.configure(specs(a=2, b=1, c=1), None)
    batch = choose(store.snapshot(4), START, 3, "jobs")
    assert order_of(batch) == "abc"
    hungry = {"a": 2, "b": 3, "c": 9}
    committed = commit(store, replace(batch, heads=3, needs_entries=hungry))
    shown = {each.queue: each for each in committed.next_entries}
    assert {name: (each.after, each.waiting) for name, each in shown.items()} == {"a": (2, 8), "b": (3, 4), "c": (9, 1)}
    jobs = {name: [job.entry.key.name for job in each.heads] for name, each in shown.items()}
    assert jobs == {"a": ["a-0003", "a-0004", "a-0005"], "b": ["b-0004"], "c": []}
    for name, number in (("a", 0), ("b", 1)):
        everything = store.snapshot(9).queues[number].heads
        assert shown[name].heads == everything[hungry[name] :][:3]
    stale = commit(store, replace(batch, heads=3, needs_entries=hungry))
    assert (stale.refused, stale.next_entries) == ("entry", ())


def order_of(batch: Batch) -> str:
    return "".join(pick.waiting.entry.queue for pick in batch.picks)


def test_difference_shows_a_changed_queue_from_its_first_entry(store: QueueStore, known: Snapshot) -> None:
    store.put(entries("a", 8))
    seen = store.snapshot(3)
    store.put([entry("new", "a", START + 0.5)])
    [view] = store.snapshot(9, seen.change, (), {}).queues
    jobs = [each.entry.key.name for each in view.heads]
    assert jobs[:4] == ["a-0000", "new", "a-0001", "a-0002"]
    assert (view.after, view.waiting) == (0, 9)
    assert jobs == [each.entry.key.name for each in store.snapshot(9).queues[0].heads][: len(jobs)]
    assert len(store.snapshot(9, seen.change, ["a"], {}).queues[0].heads) == 9


def test_place_returns_rank_and_number_of_waiting_jobs(store: QueueStore, known: Snapshot) -> None:
    first = replace(entry("first", "a", START + 99), returning=True)
    store.put([first, entry("elsewhere", "nobody")])
    assert store.place(first.key) == QueuePosition(entry=first, rank=0, waiting=3)
    assert store.place(key("a-0001")) == QueuePosition(entry=entries("a", 2)[1], rank=2, waiting=3)
    assert store.place(key("elsewhere")) == QueuePosition(entry=entry("elsewhere", "nobody"), rank=0, waiting=1)
    assert store.place(key("unknown")) is None
    commit(store, picked(store, 9))
    assert store.place(first.key) is None


# Commits in a row: each commit begins before the outcome of the previous commit is known.


def chain(store: QueueStore, *sizes: int) -> list[PendingCommit]:
    """Split the picks of one snapshot into pending commits. Each commit names the previous commit as its
    predecessor.
    """
    whole = choose(store.snapshot(99), START, sum(sizes), "jobs")
    picks, follows = list(whole.picks), ""
    commits: list[PendingCommit] = []
    for size in sizes:
        batch = replace(whole, picks=tuple(picks[:size]), follows=follows, change=whole.change if not follows else 0)
        commits.append(store.pending_commit(batch))
        picks, follows = picks[size:], commits[-1].name
    return commits


def begun(commits: Iterable[PendingCommit], change: int = 0) -> None:
    for pending in commits:
        pending.begin(change)


def test_commits_may_begin_before_the_previous_one_is_answered(store: QueueStore, known: Snapshot) -> None:
    commits = chain(store, 2, 3, 1)
    begun(commits, known.change)
    outcomes = [pending.outcome() for pending in commits]
    assert [(each.picked, each.refused, each.alone, each.others) for each in outcomes] == [
        (2, "", True, ()),
        (3, "", True, ()),
        (1, "", True, ()),
    ]
    assert [each.pick for pending in commits for each in pending.reservations()] == [1, 2, 3, 4, 5, 6]
    assert outcomes[-1].change == store.snapshot(9).change


def test_commit_after_a_partly_refused_commit_is_refused_whole(place: conftest.Place, store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 6))
    commits = chain(store, 1, 2, 2, 1)
    store.remove([key("a-0002")])
    begun(commits)
    outcomes = [pending.outcome() for pending in commits]
    assert [(each.picked, each.refused) for each in outcomes] == [
        (1, ""),
        (1, "entry"),
        (0, "predecessor"),
        (0, "predecessor"),
    ]
    assert [key.name for key in sorted(store.reservations())] == ["a-0000", "a-0001"]
    assert [key.name for key, _ in place.marked()] == ["a-0000", "a-0001"]
    assert [pending.reservations() for pending in commits[2:]] == [(), ()]
    assert commit(store, picked(store, 9)).refused == "", "a process that looks again may continue"


def test_commit_is_refused_if_its_predecessor_was_not_the_last_commit(place: conftest.Place, store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 4))
    first, second = chain(store, 1, 1)
    begun([first])
    other = replace(picked(place.open()), epoch=1)
    assert commit(place.open(), other).picked == 1
    begun([second])
    assert (first.outcome().refused, second.outcome().refused) == ("", "predecessor")
    assert commit(store, replace(picked(store), follows="nobody")).refused == "predecessor"
    assert [key.name for key in sorted(store.reservations())] == ["a-0000", "a-0001"]


def test_following_commit_names_queues_changed_since_its_predecessor(store: QueueStore, known: Snapshot) -> None:
    first, second, third = chain(store, 1, 1, 1)
    store.put([entry("new", "c")])
    begun([first], known.change)
    begun([second])
    store.put([entry("newer", "b")])
    begun([third])
    outcomes = [each.outcome() for each in (first, second, third)]
    assert [(each.alone, each.others) for each in outcomes] == [(False, ("c",)), (True, ()), (False, ("b",))]


# Cohorts: in each refused case, the first job is admitted and the second job is not.


@pytest.mark.parametrize(
    ("borrowing", "held", "asked", "refused"),
    [
        ({}, 0, (6, 2), ""),  # queue a uses its own 4 and the 4 of queue b
        ({}, 0, (6, 3), "cohort"),
        ({}, 3, (4, 1), ""),
        ({}, 3, (4, 2), "cohort"),
        ({"gpu": 1}, 0, (4, 1), ""),
        ({"gpu": 1}, 0, (4, 2), "quota"),
        ({"gpu": 0}, 0, (4, 1), "quota"),
        ({"cpu": 0}, 0, (6, 2), ""),
    ],
)
def test_commit_refuses_picks_beyond_cohort_or_borrowing_limits(
    store: QueueStore, borrowing: dict[str, int], held: int, asked: tuple[int, int], refused: str
) -> None:
    other = replace(spec("b", gpu=4), cohort="x")
    unlimited = QueueSpec(name="c", cohort="x")
    ours = replace(spec("a", gpu=4), cohort="x", borrowing=resources(**borrowing))
    store.rebuild(2, [reservation("held", "b", gpu=held), reservation("free", "c", gpu=99)], [])
    store.configure([ours, other, unlimited], None)
    store.put([entry("one", gpu=asked[0]), entry("two", submitted=START + 1, gpu=asked[1])])
    snapshot = store.snapshot(9)
    (pick,) = picked(store).picks
    late = snapshot.queues[0].heads[1]
    committed = commit(
        store,
        Batch(epoch=2, revision=snapshot.revision, picks=(pick, pick._replace(waiting=late)), change=snapshot.change),
    )
    assert committed.refused == refused
    assert len(committed.reservations) == (1 if refused else 2)
    store.remove([each.key for each in committed.reservations])
    store.remove([key("held")])
    if borrowing != {"gpu": 0}:
        store.put([entry("all", submitted=START - 9, gpu=8 if not borrowing.get("gpu") else 5)])
        assert [each.key.name for each in commit(store, picked(store)).reservations] == ["all"], (
            "the whole room was given back"
        )


# Rounds


@pytest.mark.parametrize("limit", [1, 3, 64])
def test_rounds_pick_the_same_jobs_as_fresh_snapshots(place: conftest.Place, limit: int) -> None:
    def admitted(cycle: Callable[[QueueStore], tuple[str, ...]]) -> list[str]:
        place.lose()
        store = place.open()
        store.rebuild(1, [], [])
        store.configure(specs(a=3, b=2, c=1), None)
        found: list[str] = []
        for number in range(6):
            store.put(replace(each, submitted=START + number) for name in "abc" for each in entries(name, 4 * number))
            while names := cycle(store):
                found += names
        return found

    rounds: list[PickCycle] = []

    def kept(store: QueueStore) -> tuple[str, ...]:
        if not rounds:
            rounds.append(PickCycle(store, PickRules()))
        return tuple(each.key.name for each in rounds[0].run(START, limit, 5).reservations)

    def fresh(store: QueueStore) -> tuple[str, ...]:
        return tuple(
            each.key.name for each in commit(store, choose(store.snapshot(5), START, limit, "jobs")).reservations
        )

    assert admitted(kept) == admitted(fresh)


def test_refused_batch_ends_the_round_and_drops_later_batches(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 12))
    rounds = PickCycle(Meddled(store), PickRules())
    first = rounds.run(START, 2, 99)
    assert ([each.key.name for each in first.reservations], first.refused) == (["a-0000", "a-0001", "a-0002"], "entry")
    then = rounds.run(START, 4, 99)
    assert [each.key.name for each in then.reservations] == [f"a-{number:04}" for number in range(4, 12)]


class Meddled:
    """A store in which the fourth job is removed before the second batch is committed."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._begun = 0

    def pending_commit(self, batch: Batch) -> PendingCommit:
        self._begun += 1
        if self._begun == 2:
            self._store.remove([key("a-0003")])
        return self._store.pending_commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Crowded:
    """A store in which, just before each commit, a new job arrives at the front of queue a."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self.added = 0

    def pending_commit(self, batch: Batch) -> PendingCommit:
        self._store.put([entry(f"early-{self.added}", "a", START - 1 - self.added)])
        self.added += 1
        return self._store.pending_commit(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_rounds_handle_entries_that_arrive_before_each_commit(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([each for name in "ab" for each in entries(name, 40)])
    crowded = Crowded(store)
    rounds, picked = PickCycle(crowded, PickRules()), 0
    while (made := rounds.run(START, 4, 99)).picked or made.refused:
        assert not made.refused
        picked += made.picked
        if crowded.added > 99:
            break
    assert picked >= 80
    assert len(store.reservations()) == picked


changes = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "remove", "release", "configure", "huge"]),
        st.sampled_from("abc"),
        st.integers(0, 9),
        st.integers(-2, 2),
    ),
    max_size=9,
)


HUGE = 3


def check_rounds(
    rounds: QueueStore, whole: QueueStore, history: list[list[tuple[str, str, int, int]]], most: int
) -> None:
    """Check that rounds, which see a few jobs of each queue, pick the same jobs as one snapshot of all jobs."""
    for store in (rounds, whole):
        store.rebuild(1, [], [each for name in "abc" for each in entries(name, 9)])
        store.configure([spec("a", 3), spec("b", 2, jobs=30, gpu=8), spec("c", jobs=3)], None)
    leader = PickCycle(rounds, PickRules())
    for step in history:
        for store in (rounds, whole):
            for change in step:
                if change[0] != "huge" or most > HUGE:
                    happen(store, *change)
        taken = leader.run(START, 3, most).reservations
        expected = commit(whole, choose(whole.snapshot(99), START, len(taken), PickRules())).reservations
        assert taken == expected
        assert taken or not choose(whole.snapshot(99), START, 1, PickRules()).picks


def happen(store: QueueStore, what: str, queue: str, number: int, priority: int) -> None:
    match what:
        case "put":
            many = range(number, number + 6)
            store.put([entry(f"{queue}-{each:04}", queue, START + each, priority) for each in many])
        case "remove":
            store.remove([key(f"{queue}-{each:04}") for each in range(number, number + 3)])
        case "release":
            store.remove(sorted(store.reservations())[:number])
        case "huge":  # the jobs can never run and stand in front of all others
            store.put([entry(f"huge-{each}", "b", START - 1, 3, gpu=9) for each in range(HUGE)])
        case _:
            store.configure([spec("a", 1 + number), spec("b", 2, jobs=30, gpu=8), spec("c", jobs=3)], None)


@given(history=st.lists(changes, min_size=2, max_size=12), most=st.integers(1, 12))
def test_rounds_pick_the_same_jobs_as_a_full_snapshot_in_memory(history: list[Any], most: int) -> None:
    check_rounds(MemoryStore(lambda *_: None), MemoryStore(lambda *_: None), history, most)


@given(history=st.lists(changes, min_size=2, max_size=12), most=st.integers(1, 12))
def test_rounds_pick_the_same_jobs_as_a_full_snapshot_on_redis(redis_url: str, history: list[Any], most: int) -> None:
    client = connection.connect(redis_url, client_name="test")
    client.flushall()
    check_rounds(RedisStore(client), MemoryStore(lambda *_: None), history, most)
    client.close()


# The layout of the keys


def test_pending_commit_survives_flushed_scripts_and_lost_connections(client: connection.Connection) -> None:
    store = RedisStore(client)
    store.rebuild(1, [], entries("a", 6))
    store.configure(specs(a=1), None)
    client.script_flush()
    pending = store.pending_commit(picked(store, 2))
    pending.begin(0)
    assert not pending.outcome().refused
    assert [each.pick for each in pending.reservations()] == [1, 2]
    pending = store.pending_commit(picked(store, 2))
    pending.begin(0)
    client.client_kill_filter(_type="normal", skipme=True)
    assert not pending.outcome().refused
    assert [each.pick for each in pending.reservations()] == [3, 4]
    store.put(entries("a", 9))
    commits = chain(store, 1, 1, 1)
    begun(commits)
    done = [each.outcome() for each in commits]
    begun(commits)  # the client repeats a commit after a lost answer
    assert [each.outcome() for each in commits] == done
    assert [each.pick for pending in commits for each in pending.reservations()] == [5, 6, 7]
    stale = store.pending_commit(picked(store, 2))
    RedisStore(client).rebuild(2, [], entries("a", 1))
    stale.begin(0)
    with pytest.raises(errors.StaleEpoch):
        stale.outcome()
    assert client.ping()


def test_store_with_another_key_layout_is_lost(client: connection.Connection) -> None:
    old = RedisStore(client)
    old.rebuild(1, [reservation("held", gpu=1)], entries("a", 3))
    old.configure(specs(a=7), {GPU: 4})
    client.set(redis_keys.LAYOUT, "1")
    client.hset("torchq:usage:a", "gpu", 1)
    client.zadd("torchq:order:nobody", {"a!b!c": 1})
    store = RedisStore(client)
    assert store.epoch() == 0
    with pytest.raises(errors.StoreLost):
        store.snapshot(9)
    store.rebuild(2, [], entries("a", 2))
    store.configure(specs(a=1), None)
    assert store.inspect().unknown == ()
    assert list(store.inspect().places) == ["a"]
    assert [view.waiting for view in store.snapshot(9).queues] == [2]
    assert store.epoch() == 2
