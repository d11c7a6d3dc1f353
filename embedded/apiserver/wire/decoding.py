"""Decodes the bytes of a request to an object: media types, JSON and YAML, repeated keys.

One rule: a key that a client wrote twice is reported; the server does not silently pick one of the values.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import yaml

from crds import excerpts
from embedded.apiserver.kinds.catalog import Kind
from embedded.apiserver.status_errors import bad_request, unsupported_media_type
from kube import yamltext

YAML = "application/yaml"
_JSON = ("", "application/json")
_ACCEPTED = ("application/json", YAML)
_LARGEST_YAML = 128 * 1024
"""The most bytes of YAML that are read. They take a second, in which the server answers no other request."""


class RepeatedKeys(list[tuple[str, Any]]):
    """A JSON object that has a key twice."""


class _Loader(yaml.SafeLoader):
    """A YAML loader for the values of JSON: no dates and no aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
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
    """Raise StatusError (UnsupportedMediaType) unless a body of this type can be read."""
    if content_type not in (*_JSON, YAML):
        raise unsupported_media_type(_ACCEPTED)


def parse(body: bytes, content_type: str = "") -> Any:
    """Return the body's value.

    Raise StatusError (BadRequest) if the body is not JSON (or not YAML, with that content type).
    """
    try:
        return _yaml(body) if content_type == YAML else orjson.loads(body)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {excerpts.excerpt(str(error), 500)}") from None


def patch(body: bytes) -> Any:
    """Return the value of a patch. Raise StatusError (BadRequest) if the body cannot be parsed."""
    try:
        return orjson.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {excerpts.excerpt(str(error), 500)}") from None


def _yaml(body: bytes) -> Any:
    if len(body) > _LARGEST_YAML:
        raise ValueError(f"YAML of more than {_LARGEST_YAML >> 10} KiB is not read here: send JSON")
    yamltext.check_depth(body.decode())
    # Through JSON and back: values that JSON lacks (dates, other keys than text, infinity) are refused or become text.
    return orjson.loads(orjson.dumps(yaml.load(body, _Loader), option=orjson.OPT_NON_STR_KEYS))


def manifest(kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
    """Return the object of a create or update.

    Raise StatusError (BadRequest, UnsupportedMediaType) if the body is unreadable.
    """
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
        detail = "couldn't get version/kind; json parse error: the body is not a JSON object"
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.resource.kind}): {detail}")
    return value


def apply_configuration(kind: Kind, body: bytes) -> dict[str, Any]:
    """Return the object of a server-side apply, from JSON or YAML.

    Raise StatusError (BadRequest) if the body is unreadable.
    """
    try:
        value = _yaml(body) if body[:1] not in b"{" else orjson.loads(body)
    except (ValueError, TypeError, yaml.YAMLError, RecursionError) as error:
        raise bad_request(f"error decoding YAML: {excerpts.excerpt(str(error), 500)}") from None
    if not isinstance(value, dict) or not isinstance(value.get("metadata") or {}, dict):
        raise bad_request("error decoding YAML: error unmarshaling JSON: it is no object")
    version, name = str(value.get("apiVersion") or ""), value.get("kind") or ""
    if (version, name) != (kind.resource.api_version, kind.resource.kind):
        raise bad_request(f"invalid object type: {version if '/' in version else f'/{version}'}, Kind={name}")
    value["metadata"] = value.get("metadata") or {}
    if value["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    return value


def duplicates(body: bytes, value: Any) -> list[str]:
    """Return the paths of the keys that a JSON text has more than once; `value` is the parsed text."""
    return [] if _has_single_keys(body, value) else _repeated_paths(body)


def _has_single_keys(body: bytes, value: Any) -> bool:
    """Return whether a text certainly has no repeated key: it has as many colons behind quotes as its value has keys.

    The count is cheap. In doubt the result is False: if a colon may be part of a string, or is not next to its quote.
    """
    if b'\\\\"' in body or _LATE_COLON.search(body):
        return False
    return body.count(b'":') - body.count(b'\\":') == _count_keys(value)


def _count_keys(value: Any) -> int:
    """Return the number of keys in a value, at any depth."""
    count, containers = 0, [value]
    while containers:
        container = containers.pop()
        if container.__class__ is dict:
            count += len(container)
            container = container.values()
        containers.extend(part for part in container if part.__class__ in _NESTED)
    return count


def _repeated_paths(body: bytes) -> list[str]:
    repeated: list[bool] = []

    def hook(pairs: list[tuple[str, Any]]) -> Any:
        mapping = dict(pairs)
        if len(mapping) == len(pairs):
            return mapping
        repeated.append(True)
        return RepeatedKeys(pairs)

    try:
        value = json.loads(body, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return []  # the parser reports the error
    return list(dict.fromkeys(_paths(value, ""))) if repeated else []


def _paths(value: Any, path: str) -> Iterator[str]:
    pairs: Iterable[tuple[str, Any]] = (
        value if isinstance(value, RepeatedKeys) else value.items() if isinstance(value, dict) else ()
    )
    keys: set[str] = set()
    for key, item in pairs:
        child = f"{path}.{key}" if path else key
        if key in keys:
            yield child
        keys.add(key)
        yield from _paths(item, child)
    if isinstance(value, list) and not isinstance(value, RepeatedKeys):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")
