"""Patches: JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

One rule: a patch is applied to a copy that the caller owns, and either applies as a whole or is refused.
"""

import re
from typing import Any

import orjson

from embedded.apiserver import status_errors
from embedded.apiserver.status_errors import Refusal, bad_request
from kube.api import Manifest

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
_MOST_OPERATIONS = 10_000
_MOST_COPIED = 3 * 1024 * 1024
"""Bytes that `copy` may add to an object together: each copy could double it. Both bounds are Kubernetes' own."""
_SHOWN = 200
"""Characters of a path that a message repeats."""


class Inapplicable(Exception):
    """The patch does not fit the object."""


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: mappings are merged, null removes, everything else replaces. The target is changed."""
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
    """RFC 6902. BadRequest if the patch is malformed, 422 if it does not apply to this object."""
    if operations is None:
        return target
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MOST_OPERATIONS:
        message = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise Refusal(413, "RequestEntityTooLarge", f"Request entity is too large: {message}")
    document: Any = target
    budget = _MOST_COPIED
    for operation in operations:
        try:
            budget -= _copied(document, operation)
            if budget < 0:
                raise Inapplicable(f"the copies add more than {_MOST_COPIED} bytes")
            document = _apply(document, operation)
        except Inapplicable as error:
            raise status_errors.inapplicable_patch() from error
    if not isinstance(document, dict):
        text = _canonical(document)[:_SHOWN].decode(errors="replace")
        raise status_errors.unreadable_patch(f'"{text}": couldn\'t get version/kind; json parse error: it is no object')
    return document


def _copied(document: Any, operation: dict[str, Any]) -> int:
    """The bytes an operation adds by copying."""
    return len(_canonical(_found(document, _steps(operation.get("from"))))) if operation.get("op") == "copy" else 0


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
            if not _same(_found(document, path), _value(operation)):
                raise Inapplicable(f"testing value {operation['path'][:_SHOWN]} failed")
            return document
        case "move" | "copy":
            source = _steps(operation.get("from"))
            if kind == "copy":
                return _add(document, path, _copy(_found(document, source)))
            value = _find(document, source)
            return _add(_remove(document, source), path, value)
        case _:
            raise Inapplicable(f"unknown operation {str(kind)[:_SHOWN]!r}")


def _steps(pointer: Any) -> list[str]:
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise Inapplicable(f"{str(pointer)[:_SHOWN]!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _pointer(path: list[str]) -> str:
    return f"/{'/'.join(path)}"[:_SHOWN]


def _value(operation: dict[str, Any]) -> Any:
    return operation.get("value")  # none is null, as with Kubernetes


def _find(document: Any, path: list[str]) -> Any:
    for step in path:
        match document:
            case dict() if step in document:
                document = document[step]
            case list():
                document = document[_index(document, step, len(document) - 1)]
            case _:
                raise Inapplicable(f"there is nothing at {_pointer(path)}")
    return document


def _found(document: Any, path: list[str]) -> Any:
    """The same, but a field that is not there is null, as Kubernetes copies it."""
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
            raise Inapplicable(f"nothing can be added at {_pointer(path)}")
    return document


def _set(document: Any, path: list[str], value: Any) -> Any:
    parent = _find(document, path[:-1])
    match parent:
        case dict():
            parent[path[-1]] = value  # whether it was there or not, as with Kubernetes
        case list():
            parent[_index(parent, path[-1], len(parent) - 1)] = value
        case _:
            raise Inapplicable(f"nothing can be replaced at {_pointer(path)}")
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
        raise Inapplicable(f"{step[:_SHOWN]!r} is no index of a list of {len(items)}")
    return int(step)


def _same(left: Any, right: Any) -> bool:
    # Not ==: to Python, 1 equals true.
    return _canonical(left) == _canonical(right)


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise Inapplicable("the value is nested too deeply") from error


def _copy(value: Any) -> Any:
    return orjson.loads(_canonical(value))
