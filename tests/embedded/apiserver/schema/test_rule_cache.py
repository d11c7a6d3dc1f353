"""The cache of rule results: a rule runs again only if a value that it reads has changed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.apiserver.schema import cel, cel_evaluation, schema
from embedded.apiserver.schema.cel import RuleCache

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"count": {"type": "integer"}, "most": {"type": "integer"}, "note": {"type": "string"}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.count) || !has(self.most) || self.count <= self.most", "message": "too many"},
                {"rule": "!has(oldSelf.count) || (has(self.count) && self.count >= oldSelf.count)", "message": "less"},
            ],
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(oldSelf.status) || oldSelf.status.phase != 'Done' || self.spec == oldSelf.spec",
            "message": "done",
        }
    ],
}
specs = st.fixed_dictionaries(
    {}, optional={"count": st.integers(0, 2), "most": st.integers(0, 2), "note": st.sampled_from(["a", "b"])}
)
objects = st.fixed_dictionaries(
    {"spec": specs}, optional={"status": st.fixed_dictionaries({"phase": st.sampled_from(["Done", "New"])})}
)


def judged(node: schema.SchemaNode, new: Any, old: Any) -> list[str]:
    changed = {name for name in ("spec", "status") if old is None or new.get(name) != old.get(name)}
    return [str(cause) for cause in cel_evaluation.check_object(new, old, node, changed)]


@given(st.lists(st.tuples(objects, st.none() | objects), max_size=30))
def test_rules_have_the_same_results_with_and_without_the_cache(pairs: list[tuple[Any, Any]]) -> None:
    remembering = schema.compile_schema(SCHEMA)
    for new, old in pairs:
        assert judged(remembering, new, old) == judged(schema.compile_schema(SCHEMA), new, old)


def test_rules_do_not_run_when_only_other_fields_change(monkeypatch: pytest.MonkeyPatch) -> None:
    node, ran = schema.compile_schema(SCHEMA), []
    run = cel.run
    monkeypatch.setattr(cel, "run", lambda rule, *rest: (ran.append(rule.source), run(rule, *rest))[1])
    old = {"spec": {"count": 1}, "status": {"phase": "New"}}
    for phase in ("Admitted", "Running"):
        judged(node, {**old, "status": {"phase": phase}}, old)
    assert len(ran) == 2  # the rule at the root, and the rule of the spec that compares with the old object
    judged(node, {"spec": {"count": 0}}, old)
    judged(node, {"spec": {"count": 0}}, old)
    assert (
        ran.count("!has(oldSelf.count) || (has(self.count) && self.count >= oldSelf.count)") == 3
    )  # failures are not cached


def test_cache_of_rule_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cel, "MOST", 10)
    memory = RuleCache()
    for number in range(100):
        memory.add(b"%d" % number)
    assert len(memory._keys) <= 10


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"a": "1"}),
        ({"a": 1}, {"a": True}),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
    ],
)
def test_cache_keys_differ_for_different_values(left: Any, right: Any) -> None:
    rule = cel.compile_rule({"rule": "self.a == oldSelf.a"})
    pairs = ((left, right), (right, left), (left, left), (right, right))
    assert len({cel.cache_key(rule, *pair, {}) for pair in pairs}) == len(pairs)


def test_path_in_has_is_read_for_its_presence_only() -> None:
    rule = cel.compile_rule({"rule": "!has(self.a) || !has(oldSelf.a.b) || self.a.b == oldSelf.c"})
    assert set(rule.reads) == {
        (False, ("a",), True),
        (True, ("a", "b"), True),
        (False, ("a", "b"), False),
        (True, ("c",), False),
    }
    asked = [cel.cache_key(rule, {"a": {"b": 1, "d": each}}, {"a": {"b": each}, "c": 1}, {}) for each in (1, 2)]
    assert asked[0] == asked[1]
