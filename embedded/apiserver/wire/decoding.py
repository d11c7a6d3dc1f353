"""From the bytes of a request to an object: media types, JSON and YAML, keys that are there twice.

One rule: what a client wrote twice is told, not chosen between in silence.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import yaml

from crds import excerpts, yamltext
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import bad_request, unsupported_media_type

YAML = "application/yaml"
_JSON = ("", "application/json")
_ACCEPTED = ("application/json", YAML)
_LARGEST_YAML = 128 * 1024
"""Bytes; everybody waits while YAML is read, which takes a second for these."""


class Twice(list[tuple[str, Any]]):
    """A JSON object with a key that is there twice."""


class _Loader(yaml.SafeLoader):
    """YAML as JSON knows it: no dates, and no text that stands for more than itself."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in known if not tag.endswith("timestamp")]
    for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_LATE_COLON = re.compile(rb'"\s+:')
_NESTED = (dict, list)
_SHORT = re.compile(r"^(?:y|Y|n|N)$")
for _letter in "yYnN":
    _Loader.yaml_implicit_resolvers[_letter] = [
        ("tag:yaml.org,2002:bool", _SHORT),
        *_Loader.yaml_implicit_resolvers.get(_letter, ()),
    ]
_Loader.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}


def check_media_type(content_type: str) -> None:
    """UnsupportedMediaType unless a body of this type can be read."""
    if content_type not in (*_JSON, YAML):
        raise unsupported_media_type(_ACCEPTED)


def parse(body: bytes, content_type: str = "") -> Any:
    """The body's value. BadRequest if it is no JSON (or YAML, where it says so)."""
    try:
        return _yaml(body) if content_type == YAML else orjson.loads(body)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {excerpts.excerpt(str(error), 500)}") from None


def patch(body: bytes) -> Any:
    """The value of a patch. BadRequest."""
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {excerpts.excerpt(str(error), 500)}") from None


def _yaml(body: bytes) -> Any:
    if len(body) > _LARGEST_YAML:
        raise ValueError(f"YAML of more than {_LARGEST_YAML >> 10} KiB is not read here: send JSON")
    yamltext.check_depth(body.decode())
    # Through JSON and back: what JSON does not know (dates, keys that are no text, infinity) is refused or made text.
    return orjson.loads(orjson.dumps(yaml.load(body, _Loader), option=orjson.OPT_NON_STR_KEYS))


def manifest(kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
    """The object of a create or update. BadRequest, UnsupportedMediaType."""
    check_media_type(content_type)
    try:
        value = parse(body, content_type)
    except Exception as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): {error}"
        ) from None
    if value is None and not kind.custom:
        value = {}
    if not isinstance(value, dict):
        word = "couldn't get version/kind; json parse error: the body is not a JSON object"
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.resource.kind}): {word}")
    return value


def applied(kind: Kind, body: bytes) -> dict[str, Any]:
    """What is applied: an object of the kind, in JSON or YAML. BadRequest."""
    try:
        value = _yaml(body) if body[:1] not in b"{" else orjson.loads(body)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {excerpts.excerpt(str(error), 500)}") from None
    if not isinstance(value, dict) or not isinstance(value.get("metadata") or {}, dict):
        raise bad_request("error decoding YAML: error unmarshaling JSON: it is no object")
    version, word = str(value.get("apiVersion") or ""), value.get("kind") or ""
    if (version, word) != (kind.resource.api_version, kind.resource.kind):
        raise bad_request(f"invalid object type: {version if '/' in version else f'/{version}'}, Kind={word}")
    value["metadata"] = value.get("metadata") or {}
    if value["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    return value


def duplicates(body: bytes, value: Any) -> list[str]:
    """The paths of keys that a JSON text names more than once; `value` is what was read of it."""
    return [] if _are_single(body, value) else _twice(body)


def _are_single(body: bytes, value: Any) -> bool:
    """Whether a text has as many colons behind quotes as its value has keys, which is soon counted: then none is there
    twice. A colon that may be none, or that is hard to see, is a doubt."""
    if b'\\\\"' in body or _LATE_COLON.search(body):
        return False
    return body.count(b'":') - body.count(b'\\":') == _count(value)


def _count(value: Any) -> int:
    """How many keys there are in a value, at any depth."""
    found, left = 0, [value]
    while left:
        each = left.pop()
        if each.__class__ is dict:
            found += len(each)
            each = each.values()
        left.extend(part for part in each if part.__class__ in _NESTED)
    return found


def _twice(body: bytes) -> list[str]:
    found: list[bool] = []

    def hook(pairs: list[tuple[str, Any]]) -> Any:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        found.append(True)
        return Twice(pairs)

    try:
        value = json.loads(body, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return []  # which is for the parser to tell
    return list(dict.fromkeys(_paths(value, ""))) if found else []


def _paths(value: Any, path: str) -> Iterator[str]:
    pairs: Iterable[tuple[str, Any]] = (
        value if isinstance(value, Twice) else value.items() if isinstance(value, dict) else ()
    )
    seen: set[str] = set()
    for key, item in pairs:
        there = f"{path}.{key}" if path else key
        if key in seen:
            yield there
        seen.add(key)
        yield from _paths(item, there)
    if isinstance(value, list) and not isinstance(value, Twice):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
