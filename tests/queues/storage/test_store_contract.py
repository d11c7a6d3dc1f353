"""The contract of every queue store: in memory and on Redis."""

from dataclasses import replace

import pytest

from crds.resources.amounts import DEVICES, OTHERS
from queues import errors
from queues.store import QueueStore, StoreSettings
from queues.values import Account, Batch, QueueSpec
from tests.queues.conftest import Place
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entries,
    entry,
    key,
    order,
    reservation,
    run,
    spec,
    specs,
    usage,
    used,
)


def heads(store: QueueStore, queue: str = "a", most: int = 100) -> list[str]:
    views = {view.spec.name: view for view in store.snapshot(most).queues}
    return [waiting.entry.key.name for waiting in views[queue].heads]


def batch(store: QueueStore, limit: int = 100, cost: str = "jobs") -> Batch:
    return choose(store.snapshot(limit), START, limit, cost)


# Epochs


def test_lost_store_refuses_every_call_except_a_rebuild(place: Place) -> None:
    store = place.open()
    assert store.epoch() == 0
    for refused in (
        lambda: store.snapshot(1),
        lambda: store.configure([], None),
        lambda: store.put([entry("job")]),
        lambda: store.put([]),
        lambda: store.remove([key("job")]),
        store.reservations,
        lambda: commit(store, Batch(epoch=1, revision=0, picks=())),
    ):
        with pytest.raises(errors.StoreLost):
            refused()
    store.rebuild(3, [], [])
    assert store.epoch() == 3
    assert store.snapshot(1).epoch == 3


def test_store_whose_data_vanished_is_lost_and_can_be_rebuilt(place: Place, store: QueueStore) -> None:
    store.put([entry("job")])
    place.lose()
    with pytest.raises(errors.StoreLost):
        store.snapshot(1)
    store.rebuild(2, [], [entry("job")])
    store.configure(specs(a=1), None)
    assert heads(store) == ["job"]


@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_rebuild_needs_a_higher_epoch(place: Place, epoch: int) -> None:
    store = place.open()
    store.rebuild(5, [reservation("job")], [])
    with pytest.raises(errors.StaleEpoch, match="5"):
        place.open().rebuild(epoch, [], [])
    assert store.reservations().keys() == {key("job")}


