"""The messages of an API server about fields, in plain words.

One rule: pure and total. A message of an unknown form stays as it is. The server's verdict is never changed.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from coordinator.cli.refusals import field_paths
from crds import excerpts
from kube.errors import FieldCause

_LONGEST_VALUE = 60
_TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "object": "a map",
    "array": "a list",
}
_PATTERNS = {
    "^[a-z]([-a-z0-9]*[a-z0-9])?$": "lower-case letters, digits and hyphens, with a letter first and no hyphen last",
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "lower-case letters, digits and hyphens, with no hyphen first or last",
    "^[A-Za-z][A-Za-z0-9]{0,19}$": "1 to 20 letters and digits, with a letter first",
}
_LESS_CLEAR = "a lowercase RFC 1123"
"""The beginning of a message that repeats, for a name, what the pattern of the field says already."""
_INCOMPLETE = "some validation rules were not checked"
"""A part of the message without a field by which the server says that it stopped early."""
_INVALID = re.compile(
    r'Invalid value: (?:(?:"(?:[^"\\]|\\.)*"|[{\[].*?[}\]]|-?\d+(?:\.\d+)?|null|true|false): )?(.*)', re.DOTALL
)
_IN_BODY = re.compile(r"\S+ in body (.*)", re.DOTALL)
_TYPE = re.compile(r'must be of type (\w+): "\w+"')
_MATCH = re.compile(r"(?:should|every key must) match '?([^']*)'?")
_BOUND = re.compile(r"should be (greater|less) than or equal to (\S+)")
_LEAST = re.compile(r"should (?:have|be) at least (\d+) (?:properties|items|chars long)")
_CHOICE = re.compile(r'Unsupported value: ("(?:[^"\\]|\\.)*"): supported values: (.*)', re.DOTALL)
_LONG = re.compile(r"Too long: may not be (?:more|longer) than (\d+)(?: bytes)?")
_STRICT = "strict decoding error"


def plain_causes(causes: Iterable[FieldCause], body: Any = None) -> tuple[FieldCause, ...]:
    """Return the causes in plain words; `body` is the refused object, from which the values are shown."""
    told = [cause for cause in causes if _INCOMPLETE not in cause.message]
    explained = {cause.field for cause in told if _LESS_CLEAR not in cause.message}
    return tuple(
        FieldCause("" if cause.field == "<nil>" else cause.field, plain(cause, body))
        for cause in told
        if not (_LESS_CLEAR in cause.message and cause.field in explained)
    )


def plain(cause: FieldCause, body: Any = None) -> str:
    """Return the message of a cause in plain words."""
    message = cause.message
    if message == "Required value":
        return "is required"
    if found := _CHOICE.fullmatch(message):
        return _choice(found[1], found[2])
    if found := _LONG.match(message):
        return f"must have at most {found[1]} characters{_but(cause.field, body, size=True)}"
    found = _INVALID.fullmatch(message)
    if found is None:
        return message
    rule = found[1]
    if in_body := _IN_BODY.fullmatch(rule):
        rule = in_body[1]
    return _rule(rule, cause.field, body)


def _rule(rule: str, field: str, body: Any) -> str:
    if found := _TYPE.fullmatch(rule):
        return f"must be {_TYPES.get(found[1], found[1])}{_but(field, body)}"
    if found := _MATCH.fullmatch(rule):
        keys = "each name " if rule.startswith("every key") else ""
        return f"{keys}must be {_PATTERNS.get(found[1], 'of the form ' + found[1])}{'' if keys else _but(field, body)}"
    if found := _BOUND.fullmatch(rule):
        return f"must be at {'least' if found[1] == 'greater' else 'most'} {found[2]}{_but(field, body)}"
    if found := _LEAST.fullmatch(rule):
        return f"must have at least {found[1]} {'entry' if found[1] == '1' else 'entries'}"
    return rule


def _choice(given: str, supported: str) -> str:
    choices = [choice.strip().strip('"') for choice in supported.split(",")]
    return f"must be one of {', '.join(choices)}, not {given}{suggestion(json.loads(given), choices)}"


def _but(field: str, body: Any, *, size: bool = False) -> str:
    """Return the field that takes the place of another one, for the end of a message; nothing if no such field is
    known.
    """
    known, value = field_paths.value(body, field)
    if body is None or not known:
        return ""
    if size:
        return f"; it has {len(value)}" if isinstance(value, str) else ""
    return f", not {_shown(value)}"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case dict():
            return "a map"
        case list():
            return "a list"
        case str():
            return f"the text {excerpts.excerpt(json.dumps(value, ensure_ascii=False), _LONGEST_VALUE)}"
    return json.dumps(value)


def unknown_field(path: str, schema: Mapping[str, Any]) -> str:
    """Return the message about an unknown field, with the known field of the nearest name in the same place.

    `schema` is the structural schema of the object.
    """
    parent, _, name = path.rpartition(".")
    return f"unknown field{suggestion(name, _names(schema, parent))}"


def _names(schema: Mapping[str, Any], path: str) -> list[str]:
    """Return the names of the fields that an object may have at a path."""
    node: Mapping[str, Any] = schema
    for name in filter(None, re.split(r"[.\[\]]+", path)):
        properties, further = node.get("properties") or {}, node.get("additionalProperties")
        entries = node.get("items")
        if name in properties:
            node = properties[name]
        elif isinstance(further, Mapping):
            node = further
        elif isinstance(entries, Mapping) and name.isdecimal():
            node = entries
        else:
            return []
    return list(node.get("properties") or ())


def suggestion(given: str, known: Iterable[str]) -> str:
    """Return the question about the known name that is nearest to the given one, for the end of a message."""
    by_letters = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), by_letters, n=1)
    return f"; did you mean {by_letters[near[0]]}?" if near else ""


def title(message: str) -> str:
    """Return the first line of a refusal: the server's own, without the list that the causes give."""
    before, is_strict, _ = message.partition(" in version ")
    if is_strict and _STRICT in message:
        return f"{before} has fields that do not exist:"
    before, has_title, _ = message.partition(" is invalid: ")
    return f"{before} is invalid:" if has_title else message


def with_lines(causes: Iterable[FieldCause], line: Callable[[str], int | None]) -> Iterator[FieldCause]:
    """Yield the causes with the line of each field; `line` returns it for a path, None if it is unknown."""
    for cause in causes:
        number = line(cause.field) if cause.field else None
        yield FieldCause(f"{cause.field} (line {number})", cause.message) if number else cause
