"""Schema validation, pruning, defaults and CEL rules, without a server."""

import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedded.apiserver.schema import cel, cel_evaluation, pruning, schema_validation
from embedded.apiserver.schema.schema import compile_schema, python_pattern
from embedded.apiserver.wire import decoding


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _causes(schema: dict[str, Any], value: Any) -> list[str]:
    return [
        f"{cause.field}: {cause.message}" for cause in schema_validation.check(value, compile_schema(schema), "spec")
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^a$", "a", True),
        ("^a$", "a\n", False),
        ("a$|b", "xa", True),
        (r"^\$[$]$", "$$", True),
        (r"^[^$]+\z", "abc", True),
        ("^[]a]+$", "]a", True),
    ],
)
def test_patterns_match_as_in_re2(pattern: str, text: str, matches: bool) -> None:
    assert bool(re.search(python_pattern(pattern), text)) is matches


TEXTS = st.text(alphabet='":\\ a', max_size=4)
PAIRS = st.lists(st.tuples(TEXTS, st.recursive(TEXTS, lambda inner: st.lists(inner, max_size=2), max_leaves=3)))


@given(PAIRS, st.sampled_from([":", " :", ": "]))
def test_duplicate_keys_are_found_despite_similar_text_in_values(pairs: list[tuple[str, Any]], colon: str) -> None:
    body = ", ".join(f"{json.dumps(key)}{colon}{json.dumps(value)}" for key, value in pairs)
    text = f'{{"spec": {{{body}}}}}'.encode()
    found = decoding.duplicates(text, orjson.loads(text))
    assert bool(found) is (len({key for key, _ in pairs}) < len(pairs))


def test_unknown_fields_are_removed_and_reported() -> None:
    schema = _object(
        a={"type": "string"},
        open={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"known": _object()}},
        items={"type": "array", "items": _object(b={"type": "integer", "default": 7})},
        table={"type": "object", "additionalProperties": _object()},
    )
    value = {
        "a": "x",
        "b": 1,
        "open": {"anything": {"goes": 1}, "known": {"not": "this"}},
        "items": [{"c": 1}, {"b": None}],
        "table": {"k": {"d": 1}},
    }
    unknown = pruning.settle(value, compile_schema(schema))
    assert unknown == ["b", "open.known.not", "items[0].c", "table.k.d"]
    assert value == {
        "a": "x",
        "open": {"anything": {"goes": 1}, "known": {}},
        "items": [{"b": 7}] * 2,
        "table": {"k": {}},
    }


def test_defaults_are_not_shared() -> None:
    node = compile_schema(_object(a={"type": "array", "items": {"type": "string"}, "default": []}))
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    pruning.settle(first, node)
    pruning.settle(second, node)
    first["a"].append("x")
    assert second == {"a": []}


def test_defaults_apply_within_defaults() -> None:
    schema = _object(a={**_object(b={"type": "integer", "default": 1}), "default": {}})
    value: dict[str, Any] = {}
    pruning.settle(value, compile_schema(schema))
    assert value == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "integer", "exclusiveMinimum": True, "minimum": 1}, 1, "should be greater than 1"),
        ({"type": "number", "multipleOf": 2}, 3, "should be a multiple of 2"),
        ({"type": "string", "minLength": 2}, "a", "should be at least 2 chars long"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [], "should have at least 1 items"),
        ({"type": "object", "minProperties": 1}, {}, "should have at least 1 properties"),
        ({"type": "integer", "format": "int32"}, 2**31, "int32"),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3, "anyOf"),
        ({"type": "integer", "oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3, "oneOf"),
        ({"type": "integer", "allOf": [{"minimum": 5}]}, 3, "greater than or equal to 5"),
        ({"type": "integer", "not": {"minimum": 1}}, 3, "(not)"),
        ({"type": "string"}, None, "must be of type string"),
        ({"type": "integer", "enum": [1]}, True, "must be of type integer"),
    ],
)
def test_value_beyond_a_limit_is_refused(schema: dict[str, Any], value: Any, said: str) -> None:
    assert any(said in text for text in _causes(schema, value))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "number"}, 3),
        ({"type": "integer"}, 3.0),
        ({"type": "string", "nullable": True}, None),
        ({"x-kubernetes-int-or-string": True}, "3"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": None}]),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00.5+01:00"),
    ],
)
def test_valid_value_is_accepted(schema: dict[str, Any], value: Any) -> None:
    assert _causes(schema, value) == []


