"""Validation of an object against its schema, with the messages of a Kubernetes API server.

One rule: every problem is reported, not only the first problem, each with the path of its field.
"""

import re
from collections.abc import Iterator
from typing import Any

from crds import timestamps
from embedded.apiserver import status_errors
from embedded.apiserver.schema.json_types import json_type
from embedded.apiserver.schema.schema import SchemaNode, ValueLimits
from embedded.apiserver.status_errors import Cause
from embedded.apiserver.storage.objects import encode

_DATE_TIME = re.compile(r"[0-9]{4}(-[0-9]{2}){2}[Tt][0-9]{2}(:[0-9]{2}){2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})")
_INTEGERS = {"int32": 2**31, "int64": 2**63}


def check(value: Any, node: SchemaNode, path: str, old: Any = None) -> Iterator[Cause]:
    """Yield the problems of a value according to its schema, without its CEL rules.

    `old` is the value before a change of a custom resource. An unchanged value has no problem, as with the ratcheting
    of a Kubernetes API server: stored objects may be older than their schema.
    """
    if (value is None and node.nullable) or is_unchanged(value, old):
        return
    wrong = _type_problem(value, node, path)
    if wrong:
        yield wrong
        return
    if node.limits:
        yield from _check_limits(value, node.limits, path)
    match value:
        case dict():
            yield from _check_mapping(value, node, path, old if isinstance(old, dict) else {})
        case list():
            yield from _check_list(value, node, path)
    if node.all_of or node.any_of or node.one_of or node.none_of:
        yield from _check_junctions(value, node, path)


def is_unchanged(value: Any, old: Any) -> bool:
    """Return whether there is an old value, and the value equals it in its JSON text: 1 equals True in Python."""
    return old is not None and value == old and encode({"": value}) == encode({"": old})


def _type_problem(value: Any, node: SchemaNode, path: str) -> Cause | None:
    value_type = json_type(value)
    if node.int_or_string:
        expected = "integer,string"
        fits = value_type in {"integer", "string"}
    else:
        expected = node.type
        fits = not expected or value_type == expected or (expected == "number" and value_type == "integer")
    if fits:
        return None
    where = f"{path} in body" if path else "body"
    return status_errors.wrong_type(path, value_type, f'{where} must be of type {expected}: "{value_type}"')


def _check_mapping(value: dict[str, Any], node: SchemaNode, path: str, old: dict[str, Any]) -> Iterator[Cause]:
    for name in node.required:
        if name not in value:
            yield status_errors.required(f"{path}.{name}" if path else name)
    for name, item in value.items():
        child = node.properties.get(name) or node.additional
        if child is not None and item.__class__ is not child.plain:
            yield from check(item, child, f"{path}.{name}" if path else name, old.get(name))


def _check_list(value: list[Any], node: SchemaNode, path: str) -> Iterator[Cause]:
    if node.items is not None:
        for index, item in enumerate(value):
            if item.__class__ is not node.items.plain:
                yield from check(item, node.items, f"{path}[{index}]")
    if node.list_type in {"set", "map"}:
        yield from _check_unique(value, node, path)


def _check_unique(value: list[Any], node: SchemaNode, path: str) -> Iterator[Cause]:
    identities: set[bytes] = set()
    for index, item in enumerate(value):
        identity = {key: item.get(key) for key in node.list_keys} if isinstance(item, dict) and node.list_keys else item
        text = encode({"": identity})
        if text in identities:
            yield status_errors.duplicate(f"{path}[{index}]", identity)
        identities.add(text)


def _check_limits(value: Any, limits: ValueLimits, path: str) -> Iterator[Cause]:
    if limits.enum and not any(type(value) is type(choice) and value == choice for choice in limits.enum):
        yield status_errors.not_supported(path, value, limits.enum)
    match value:
        case str():
            yield from _check_text(value, limits, path)
        case bool():
            pass
        case int() | float():
            yield from _check_number(value, limits, path)
        case list() | dict():
            yield from _check_size(value, limits, path)


def _check_text(value: str, limits: ValueLimits, path: str) -> Iterator[Cause]:
    if limits.max_length is not None and len(value) > limits.max_length:
        yield status_errors.too_long(path, limits.max_length)
    if limits.min_length is not None and len(value) < limits.min_length:
        yield status_errors.invalid_value(
            path, value, f"{path} in body should be at least {limits.min_length} chars long"
        )
    if limits.matches and not limits.matches(value):
        yield status_errors.invalid_value(path, value, f"{path} in body should match '{limits.pattern}'")
    if limits.format == "date-time" and not _is_moment(value):
        yield status_errors.wrong_type(path, value, f'{path} in body must be of type date-time: "{value}"')


def _is_moment(text: str) -> bool:
    try:
        return bool(_DATE_TIME.fullmatch(text) and timestamps.parse(text.upper()))
    except ValueError:  # a month 13
        return False


def _check_number(value: float, limits: ValueLimits, path: str) -> Iterator[Cause]:
    low, high, bound = limits.minimum, limits.maximum, _INTEGERS.get(limits.format)
    if low is not None and (value < low or (limits.exclusive_minimum and value == low)):
        than = "greater than" if limits.exclusive_minimum else "greater than or equal to"
        yield status_errors.invalid_value(path, value, f"{path} in body should be {than} {low}")
    if high is not None and (value > high or (limits.exclusive_maximum and value == high)):
        than = "less than" if limits.exclusive_maximum else "less than or equal to"
        yield status_errors.invalid_value(path, value, f"{path} in body should be {than} {high}")
    if limits.multiple_of and value % limits.multiple_of:
        yield status_errors.invalid_value(path, value, f"{path} in body should be a multiple of {limits.multiple_of}")
    if bound is not None and not -bound <= value < bound:
        yield status_errors.invalid_value(path, value, f"{path} in body should be of type {limits.format}: {value}")


def _check_size(value: list[Any] | dict[str, Any], limits: ValueLimits, path: str) -> Iterator[Cause]:
    if isinstance(value, dict):
        least, most, unit = limits.min_properties, limits.max_properties, "properties"
    else:
        least, most, unit = limits.min_items, limits.max_items, "items"
    if most is not None and len(value) > most:
        yield status_errors.too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield status_errors.invalid_value(path, len(value), f"{path} in body should have at least {least} {unit}")


def _check_junctions(value: Any, node: SchemaNode, path: str) -> Iterator[Cause]:
    reported_value = json_type(value) if isinstance(value, dict | list) else value
    for part in node.all_of:
        yield from check(value, part, path)
    if node.any_of and not any(_satisfies(value, part, path) for part in node.any_of):
        yield status_errors.invalid_value(
            path, reported_value, f"{path} in body must validate at least one schema (anyOf)"
        )
    if node.one_of and sum(_satisfies(value, part, path) for part in node.one_of) != 1:
        yield status_errors.invalid_value(
            path, reported_value, f"{path} in body must validate one and only one schema (oneOf)"
        )
    if any(_satisfies(value, part, path) for part in node.none_of):
        yield status_errors.invalid_value(path, reported_value, f"{path} in body must not validate the schema (not)")


def _satisfies(value: Any, node: SchemaNode, path: str) -> bool:
    return next(check(value, node, path), None) is None
