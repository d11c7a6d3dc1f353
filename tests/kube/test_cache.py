"""The informer's cache: always what a plain dictionary would hold, whatever happens, and every change told once."""

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.cache import Cache, Entry, Key
from tests.support.waiting import SECONDS

keys = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y"]))
entries = st.builds(
    Entry, uid=st.sampled_from(["1", "2"]), value=st.integers(0, 3), group=st.sampled_from([None, "g", "h"])
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, entries),
        st.tuples(st.just("remove"), keys),
        st.tuples(st.just("replace"), st.dictionaries(keys, entries)),
    ),
    max_size=20,
)


def act(cache: Cache[int], model: dict[Key, Entry[int]], operation: Any, version: int) -> list[Any]:
    """Do the same to the cache and to the model."""
    match operation:
        case ("put", key, entry):
            model[key] = entry
            return cache.put(key, entry, version)
        case ("remove", key):
            model.pop(key, None)
            return cache.remove(key, version)
    listed = operation[1]
    model.clear()
    model.update(listed)
    return cache.replace(listed, version)


@given(operations)
def test_it_holds_what_a_dictionary_would_hold(steps: list[Any]) -> None:
    cache: Cache[int] = Cache()
    model: dict[Key, Entry[int]] = {}
    for version, step in enumerate(steps, 1):
        act(cache, model, step, version)
        assert sorted(cache.values()) == sorted(entry.value for entry in model.values())
        assert all(cache.get(key) == entry.value for key, entry in model.items())
        for group in ("g", "h"):
            assert sorted(cache.indexed(group)) == sorted(e.value for e in model.values() if e.group == group)
        assert set(cache._groups) == {entry.group for entry in model.values()} - {None}
        assert cache.version == version


@given(operations)
def test_who_only_hears_the_changes_knows_the_same(steps: list[Any]) -> None:
    cache: Cache[int] = Cache()
    heard: list[int] = []
    for version, step in enumerate(steps, 1):
        for before, after in act(cache, {}, step, version):
            assert before is not None or after is not None
            if before is not None:
                heard.remove(before)
            if after is not None:
                heard.append(after)
        assert sorted(heard) == sorted(cache.values())


@given(st.dictionaries(keys, entries))
def test_the_same_list_again_is_no_change(listed: dict[Key, Entry[int]]) -> None:
    cache: Cache[int] = Cache()
    cache.replace(listed, 1)
    assert cache.replace(dict(listed), 2) == []


def test_events_never_lead_the_version_back_but_a_list_does() -> None:
    cache: Cache[int] = Cache()
    cache.advance(5)
    cache.advance(3)
    cache.put(("a", "x"), Entry("1", 1, None), 0)
    cache.remove(("a", "x"), 4)
    assert cache.version == 5
    cache.replace({}, 2)
    assert cache.version == 2


def test_a_version_is_waited_for() -> None:
    cache: Cache[int] = Cache()
    assert not cache.wait_for(3, 0)
    reached: list[bool] = []
    waiting = threading.Thread(target=lambda: reached.append(cache.wait_for(3, 5)))
    waiting.start()
    cache.advance(2)
    cache.put(("a", "x"), Entry("1", 1, None), 3)
    waiting.join(SECONDS)
    assert reached == [True]
    assert cache.wait_for(2, 0)