def _run(spec: dict[str, Any], new: Any, old: Any = None) -> list[str]:
    root = compile_schema(_object(spec=spec))
    before = None if old is None else {"metadata": {}, "spec": old}
    changed = {"spec"} if new != old else set()
    found = cel_evaluation.check_object({"metadata": {}, "spec": new}, before, root, changed)
    return [f"{cause.field}: {cause.message}" for cause in found]


def _ruled(rule: str, **more: Any) -> dict[str, Any]:
    fields = {"a": {"type": "integer"}, "b": {"type": "string"}, "open": {"x-kubernetes-preserve-unknown-fields": True}}
    return {**_object(**fields), "x-kubernetes-validations": [{"rule": rule, **more}]}


@pytest.mark.parametrize(
    ("rule", "value", "holds"),
    [
        ("self.a > 1", {"a": 2}, True),
        ("self.a > 1", {"a": 1}, False),
        ("has(self.b)", {}, False),
        ("!has(self.b) || self.b.matches('^[a-z]+$')", {"b": "ABC"}, False),
        ("!has(self.b) || self.b.matches('^(?i)[a-z]+$')", {"b": "ABC"}, True),
        ("self.b.lowerAscii() == 'x.matches(y)'", {"b": "X.MATCHES(Y)"}, True),
        ("self == self", {"a": 1}, True),
        ("!has(self.open) || self.open == self.open", {"open": {"x": 1}}, True),
        ("self.b.size() == 2", {"b": "ab"}, True),
    ],
)
def test_rule_accepts_or_refuses_a_value(rule: str, value: dict[str, Any], holds: bool) -> None:
    assert (_run(_ruled(rule), value) == []) is holds


def test_rule_that_fails_to_evaluate_does_not_hold() -> None:
    assert _run(_ruled("self.a > 1", message="a must be large"), {}) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: a must be large'
    ]


def test_rule_sets_message_reason_and_path() -> None:
    spec = _ruled(
        "self.a > 1", messageExpression="'a is only ' + string(self.a)", reason="FieldValueForbidden", fieldPath=".a"
    )
    assert _run(spec, {"a": 1}) == ["spec.a: Forbidden: a is only 1"]
    assert _run(_ruled("self.a > 1"), {"a": 1}) == ["spec: Invalid value: failed rule: self.a > 1"]


def test_rules_apply_to_items_of_maps_and_lists() -> None:
    part = _ruled("self.a > 1", message="small")
    spec = _object(
        table={"type": "object", "additionalProperties": part},
        parts={"type": "array", "items": part},
    )
    assert _run(spec, {"table": {"k": {"a": 1}}, "parts": [{"a": 2}, {"a": 0}]}) == [
        "spec.table[k]: Invalid value: small",
        "spec.parts[1]: Invalid value: small",
    ]


