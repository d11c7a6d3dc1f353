"""Strategic merge patches: merge patches that also merge lists, by a key of their items.

One rule: only the schema decides how values are merged (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`).
A patch may have these directives:

    $patch: replace | delete | merge      the operation on the mapping, or on the list's item, with the directive
    $retainKeys: [...]                    the only keys that remain in this mapping
    $setElementOrder/LIST: [...]          the order of the merged list
    $deleteFromPrimitiveList/LIST: [...]  the values to remove from a list of plain values
"""

from collections.abc import Iterable, Mapping
from typing import Any

from embedded.apiserver.status_errors import StatusError, bad_request

MEDIA_TYPE = "application/strategic-merge-patch+json"
DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
REMOVE = "$deleteFromPrimitiveList/"
Schema = Mapping[str, Any]


def merge(original: dict[str, Any], patch: Any, schema: Schema) -> dict[str, Any]:
    """Return the object with the patch applied; `original` may change. Raise StatusError for an invalid patch."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch is a JSON object")
    typed: dict[str, Any] = {name: original[name] for name in ("apiVersion", "kind") if name in original}
    return {**_mapping(original, patch, schema), **typed}  # a patch cannot change the type of an object


def _mapping(original: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    match patch.get(DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {name: _plain(value) for name, value in patch.items() if name != DIRECTIVE and value is not None}
        case "delete":
            return {}
        case other:
            raise StatusError(500, "InternalError", f"Unknown patch type: {other} in map")
    _retain(original, patch)
    names = {name: None for name in patch if not name.startswith("$")}
    names |= {name.partition("/")[2]: None for name in patch if name.startswith((ORDER, REMOVE))}
    for name in names:
        _field(original, patch, name, _below(schema, name))
    return original


def _retain(original: dict[str, Any], patch: dict[str, Any]) -> None:
    if RETAIN not in patch:
        return
    retained = _list(patch[RETAIN], RETAIN)
    if any(name not in retained for name in patch if not name.startswith("$") and patch[name] is not None):
        raise StatusError(422, "Invalid", f"{RETAIN} must name every key that the patch has")
    for name in [name for name in original if name not in retained]:
        del original[name]


def _field(original: dict[str, Any], patch: dict[str, Any], name: str, schema: Schema) -> None:
    before = original.get(name)
    if name in patch and patch[name] is None:
        original.pop(name, None)
        return
    match before, patch.get(name):
        case dict(), dict() as change:
            original[name] = _mapping(before, change, schema)
        case list(), list() | None if _merges(schema) or f"{REMOVE}{name}" in patch:
            original[name] = _merge_list(before, patch, name, schema)
        case _, None:
            pass
        case _, change:
            original[name] = _plain(change)


def _merges(schema: Schema) -> bool:
    return "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _below(schema: Schema, name: str) -> Schema:
    child = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties")
    return child if isinstance(child, Mapping) else {}


def _merge_list(before: list[Any], patch: dict[str, Any], name: str, schema: Schema) -> list[Any]:
    change = patch.get(name) or []
    key = str(schema.get("x-kubernetes-patch-merge-key", ""))
    if key:
        after = _by_key(list(before), change, key, schema.get("items") or {})
    else:
        removed = _list(patch.get(f"{REMOVE}{name}") or [], name)
        after = [value for value in before if value not in removed]
        for value in change:
            if value not in after:
                after.append(value)
    order = _list(patch[f"{ORDER}{name}"], name) if f"{ORDER}{name}" in patch else list(_without_deleted(change))
    return _order(after, order, before, key)


def _by_key(before: list[Any], change: list[Any], key: str, schema: Schema) -> list[Any]:
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in change):
        return [_plain(item) for item in change if DIRECTIVE not in item]
    for item in change:
        if not isinstance(item, dict) or key not in item:
            raise StatusError(500, "InternalError", f"map: {item} does not contain declared merge key: {key}")
        place = next((index for index, old in enumerate(before) if _same(old, item, key)), None)
        match item.get(DIRECTIVE), place:
            case "delete", _:
                before = [old for old in before if not _same(old, item, key)]
            case _, None:
                before.append(_plain({name: value for name, value in item.items() if name != DIRECTIVE}))
            case _, int():
                before[place] = _mapping(before[place], item, schema)
    return before


def _same(old: Any, item: dict[str, Any], key: str) -> bool:
    return isinstance(old, dict) and key in old and old[key] == item[key]


def _order(after: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """Return the items in the order of the patch; other items keep their old place among them as far as possible."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    order_keys = [identity(item) for item in order]
    old = [identity(item) for item in before]
    ordered = sorted((x for x in after if identity(x) in order_keys), key=lambda item: order_keys.index(identity(item)))
    others = [item for item in after if identity(item) not in order_keys]
    result: list[Any] = []
    while ordered and others:
        other_key, ordered_key = identity(others[0]), identity(ordered[0])
        first = other_key in old and ordered_key in old and old.index(other_key) < old.index(ordered_key)
        result.append((others if first else ordered).pop(0))
    return result + others + ordered


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"{name} is not a list")
    return value


def _plain(value: Any) -> Any:
    """Return a value without nulls and directives, for storage where no old value exists."""
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items() if not name.startswith("$") and item is not None}
        case list():
            return [_plain(item) for item in _without_deleted(value)]
    return value


def _without_deleted(items: Iterable[Any]) -> Iterable[Any]:
    return (item for item in items if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete"))
