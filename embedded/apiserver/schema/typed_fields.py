"""Decoding of objects of built-in resources as in Go: values are read into typed fields, and empty fields are left out.

One rule: the first value of a wrong type makes the request unreadable (400). The values of custom resources are checked
against their schema instead (`validation`).
"""

import base64
import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any

import orjson

from crds import timestamps
from crds.resources import quantities
from embedded.apiserver.schema.json_types import go_type_name
from embedded.apiserver.schema.schema import SchemaNode
from embedded.apiserver.status_errors import StatusError, bad_request

_WORDS: dict[str, tuple[type, ...]] = {"string": (str,), "boolean": (bool,), "object": (dict,), "array": (list,)}
_GO_TYPES = {"string": "string", "boolean": "bool", "integer": "int64", "number": "float64", "object": "struct",
             "array": "slice"}  # fmt: skip
_SIZED = (str, list, dict)
_BITS = {"int32": 31, "int64": 63}
_BREAKS = re.compile(r"[\r\n]")
_BASE64 = re.compile(r"[A-Za-z0-9+/\r\n]*")
_NUMBER = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


SECONDS, MICROSECONDS = "date-time", "micro-time"
"""The schema formats of metav1.Time and metav1.MicroTime."""
_LAYOUTS = {SECONDS: "2006-01-02T15:04:05Z07:00", MICROSECONDS: "2006-01-02T15:04:05.000000Z07:00"}
_ELEMENTS = (
    *(("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"), ("15", r"\d\d")),
    *((":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d")),
)
_FRACTIONS = {SECONDS: ("", r"([.,]\d+)?"), MICROSECONDS: (".000000", r"[.,]\d{6}")}
_PLAIN = re.compile(r"[1-9]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
"""The form of almost all times in requests, which is also the stored form."""
_ZONE = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_RANGES = (("month", 1, 12), ("day", 1, 31), ("hour", 0, 23), ("minute", 0, 59), ("second", 0, 59))


def _normalize_time(text: str, form: str) -> str:
    """Return a time in its stored form: in UTC, with seconds or with microseconds.

    Raise StatusError (BadRequest) with the message of Go for a text that is no time.
    """
    if form == SECONDS and _PLAIN.fullmatch(text):
        with contextlib.suppress(ValueError):  # what follows raises the error of Go
            timestamps.parse(text)
            return text
    rest = text
    for element, pattern in (*_ELEMENTS, _FRACTIONS[form], _ZONE):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            raise bad_request(f'parsing time "{text}" as "{_LAYOUTS[form]}": cannot parse "{rest}" as "{element}"')
        rest = rest[match.end() :]
    if rest:
        raise bad_request(f'parsing time "{text}": extra text: "{rest}"')
    numbers = [int(part) for part in re.findall(r"\d+", text[4:19])]
    for (component, low, high), number in zip(_RANGES, numbers, strict=True):
        if not low <= number <= high:
            raise _out_of_range(text, component)
    try:
        moment = timestamps.parse(re.sub(r"[.,](\d+)", lambda part: f".{part[1][:6]:0<6}", text))
        return timestamps.format_micro_time(moment) if form == MICROSECONDS else timestamps.format_time(moment)
    except (ValueError, OverflowError):
        raise _out_of_range(text, "day") from None


def _out_of_range(text: str, component: str) -> StatusError:
    return bad_request(f'parsing time "{text}": {component} out of range')


def settle(value: Any, node: SchemaNode, path: str = "") -> list[str]:
    """Decode a value in place, and return the paths of the unknown fields, which are removed.

    BadRequest at the first value of a wrong type.
    """
    unknown: list[str] = []
    _mapping(value, node, path, unknown)
    return unknown


def _read(value: Any, node: SchemaNode, path: str, unknown: list[str]) -> Any:
    """Return the value in its stored form; None if nothing is stored."""
    if value is None:
        return None
    if value.__class__ is node.plain:
        return value
    if node.limits and node.limits.format == "quantity":
        return _quantity(value)
    _check(value, node, path)
    if node.limits and node.limits.format in _TEXTS:
        return _TEXTS[node.limits.format](value)
    match value:
        case dict():
            _mapping(value, node, path, unknown)
        case list() if node.items is not None:
            blank = _blank(node.items)
            for index, item in enumerate(value):
                read = _read(item, node.items, f"{path}[{index}]", unknown)
                value[index] = blank if read is None and blank is not None else read
    return value


def _blank(node: SchemaNode) -> Any:
    return {"string": "", "integer": 0, "boolean": False, "object": {}}.get(node.type)


def _mapping(value: dict[str, Any], node: SchemaNode, path: str, unknown: list[str]) -> None:
    properties, additional = node.properties, node.additional
    for name in list(value):
        child = properties.get(name) or additional
        child_path = f"{path}.{name}" if path else name
        if child is not None:
            read = _read(value[name], child, child_path, unknown)
            if read is None and additional is child:
                read = _blank(child)
            if read is None or (name in properties and _is_empty(read, child)):
                del value[name]
            else:
                value[name] = read
        elif not node.open and (node.type == "object" or properties):
            unknown.append(child_path)
            del value[name]
    for name, child in node.defaults.items():
        if child.default is not None and name not in value:
            value[name] = orjson.loads(child.default)
            if isinstance(value[name], dict):
                _mapping(value[name], child, path, unknown)


def _is_empty(value: Any, node: SchemaNode) -> bool:
    """Return whether Go leaves the field out: an empty text, list or map that is not a pointer field."""
    if value or node.keep_empty:
        return False
    return node.omit_zero or isinstance(value, _SIZED)


def _check(value: Any, node: SchemaNode, path: str) -> None:
    if node.int_or_string:
        if type(value) not in {int, str}:
            raise _mismatch(value, path, "string")
    elif node.type == "integer":
        _check_integer(value, node, path)
    elif node.type == "number":
        if type(value) not in {int, float}:
            raise _mismatch(value, path, "float64")
    elif node.type and type(value) not in _WORDS[node.type]:
        raise _mismatch(value, path, _GO_TYPES[node.type])


def _check_integer(value: Any, node: SchemaNode, path: str) -> None:
    bits = _BITS.get(node.limits.format if node.limits else "", 63)
    if type(value) is not int:
        raise _mismatch(value, path, f"int{bits + 1}")
    if not -(2**bits) <= value < 2**bits:
        raise bad_request(f"json: cannot unmarshal number {value} into Go struct field {path} of type int{bits + 1}")


def _quantity(value: Any) -> str:
    """Return a quantity in the format of Go."""
    if type(value) not in {int, float, str}:
        raise bad_request(_NUMBER)
    try:
        return quantities.format_canonical(value)
    except ValueError:
        raise bad_request(_NUMBER) from None


def _bytes(value: str) -> str:
    """Return base64 in the format of Go."""
    try:
        return base64.b64encode(base64.b64decode(_BREAKS.sub("", value), validate=True)).decode()
    except ValueError:
        sound = _BASE64.match(value)
        end = sound.end() if sound else 0
        stray = end < len(value) and value[end] != "="
        raise bad_request(
            f"illegal base64 data at input byte {end if stray else max(0, len(value) - 1) // 4 * 4}"
        ) from None


def _mismatch(value: Any, path: str, go_type: str) -> Exception:
    value_text = f"number {value}" if type(value) is float and "int" in go_type else go_type_name(value)
    return bad_request(f"json: cannot unmarshal {value_text} into Go struct field {path} of type {go_type}")


_TEXTS: dict[str, Callable[[str], str]] = {
    "byte": _bytes,
    **{form: functools.partial(_normalize_time, form=form) for form in (SECONDS, MICROSECONDS)},
}
"""For some formats, the function that returns a text in its stored form."""