def test_transition_rules_match_list_items_by_key() -> None:
    part = {
        **_object(name={"type": "string"}, a={"type": "integer"}),
        "x-kubernetes-validations": [{"rule": "self.a >= oldSelf.a"}],
    }
    spec = _object(
        parts={"type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    )
    old = {"parts": [{"name": "x", "a": 5}, {"name": "y", "a": 1}]}
    assert _run(spec, {"parts": [{"name": "y", "a": 2}, {"name": "x", "a": 5}, {"name": "new", "a": 0}]}, old) == []
    assert len(_run(spec, {"parts": [{"name": "y", "a": 2}, {"name": "x", "a": 4}]}, old)) == 1


def test_only_transition_rules_run_without_a_change() -> None:
    assert _run(_ruled("self.a > 1"), {"a": 1}, {"a": 1}) == []
    assert len(_run(_ruled("self.a > oldSelf.a"), {"a": 1}, {"a": 1})) == 1


def test_value_that_stays_as_it_was_is_not_checked_again_within_a_change() -> None:
    """The server checks unchanged values as the ratcheting of a Kubernetes API server does, for which a list without
    keys is one value.
    """
    limited = _object(a={"type": "integer", "maximum": 1})
    part = limited | {"x-kubernetes-validations": [{"rule": "self.a < 2"}]}
    spec = _object(kept=part, parts={"type": "array", "items": part}, other={"type": "integer"})
    old = {"kept": {"a": 9}, "parts": [{"a": 9}], "other": 1}
    node = compile_schema(spec)
    for new, refused in (
        (old | {"other": 2}, 0),
        (old | {"kept": {"a": 8}}, 1),
        (old | {"parts": [{"a": 9}, {"a": 1}]}, 1),
        (old | {"other": True}, 0),
    ):
        assert len(_run(spec, new, old)) == refused
        wrong_type = new["other"] is True
        assert len(list(schema_validation.check(new, node, "spec", old))) == refused + wrong_type


def test_rule_with_an_optional_old_value_runs_on_creation_too() -> None:
    ruled = _ruled("self.a > 1 || (oldSelf.hasValue() && oldSelf.value().a == self.a)", optionalOldSelf=True)
    assert _run(ruled, {"a": 2}) == []
    assert _run(ruled, {"a": 1}, {"a": 1}) == []
    assert len(_run(ruled, {"a": 1})) == 1
    assert len(_run(ruled, {"a": 1}, {"a": 2})) == 1


def test_cached_result_of_a_change_does_not_count_for_a_creation() -> None:
    ruled = _ruled("has(self.a) || (oldSelf.hasValue() && !has(oldSelf.value().a))", optionalOldSelf=True)
    root, value = compile_schema(_object(spec=ruled)), {"metadata": {}, "spec": {}}
    assert list(cel_evaluation.check_object(value, value, root, {"spec"})) == []
    assert len(list(cel_evaluation.check_object(value, None, root, {"spec"}))) == 1


def test_undeclared_fields_count_in_comparisons_of_objects() -> None:
    assert _run(_ruled("self.open == oldSelf.open"), {"open": {"x": 1}}, {"open": {"x": 1}}) == []
    assert len(_run(_ruled("self.open == oldSelf.open"), {"open": {"x": 1}}, {"open": {"x": 2}})) == 1
    spec = {
        **_object(),
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-validations": [{"rule": "self == oldSelf"}],
    }
    assert _run(spec, {"x": [{"y": 1}]}, {"x": [{"y": 1}]}) == []
    assert len(_run(spec, {"x": [{"y": 1}]}, {"x": [{"y": 2}]})) == 1


@pytest.mark.parametrize(
    "rule",
    [{"rule": ""}, {"rule": "self.a ="}, {"rule": "x"}, {"rule": "self.f()"}, {"rule": "true", "reason": "Because"},
     {"rule": "true", "optionalOldSelf": True}, {"rule": "oldSelf.orValue(1) == 1", "optionalOldSelf": True},
     {"rule": "oldSelf.hasValue()"}, {"rule": "has_old_self"}, {"rule": "true", "messageExpression": "1 +"}],
)  # fmt: skip
def test_invalid_rule_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        cel.compile_rule(rule)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("self.a == 1", [("a",)]),
        ("self.b.size() == 1 && has(self.x.y)", [("b",), ("x", "y")]),
        ("self.all(k, self[k] == oldSelf.b)", [(), (), ("b",)]),
        ("'self.q' == self . a", [("a",)]),
    ],
)
def test_compiled_rule_lists_the_fields_that_it_reads(rule: str, fields: list[tuple[str, ...]]) -> None:
    assert list(cel.compile_rule({"rule": rule}).field_paths) == fields


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)


@settings(deadline=None)
@given(st.recursive(LEAVES, _containers))
def test_any_value_can_be_validated(value: Any) -> None:
    schema = _object(
        a={"type": "integer", "minimum": 0, "default": 3},
        b={"type": "array", "items": _object(a={"type": "string"}), "x-kubernetes-list-type": "map",
           "x-kubernetes-list-map-keys": ["a"]},
        c={"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}},
        d=_ruled("!has(self.a) || self.a > 0"),
    )  # fmt: skip
    node = compile_schema(schema)
    pruning.settle(value, node)
    problems = list(schema_validation.check(value, node, "spec"))
    if not problems:
        assert pruning.settle(value, node) == []
        list(
            cel_evaluation.check_object(
                {"metadata": {}, "spec": value}, None, compile_schema(_object(spec=schema)), {"spec"}
            )
        )