def test_store_of_an_earlier_epoch_is_refused(place: Place, store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put([entry("job")])
    picked = batch(store)
    other = place.open()
    other.rebuild(2, [], [entry("job")])
    for refused in (
        lambda: commit(store, picked),
        lambda: store.snapshot(1),
        lambda: store.configure([], None),
        lambda: store.put([entry("new")]),
        lambda: store.remove([key("job")]),
        store.reservations,
    ):
        with pytest.raises(errors.StaleEpoch):
            refused()
    assert heads(other) == ["job"]


def test_all_reservations_may_be_read_under_an_earlier_epoch(place: Place, store: QueueStore) -> None:
    other = place.open()
    assert other.all_reservations() == {}
    other.rebuild(2, [reservation("job")], [])
    assert store.all_reservations() == other.reservations()
    store.rebuild(3, store.all_reservations().values(), [])
    assert store.reservations().keys() == {key("job")}
    place.lose()
    with pytest.raises(errors.StoreLost):
        store.all_reservations()


def test_rebuild_updates_entries_that_were_prepared(place: Place) -> None:
    store = place.open()
    store.prepare(2, [*entries("a", 3), entry("gone"), entry("admitted")])
    assert store.epoch() == 0
    with pytest.raises(errors.StoreLost):
        store.put([entry("early")])
    changed = replace(entries("a", 3)[2], priority=9)
    store.rebuild(2, [reservation("admitted")], [*entries("a", 2), changed, entry("new")])
    store.configure(specs(a=1), None)
    [view] = store.snapshot(9).queues
    assert {each.entry.key for each in view.heads} == {each.key for each in [*entries("a", 3), entry("new")]}
    assert changed in [each.entry for each in view.heads]
    assert store.reservations().keys() == {key("admitted")}
    store.remove([key("admitted")])
    assert store.snapshot(9).pool_usage == {}


def test_prepared_entries_are_not_used_under_another_epoch(place: Place) -> None:
    store = place.open()
    store.prepare(2, entries("a", 3))
    place.open().rebuild(3, [], [entry("job")])
    with pytest.raises(errors.QueueError):
        store.rebuild(2, [], entries("a", 3))
    store.rebuild(4, [], [entry("job")])
    store.configure(specs(a=1), None)
    assert heads(store) == ["job"]


def test_a_rebuild_that_was_begun_is_not_overtaken_by_a_leader_of_before(place: Place) -> None:
    place.open().prepare(3, entries("a", 3))
    with pytest.raises(errors.StaleEpoch, match="at 3"):
        place.open().rebuild(2, [], [entry("job")])


def test_store_restored_to_a_lower_epoch_is_lost(place: Place) -> None:
    store = place.open()
    store.rebuild(7, [], [])
    place.lose()
    place.open().rebuild(5, [], [])
    with pytest.raises(errors.StoreLost):
        store.put([entry("job")])


def test_rebuild_replaces_entries_and_reservations_and_keeps_settings(place: Place, store: QueueStore) -> None:
    store.configure([spec("a", 5), spec("b"), spec("c")], {"jobs": 2})
    store.put([*entries("a", 3), *entries("b", 3), *entries("c", 3)])
    list(run(store, 2))
    before = store.snapshot(0)
    kept = reservation("kept", "b", epoch=1, gpu=4)
    other = place.open()
    other.rebuild(2, [kept], [entry("waits", "c")])
    after = other.snapshot(9)
    assert other.reservations() == {key("kept"): kept}
    assert [(view.spec, view.account, view.waiting) for view in after.queues] == [
        (view.spec, view.account, count) for view, count in zip(before.queues, (0, 0, 1), strict=True)
    ]
    assert (after.clock, after.pool, after.revision) == (before.clock, before.pool, before.revision)
    assert usage(after) == {"": {"jobs": 1, GPU: 4}, "b": {"jobs": 1, GPU: 4}}


def test_rebuild_charges_beyond_quota_and_pool_and_in_unknown_queues(place: Place) -> None:
    store = place.open()
    held = [reservation("one", gpu=8), reservation("two", gpu=8), reservation("lost", "gone", gpu=8)]
    store.rebuild(1, held, [])
    store.configure([spec("a", gpu=4)], {GPU: 8})
    assert usage(store.snapshot(0)) == {"": {"jobs": 3, GPU: 24}, "a": {"jobs": 2, GPU: 16}}
    store.put([entry("next", gpu=1), entry("free", cpu=1)])
    assert [pick.waiting.entry.key.name for pick in batch(store).picks] == ["free"]
    store.remove([key("one"), key("two"), key("lost")])
    assert usage(store.snapshot(0)) == {"": {}}
    assert len(batch(store).picks) == 2


# Settings


def test_revision_rises_only_when_settings_change(store: QueueStore) -> None:
    quota = spec("a", 2, gpu=4, cpu=8)
    store.configure([quota, spec("b")], {GPU: 8})
    revision = store.snapshot(0).revision
    store.configure([spec("b"), quota], {GPU: 8})
    assert store.snapshot(0).revision == revision
    for queues, pool in (
        ([quota, spec("b")], {GPU: 9}),
        ([quota, spec("b")], None),
        ([quota, spec("b", 2)], None),
        ([quota], None),
        ([replace(quota, open=False)], None),
        ([], None),
    ):
        store.configure(queues, pool)
        snapshot = store.snapshot(0)
        revision += 1
        assert snapshot.revision == revision
        assert [view.spec for view in snapshot.queues] == queues
        assert snapshot.pool == pool


def test_commit_of_an_older_revision_is_refused_whole(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 3))
    picked = batch(store)
    store.configure(specs(a=2), None)
    assert commit(store, picked).refused == "revision"
    assert store.reservations() == {}
    assert commit(store, batch(store)).refused == ""


