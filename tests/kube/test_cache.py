"""After any operations, the informer's cache has the content of a plain dictionary. The cache reports each change
once.
"""

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.cache import Cache, CacheEntry, Key
from tests.support.waiting import SECONDS

keys = st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y"]))
entries = st.builds(
    CacheEntry, uid=st.sampled_from(["1", "2"]), value=st.integers(0, 3), group=st.sampled_from([None, "g", "h"])
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, entries),
        st.tuples(st.just("remove"), keys),
        st.tuples(st.just("replace"), st.dictionaries(keys, entries)),
    ),
    max_size=20,
)


def act(cache: Cache[int], model: dict[Key, CacheEntry[int]], operation: Any, version: int) -> list[Any]:
    """Apply an operation to the cache and to the model; return the changes that the cache reports."""
    match operation:
        case ("put", key, entry):
            model[key] = entry
            return cache.set(key, entry, version)
        case ("remove", key):
            model.pop(key, None)
            return cache.remove(key, version)
    listed = operation[1]
    model.clear()
    model.update(listed)
    return cache.replace(listed, version)


@given(operations)
def test_cache_holds_the_same_values_as_a_dictionary(steps: list[Any]) -> None:
    cache: Cache[int] = Cache()
    model: dict[Key, CacheEntry[int]] = {}
    for version, step in enumerate(steps, 1):
        act(cache, model, step, version)
        assert sorted(cache.values()) == sorted(entry.value for entry in model.values())
        assert all(cache.get(key) == entry.value for key, entry in model.items())
        for group in ("g", "h"):
            assert sorted(cache.indexed(group)) == sorted(e.value for e in model.values() if e.group == group)
        assert set(cache._groups) == {entry.group for entry in model.values()} - {None}
        assert cache.version == version


@given(operations)
def test_reported_changes_add_up_to_the_content_of_the_cache(steps: list[Any]) -> None:
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
def test_replacing_the_cache_with_the_same_list_reports_no_change(listed: dict[Key, CacheEntry[int]]) -> None:
    cache: Cache[int] = Cache()
    cache.replace(listed, 1)
    assert cache.replace(dict(listed), 2) == []


def test_cache_version_goes_back_with_a_list_but_not_with_events() -> None:
    cache: Cache[int] = Cache()
    cache.advance(5)
    cache.advance(3)
    cache.set(("a", "x"), CacheEntry("1", 1, None), 0)
    cache.remove(("a", "x"), 4)
    assert cache.version == 5
    cache.replace({}, 2)
    assert cache.version == 2


def test_wait_for_returns_once_the_version_is_reached() -> None:
    cache: Cache[int] = Cache()
    assert not cache.wait_for(3, 0)
    reached: list[bool] = []
    waiting = threading.Thread(target=lambda: reached.append(cache.wait_for(3, 5)))
    waiting.start()
    cache.advance(2)
    cache.set(("a", "x"), CacheEntry("1", 1, None), 3)
    waiting.join(SECONDS)
    assert reached == [True]
    assert cache.wait_for(2, 0)
