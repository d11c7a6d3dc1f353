"""Patches: JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

One rule: a patch is applied to a copy that the caller owns; the whole patch applies, or it is refused.
"""

import re
from typing import Any

import orjson

from crds import excerpts
from embedded.apiserver import status_errors
from embedded.apiserver.status_errors import StatusError, bad_request
from kube.api import Manifest

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
_MOST_OPERATIONS = 10_000
_MOST_COPIED = 3 * 1024 * 1024
"""Maximum number of bytes that all `copy` operations may add to an object; each of them could double the object.

Both limits are those of Kubernetes.
"""
_LONGEST_EXCERPT = 200
"""Maximum number of characters of a path or value in a message."""


class Inapplicable(Exception):
    """The patch does not fit the object."""


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386) to the target in place, and return the result.

    Mappings are merged, null removes a value, any other value replaces it.
    """
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge(result.get(name), value)
        else:
            result[name] = value
    return result


def apply_json(target: Manifest, operations: Any) -> Manifest:
    """Apply a JSON patch (RFC 6902) to the target in place, and return the result.

    Raise StatusError (BadRequest) if the patch is malformed, and StatusError (422) if it does not apply to this object.
    """
    if operations is None:
        return target
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", f"Request entity is too large: {message}")
    document: Any = target
    budget = _MOST_COPIED
    for operation in operations:
        try:
            if operation.get("op") == "copy":
                budget -= len(_canonical(_find_or_null(document, _steps(operation.get("from")))))
            if budget < 0:
                raise Inapplicable(f"the copies add more than {_MOST_COPIED} bytes")
            document = _apply(document, operation)
        except Inapplicable as error:
            # A Kubernetes API server gives no reason, either.
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message, {}) from error
    if not isinstance(document, dict):
        text = _canonical(document)[:_LONGEST_EXCERPT].decode(errors="replace")
        raise status_errors.unreadable_patch(
            f'"{text}": couldn\'t get version/kind; json parse error: it is not an object'
        )
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), _steps(operation.get("path"))
    match kind:
        case "add":
            return _add(document, path, _value(operation))
        case "remove":
            return _remove(document, path)
        case "replace":
            return _value(operation) if not path else _set(document, path, _value(operation))
        case "test":
            # The operator == does not suffice: 1 == True in Python.
            if _canonical(_find_or_null(document, path)) != _canonical(_value(operation)):
                raise Inapplicable(f"testing value {_pointer(path)} failed")
            return document
        case "move" | "copy":
            source = _steps(operation.get("from"))
            if kind == "copy":
                return _add(document, path, orjson.loads(_canonical(_find_or_null(document, source))))
            value = _find(document, source)
            return _add(_remove(document, source), path, value)
        case _:
            raise Inapplicable(f"unknown operation {excerpts.excerpt(str(kind), _LONGEST_EXCERPT)!r}")


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise Inapplicable(f"{excerpts.excerpt(str(pointer), _LONGEST_EXCERPT)!r} is not a JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _pointer(path: list[str]) -> str:
    return excerpts.excerpt(f"/{'/'.join(path)}", _LONGEST_EXCERPT)


def _value(operation: dict[str, Any]) -> Any:
    return operation.get("value")  # a missing value is null, as with Kubernetes


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        match document:
            case dict() if step in document:
                document = document[step]
            case list():
                document = document[_index(document, step, len(document) - 1)]
            case _:
                raise Inapplicable(f"no value exists at {_pointer(path)}")
    return document


def _find_or_null(document: Any, path: list[str]) -> Any:
    """Return the same as `_find`, but null for a field that does not exist, as Kubernetes copies it."""
    parent = _find(document, path[:-1])
    return parent.get(path[-1]) if path and isinstance(parent, dict) else _find(document, path)


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    match _find(document, path[:-1]):
        case dict() as parent:
            parent[path[-1]] = value
        case list() as parent:
            parent.insert(len(parent) if path[-1] == "-" else _index(parent, path[-1], len(parent)), value)
        case _:
            raise Inapplicable(f"no value can be added at {_pointer(path)}")
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    parent = _find(document, path[:-1])
    match parent:
        case dict():
            parent[path[-1]] = value  # whether it existed or not, as with Kubernetes
        case list():
            parent[_index(parent, path[-1], len(parent) - 1)] = value
        case _:
            raise Inapplicable(f"no value can be replaced at {_pointer(path)}")
    return document


def _remove(document: Any, path: list[str]) -> Any:
    _find(document, path)
    if not path:
        raise Inapplicable("the whole object cannot be removed")
    parent = _find(document, path[:-1])
    del parent[_index(parent, path[-1], len(parent) - 1) if isinstance(parent, list) else path[-1]]
    return document


def _index(items: list[Any], step: str, highest: int) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,8}", step) or int(step) > highest:
        raise Inapplicable(f"{excerpts.excerpt(step, _LONGEST_EXCERPT)!r} is not an index of a list of {len(items)}")
    return int(step)


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise Inapplicable("the value is nested too deeply") from error