def test_jobs_in_an_unknown_queue_wait_until_it_is_configured(store: QueueStore) -> None:
    store.configure(specs(b=1), None)
    store.put([entry("one"), entry("two", priority=1), entry("other", "b")])
    assert order(run(store, 5)) == "b"
    store.configure(specs(a=1, b=1), None)
    assert heads(store) == ["two", "one"]
    assert order(run(store, 5)) == "aa"


def test_removed_queue_that_is_ahead_returns_with_its_account(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([*entries("a", 4), *entries("b", 4)])
    assert order(run(store, 1)) == "a"
    account = store.snapshot(0).queues[0].account
    store.configure(specs(b=1), None)
    assert store.snapshot(0).departed == {"a": account}
    store.configure(specs(a=1, b=1), None)
    assert store.snapshot(0).departed == {}
    assert store.snapshot(0).queues[0].account == account
    assert order(run(store, 3)) == "bab"


def test_account_of_a_removed_queue_ends_when_the_others_have_caught_up(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1, c=1), None)
    store.put([*entries("a", 4), *entries("b", 4), *entries("c", 4)])
    assert order(run(store, 1)) == "a"
    store.configure(specs(b=1, c=1), None)
    assert order(run(store, 1)) == "b"
    assert set(store.snapshot(0).departed) == {"a"}
    assert order(run(store, 1)) == "c"
    assert store.snapshot(0).departed == {}
    store.configure(specs(a=1, b=1, c=1), None)
    assert store.snapshot(0).queues[0].account == Account()


def test_changed_aging_reorders_waiting_jobs(store: QueueStore) -> None:
    store.put([entry("old"), entry("high", submitted=START + 900, priority=1)])
    for aging, expected in ((600, ["old", "high"]), (1000, ["high", "old"]), (600, ["old", "high"])):
        store.configure([QueueSpec(name="a", aging_seconds=aging)], None)
        assert heads(store) == expected
    store.configure([QueueSpec(name="a", aging_seconds=1000)], None)
    store.configure([], None)
    store.configure([QueueSpec(name="a", aging_seconds=600)], None)
    assert heads(store) == ["old", "high"]


# Entries


def test_entries_are_ordered_by_age_and_priority_then_by_key(store: QueueStore) -> None:
    store.configure([QueueSpec(name="a", aging_seconds=100)], None)
    store.put(
        [
            entry("z-tie", namespace="a-b"),
            entry("a-tie", namespace="a"),
            entry("a-tie-1", namespace="a"),
            entry("y-younger", submitted=START + 0.250001),
            entry("x-younger", submitted=START + 0.250002),
            entry("high", submitted=START + 99, priority=1),
            entry("late", submitted=START + 102, priority=1),
            entry("low", submitted=START - 99, priority=-1),
            entry("capped", submitted=START + 700_000, priority=1_000_000),
        ]
    )
    assert heads(store) == ["high", "a-tie", "a-tie-1", "z-tie", "y-younger", "x-younger", "low", "late", "capped"]
    assert heads(store, most=2) == ["high", "a-tie"]
    assert store.snapshot(0).queues[0].waiting == 9


def version(store: QueueStore) -> int:
    return store.snapshot(1).queues[0].heads[0].version


def test_entry_version_rises_only_when_the_content_changes(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put([entry("job", gpu=1)])
    first = version(store)
    store.put([entry("job", gpu=1)])
    assert version(store) == first
    store.put([entry("job", gpu=2)])
    second = version(store)
    assert second > first
    store.remove([key("job")])
    store.put([entry("job", gpu=2)])
    assert version(store) > second


def test_entry_is_read_back_unchanged(store: QueueStore) -> None:
    put = entry("job", submitted=START + 0.123457, priority=-3, attempt=7, memory=2**50 + 1, gpu=8)
    store.configure(specs(a=1), None)
    store.put([put])
    assert store.snapshot(1).queues[0].heads[0].entry == put


def test_put_moves_a_job_to_another_queue(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("job")])
    picked = batch(store)
    store.put([entry("job", "b")])
    assert (heads(store, "a"), heads(store, "b")) == ([], ["job"])
    assert commit(store, picked).refused == "entry"
    assert order(run(store, 2)) == "b"


