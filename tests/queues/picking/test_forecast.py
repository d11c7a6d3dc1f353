"""A forecast picks and explains as the picker does, and leaves the store as it is."""

from queues.picking.explain import explain
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.values import Batch
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import START, choose, entries, entry, key, reservation, spec, specs

RULES = PickRules()


def filled(heads_of_a: int = 4) -> MemoryStore:
    """Return a store with two queues without limits. Queue a has a weight of 2."""
    store = MemoryStore(lambda *_: None)
    store.rebuild(1, [], [*entries("a", heads_of_a), *entries("b", 4)])
    store.configure(specs(a=2, b=1), None)
    return store


def names(batch: Batch) -> list[str]:
    return [pick.waiting.entry.key.name for pick in batch.picks]


def test_a_forecast_continues_after_its_own_picks() -> None:
    snapshot = filled().snapshot(9)
    forecast = Picker(snapshot, RULES)
    steps = [name for limit in (1, 3, 4) for name in names(forecast.picks(START, limit))]
    assert steps == names(choose(snapshot, START, 8, RULES))


def test_a_forecast_changes_neither_the_store_nor_itself_when_it_explains() -> None:
    store = filled()
    before = store.snapshot(9)
    forecast, place = Picker(before, RULES), store.place(key("a-0001"))
    assert place is not None
    assert explain(forecast, place, START).code == "BehindOthers"
    assert names(forecast.picks(START, 8)) == names(choose(before, START, 8, RULES))
    assert store.snapshot(9) == before


def test_an_update_replaces_what_a_forecast_assumed_of_the_changed_queues() -> None:
    store = filled()
    first = store.snapshot(9)
    forecast = Picker(first, RULES)
    store.put([entry("urgent", "b", START - 99)])
    forecast.update(store.snapshot(9, first.change))
    assert names(forecast.picks(START, 9)) == names(choose(store.snapshot(9), START, 9, RULES))


def test_a_forecast_names_the_queues_whose_entries_are_used_up() -> None:
    forecast = Picker(filled(8).snapshot(2), RULES)
    assert names(forecast.picks(START, 9)) == ["a-0000", "b-0000", "a-0001"]
    assert dict(forecast.needs_entries) == {"a": 0, "b": 1}


def test_a_forecast_names_partly_read_queues_if_no_known_entry_can_go() -> None:
    store = MemoryStore(lambda *_: None)
    waiting = [*entries("a", 3, cpu=4), entry("fits", "a", START + 9, cpu=1)]
    store.rebuild(1, [reservation("runs", "a", cpu=1)], waiting)
    store.configure([spec("a", cpu=4)], None)
    forecast = Picker(store.snapshot(2), RULES)
    assert dict(forecast.partly_read(3)) == {"a": 2}
    assert dict(forecast.partly_read(2)) == {}, "no queue shows fewer than 2 entries"
