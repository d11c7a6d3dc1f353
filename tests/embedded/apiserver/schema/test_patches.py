"""Merge patch and JSON patch: the examples of their RFCs, and properties of any patch."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded.apiserver.schema import patches
from embedded.apiserver.status_errors import StatusError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b/c~d"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c/d"]), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c/d"]), VALUES, max_size=3)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
    ],
)
def test_merge_patch_gives_the_results_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert patches.merge(target, patch) == result


@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_merge_patch_is_idempotent(target: dict[str, Any], patch: dict[str, Any]) -> None:
    once = patches.merge(copy.deepcopy(target), copy.deepcopy(patch))
    assert patches.merge(copy.deepcopy(once), copy.deepcopy(patch)) == once


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a/b": 1}, [{"op": "test", "path": "/a~1b", "value": 1}], {"a/b": 1}),
        ({"m~n": 2}, [{"op": "remove", "path": "/m~0n"}], {}),
        ({}, [{"op": "add", "path": "", "value": {"a": 1}}], {"a": 1}),
    ],
)  # fmt: skip
def test_json_patch_applies_its_operations_in_order(target: Any, operations: Any, result: Any) -> None:
    assert patches.apply_json(target, operations) == result


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "remove", "path": "/b"}, 422),
        ({"op": "replace", "path": "/b/c", "value": 1}, 422),
        ({"op": "add", "path": "/b/c", "value": 1}, 422),
        ({"op": "add", "path": "/a/9", "value": 1}, 422),
        ({"op": "add", "path": "/a/01", "value": 1}, 422),
        ({"op": "test", "path": "/n", "value": True}, 422),
        ({"op": "add", "path": "b", "value": 1}, 422),
        ({"op": "frob", "path": "/a"}, 422),
        ({"op": "remove", "path": ""}, 422),
        ({"op": "replace", "path": "", "value": 7}, 422),
        ("remove", 400),
    ],
)
def test_json_patch_that_does_not_apply_is_refused(operation: Any, code: int) -> None:
    with pytest.raises(StatusError) as caught:
        patches.apply_json({"a": [1, 2], "n": 1}, [operation])
    assert caught.value.code == code


@settings(deadline=None)
@given(OBJECTS, st.lists(st.sampled_from(["", "/a", "/a/0", "/c~1d", "/b/a", "/-"]), max_size=3), VALUES)
def test_any_json_patch_is_applied_or_refused(target: dict[str, Any], paths: list[str], value: Any) -> None:
    operations = [
        {"op": op, "path": path, "from": paths[0], "value": value}
        for path in paths
        for op in ("add", "copy", "move", "replace", "test", "remove")
    ]
    for operation in operations:
        with contextlib.suppress(StatusError):
            target = patches.apply_json(target, [copy.deepcopy(operation)])