def test_put_ignores_a_job_with_a_reservation(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put([entry("job")])
    list(run(store, 1))
    store.put([entry("job"), entry("job", "b")])
    assert heads(store, "a") == heads(store, "b") == []


def test_remove_may_be_repeated(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put([entry("held", gpu=2), entry("waits", submitted=START + 1)])
    list(run(store, 1))
    for _ in range(2):
        store.remove([key("held"), key("waits"), key("unknown")])
        assert store.reservations() == {}
        assert usage(store.snapshot(0)) == {"": {}}
        assert heads(store) == []


def test_put_and_remove_handle_many_entries(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 1203))
    assert store.snapshot(1).queues[0].waiting == 1203
    store.remove(each.key for each in entries("a", 1201))
    assert heads(store) == ["a-1201", "a-1202"]


# Commit


def test_commit_charges_reserves_and_adds_the_jobs_to_the_work_queue(place: Place, store: QueueStore) -> None:
    store.configure(specs(a=2, b=1), {GPU: 8})
    store.put([entry("one", gpu=2, attempt=3), entry("two", "b", gpu=1, memory=2**50 + 1)])
    committed = commit(store, batch(store))
    one = reservation("one", "a", attempt=3, pick=1, paid=1, gpu=2)
    two = reservation("two", "b", pick=2, paid=1, gpu=1, memory=2**50 + 1)
    assert committed.refused == ""
    assert committed.reservations == (one, two)
    assert store.reservations() == {one.key: one, two.key: two}
    assert store.reservations([two.key, key("unknown")]) == {two.key: two}
    assert store.reservations([]) == {}
    assert usage(store.snapshot(0)) == used([one, two])
    assert place.marked() == [(one.key, "a"), (two.key, "b")]


def test_first_refused_pick_ends_the_batch_and_earlier_picks_stay(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 4))
    picked = batch(store)
    store.put([replace(entries("a", 4)[2], priority=-1)])
    committed = commit(store, picked)
    assert committed.refused == "entry"
    assert [each.key.name for each in committed.reservations] == ["a-0000", "a-0001"]
    assert store.snapshot(0).clock == picked.picks[1].clock
    assert heads(store) == ["a-0003", "a-0002"]


def test_commit_succeeds_after_new_jobs_arrive(store: QueueStore) -> None:
    store.configure(specs(a=1, b=1), None)
    store.put(entries("a", 2))
    picked = batch(store)
    store.put([*entries("b", 2), entry("urgent", submitted=START - 10)])
    assert commit(store, picked).refused == ""
    assert heads(store) == ["urgent"]


def test_repeated_commit_charges_once(store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 2))
    picked = batch(store)
    commit(store, picked)
    again = commit(store, picked)
    assert (again.reservations, again.refused) == ((), "entry")
    assert usage(store.snapshot(0))["a"] == {"jobs": 2}


@pytest.mark.parametrize(("quota", "pool", "refused"), [({"gpu": 4}, None, "quota"), ({}, {GPU: 4}, "pool")])
def test_commit_refuses_picks_beyond_quota_or_pool(
    store: QueueStore, quota: dict[str, int], pool: dict[str, int], refused: str
) -> None:
    store.configure([spec("a", **quota)], pool)
    store.put(entries("a", 2, gpu=3))
    (waiting, late) = store.snapshot(2).queues[0].heads
    (pick,) = batch(store).picks
    snapshot = store.snapshot(0)
    both = Batch(epoch=1, revision=snapshot.revision, picks=(pick, pick._replace(waiting=late)))
    committed = commit(store, both)
    assert committed.refused == refused
    assert [each.key for each in committed.reservations] == [waiting.entry.key]


