"""Structural schemas of resources.

One rule: a schema is compiled once into frozen nodes; the validation of an object never reads the schema's YAML.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from embedded.apiserver.schema import cel
from embedded.apiserver.schema.cel import CompiledRule, RulePlan

_EMBEDDED: dict[str, dict[str, Any]] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_NO_RULES = RulePlan((), {})
_MOST_LOOPS = 5
_LITERAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""Escaped characters and character classes of a pattern, in which no character is an operator."""
_STEPS = re.compile(r"\.([^.\[]+)|\['((?:\\.|[^'])*)'\]")
"""A step of a rule's fieldPath: `.name` or `['name']`."""
_PLAIN = {"string": str, "integer": int, "boolean": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """The constraints of a value in addition to its type."""

    enum: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    pattern: str = ""
    matches: Callable[[str], object] | None = None
    """The function that returns a true value if a text matches the pattern."""
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaNode:
    """The schema of one value."""

    type: str = ""
    """The type of the value; any type if empty."""
    properties: Mapping[str, "SchemaNode"]
    additional: "SchemaNode | None" = None
    """The schema of a map's values."""
    items: "SchemaNode | None" = None
    required: tuple[str, ...] = ()
    limits: ValueLimits | None = None
    open: bool = False
    """Whether unknown fields are preserved."""
    int_or_string: bool = False
    nullable: bool = False
    default: bytes | None = None
    """The default as JSON; each object parses its own copy."""
    defaults: Mapping[str, "SchemaNode"] = field(default_factory=dict, compare=False, repr=False)
    """The properties that have a default."""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    all_of: tuple["SchemaNode", ...] = ()
    any_of: tuple["SchemaNode", ...] = ()
    one_of: tuple["SchemaNode", ...] = ()
    none_of: tuple["SchemaNode", ...] = ()
    rules: tuple[CompiledRule, ...] = ()
    create_plan: RulePlan = _NO_RULES
    """The rules for a new value."""
    update_plan: RulePlan = _NO_RULES
    """The rules for a value that has changed."""
    unchanged_plan: RulePlan = _NO_RULES
    """The rules for a value that has not changed: only transition rules."""
    has_rules: bool = False
    """Whether this node or a node below it has rules."""
    has_transition_rules: bool = False
    """Whether one of these rules reads the old value."""
    keep_empty: bool = False
    """Whether an empty value of a built-in resource is stored, as that of a pointer field in Go."""
    omit_zero: bool = False
    """Whether 0 or false in a built-in resource is left out."""
    plain: object = None
    """The Python class whose values need no check, as for most leaves of an object. None: every value is checked."""
    source: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The schema from which the node was compiled, for descriptions and for the merge strategies of patches."""


ANY = SchemaNode(properties={}, open=True)


def compile_schema(raw: Mapping[str, Any]) -> SchemaNode:
    """Compile a schema without `structure.problems`. Raise ValueError if a rule does not compile."""
    properties = {name: compile_schema(child) for name, child in (raw.get("properties") or {}).items()}
    if raw.get("x-kubernetes-embedded-resource"):
        properties = {name: compile_schema(child) for name, child in _EMBEDDED.items()} | properties
    additional, items = raw.get("additionalProperties"), raw.get("items")
    values = compile_schema(additional) if isinstance(additional, dict) else ANY if additional is True else None
    elements = compile_schema(items) if items else None
    rules = tuple(
        cel.compile_rule(_with_bracketed_path(raw, rule)) for rule in raw.get("x-kubernetes-validations") or ()
    )
    limits = _limits(raw)
    checked = limits or any(raw.get(key) for key in ("allOf", "anyOf", "oneOf", "not"))
    below = [*properties.values(), *filter(None, (values, elements))]
    return SchemaNode(
        source=raw,
        type=raw.get("type", ""),
        properties=properties,
        defaults={name: child for name, child in properties.items() if child.default is not None},
        additional=values,
        items=elements,
        required=tuple(raw.get("required") or ()),
        limits=limits,
        open=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
        nullable=bool(raw.get("nullable")),
        default=orjson.dumps(raw["default"]) if "default" in raw else None,
        list_type=raw.get("x-kubernetes-list-type", "atomic"),
        list_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        all_of=_nodes(raw, "allOf"),
        any_of=_nodes(raw, "anyOf"),
        one_of=_nodes(raw, "oneOf"),
        none_of=(compile_schema(raw["not"]),) if raw.get("not") else (),
        rules=rules,
        create_plan=cel.plan(rule for rule in rules if rule.on_create),
        update_plan=cel.plan(rules),
        unchanged_plan=cel.plan(rule for rule in rules if rule.is_transition),
        has_rules=bool(rules) or any(child.has_rules for child in below),
        has_transition_rules=any(rule.is_transition for rule in rules)
        or any(child.has_transition_rules for child in below),
        keep_empty=bool(raw.get("x-kept")),
        omit_zero=bool(raw.get("x-dropped")),
        plain=None if checked or raw.get("x-dropped") else _PLAIN.get(raw.get("type", "")),
    )


def _with_bracketed_path(raw: Mapping[str, Any], rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a rule with the keys of maps in brackets in its fieldPath, as in the messages of an API server."""
    node: Any = raw
    path = ""
    for plain, quoted in _STEPS.findall(rule.get("fieldPath") or ""):
        step = plain or quoted
        declared = step in (node.get("properties") or {})
        path += f".{step}" if declared else f"[{step}]"
        node = node["properties"][step] if declared else node.get("additionalProperties") or {}
        node = node if isinstance(node, dict) else {}
    return {**rule, "fieldPath": path}


def _nodes(raw: Mapping[str, Any], key: str) -> tuple[SchemaNode, ...]:
    return tuple(compile_schema(child) for child in raw.get(key) or ())


def _limits(raw: Mapping[str, Any]) -> ValueLimits | None:
    limits = ValueLimits(
        enum=tuple(raw.get("enum") or ()),
        minimum=raw.get("minimum"),
        maximum=raw.get("maximum"),
        exclusive_minimum=bool(raw.get("exclusiveMinimum")),
        exclusive_maximum=bool(raw.get("exclusiveMaximum")),
        multiple_of=raw.get("multipleOf"),
        pattern=raw.get("pattern", ""),
        matches=_matcher(raw["pattern"]) if raw.get("pattern") else None,
        min_length=raw.get("minLength"),
        max_length=raw.get("maxLength"),
        min_items=raw.get("minItems"),
        max_items=raw.get("maxItems"),
        min_properties=raw.get("minProperties"),
        max_properties=raw.get("maxProperties"),
        format=raw.get("format", ""),
    )
    return None if limits == ValueLimits() else limits


def _matcher(pattern: str) -> Callable[[str], object]:
    """Return a matcher for a pattern: Python's engine for simple patterns, else the engine of CEL, which never
    backtracks.
    """
    plain = _LITERAL.sub("", pattern)
    if ")*" in plain or ")+" in plain or "){" in plain or len(re.findall(r"[*+{]", plain)) > _MOST_LOOPS:
        return functools.partial(cel.matches, pattern=pattern)
    return re.compile(python_pattern(pattern)).search


def python_pattern(pattern: str) -> str:
    """Return an RE2 pattern in Python's syntax.

    In RE2, `$` matches only at the end of the text; in Python, it also matches before a final newline.
    """
    pieces = re.findall(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", pattern, re.DOTALL)
    return "".join({"$": r"\Z", r"\z": r"\Z"}.get(piece, piece) for piece in pieces)