def test_commit_refuses_resources_that_a_closed_pool_does_not_name(store: QueueStore) -> None:
    store.configure([spec("a")], {"cpu": 9, OTHERS: 0})
    plain_entry = entry("plain", submitted=START, cpu=9)
    claimed = replace(plain_entry, demand={**plain_entry.demand, f"gpu.example.com{DEVICES}": 8})
    store.put([claimed, entry("made-up", submitted=START + 1, gpu=1)])
    (plain, odd) = store.snapshot(2).queues[0].heads
    (pick,) = batch(store).picks
    both = Batch(epoch=1, revision=store.snapshot(0).revision, picks=(pick, pick._replace(waiting=odd)))
    committed = commit(store, both)
    assert (committed.refused, [each.key for each in committed.reservations]) == ("pool", [plain.entry.key])
    assert store.snapshot(0).pool == {"cpu": 9, OTHERS: 0}


def test_grow_entry_raises_the_charge_of_an_admitted_job(place: Place, store: QueueStore) -> None:
    store.configure([spec("a", gpu=5)], None)
    store.put([entry("job", kind="grow", gpu=2)])
    assert heads(store) == []
    store.put([entry("job", gpu=2)])
    (admitted,) = run(store, 1)
    store.put([entry("job", kind="grow", gpu=2)])
    (grown,) = run(store, 1)
    assert grown == replace(admitted, charge={"jobs": 1, GPU: 4}, grown=1)
    assert store.reservations() == {key("job"): grown}
    store.put([replace(entry("job", kind="grow", gpu=2), grown=1)])
    assert list(run(store, 1)) == []
    store.remove([key("job")])
    assert usage(store.snapshot(0)) == {"": {}}


def test_pick_numbers_continue_after_a_rebuild(place: Place, store: QueueStore) -> None:
    store.configure(specs(a=1), None)
    store.put(entries("a", 5))
    assert [each.pick for each in run(store, 3, 2)] == [1, 2, 3]
    store.rebuild(2, store.reservations().values(), entries("a", 5))
    assert [each.pick for each in run(store, 9, 2)] == [4, 5]
    assert sorted(each.pick for each in store.reservations().values()) == [1, 2, 3, 4, 5]


# Ports


def test_ports_are_assigned_in_turn_and_only_while_free(place: Place) -> None:
    store = place.open(ports=(20000, 20002))
    store.rebuild(1, [], [])
    store.configure(specs(a=1), None)
    store.put(entries("a", 6))
    assert [each.port for each in run(store, 2)] == [20000, 20001]
    store.remove([key("a-0000")])
    assert [each.port for each in run(store, 1)] == [20002]
    committed = commit(store, batch(store, limit=2))
    assert [each.port for each in committed.reservations] == [20000]
    assert committed.refused == "port"
    store.remove([key("a-0002")])
    assert [each.port for each in run(store, 9)] == [20002]


def test_job_without_a_port_is_admitted_when_no_port_is_free(place: Place) -> None:
    store = place.open(ports=(20000, 20001))
    store.rebuild(1, [], [])
    store.configure(specs(a=1), None)
    store.put([entry(f"a-{number}", submitted=START + number, port=number in (1, 3, 4)) for number in range(5)])
    assert [each.port for each in run(store, 3)] == [0, 20000, 0]
    committed = commit(store, batch(store, limit=2))
    assert [each.port for each in committed.reservations] == [20001]
    assert committed.refused == "port"
    place_of = store.place(key("a-4"))
    assert place_of is not None
    assert place_of.entry.port


def test_rebuild_keeps_ports_and_new_jobs_get_free_ones(place: Place) -> None:
    store = place.open(ports=(20000, 20005))
    store.rebuild(1, [reservation("held", port=20003), reservation("old", port=20004)], [])
    store.configure(specs(a=1), None)
    store.remove([key("old")])
    store.put(entries("a", 9))
    assert [each.port for each in run(store, 9)] == [20005, 20000, 20001, 20002, 20004]


@pytest.mark.parametrize("ports", [(0, 5), (5, 4), (5, 65536)])
def test_settings_reject_an_invalid_port_range(ports: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="range"):
        StoreSettings(ports)
