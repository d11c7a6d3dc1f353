"""Strategic merge patches: merge patches that know which lists are merged, and by which field.

One rule: what is merged how stands in the schema (`x-kubernetes-patch-strategy`, `x-kubernetes-patch-merge-key`), never
here. The directives a patch may carry:

    $patch: replace | delete | merge      what becomes of the mapping, or of the list's item, that it stands in
    $retainKeys: [...]                    of this mapping, only these keys stay
    $setElementOrder/LIST: [...]          how the merged list is to be ordered
    $deleteFromPrimitiveList/LIST: [...]  values to take out of a list of plain values
"""

from collections.abc import Iterable, Mapping
from typing import Any

from embedded.apiserver.status_errors import Refusal, bad_request

MEDIA_TYPE = "application/strategic-merge-patch+json"
DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
REMOVE = "$deleteFromPrimitiveList/"
Schema = Mapping[str, Any]


def merge(original: dict[str, Any], patch: Any, schema: Schema) -> dict[str, Any]:
    """The object with the patch applied; the original is used up. Refused if the patch cannot be read."""
    if not isinstance(patch, dict):
        raise bad_request("a strategic merge patch is a JSON object")
    typed: dict[str, Any] = {name: original[name] for name in ("apiVersion", "kind") if name in original}
    return {**_mapping(original, patch, schema), **typed}  # whatever type the patch claims to be of


def _mapping(original: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    match patch.get(DIRECTIVE):
        case None | "merge":
            pass
        case "replace":
            return {name: _plain(value) for name, value in patch.items() if name != DIRECTIVE and value is not None}
        case "delete":
            return {}
        case other:
            raise Refusal(500, "InternalError", f"Unknown patch type: {other} in map")
    _retain(original, patch)
    names = {name: None for name in patch if not name.startswith("$")}
    names |= {name.partition("/")[2]: None for name in patch if name.startswith((ORDER, REMOVE))}
    for name in names:
        _field(original, patch, name, _below(schema, name))
    return original


def _retain(original: dict[str, Any], patch: dict[str, Any]) -> None:
    if RETAIN not in patch:
        return
    kept = _list(patch[RETAIN], RETAIN)
    if any(name not in kept for name in patch if not name.startswith("$") and patch[name] is not None):
        raise Refusal(422, "Invalid", f"{RETAIN} must name every key that the patch has")
    for name in [name for name in original if name not in kept]:
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
            original[name] = _merged(before, patch, name, schema)
        case _, None:
            pass
        case _, change:
            original[name] = _plain(change)


def _merges(schema: Schema) -> bool:
    return "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(",")


def _below(schema: Schema, name: str) -> Schema:
    found = (schema.get("properties") or {}).get(name) or schema.get("additionalProperties")
    return found if isinstance(found, Mapping) else {}


def _merged(before: list[Any], patch: dict[str, Any], name: str, schema: Schema) -> list[Any]:
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
    order = _list(patch[f"{ORDER}{name}"], name) if f"{ORDER}{name}" in patch else list(_standing(change))
    return _ordered(after, order, before, key)


def _by_key(before: list[Any], change: list[Any], key: str, schema: Schema) -> list[Any]:
    if any(isinstance(item, dict) and item.get(DIRECTIVE) == "replace" for item in change):
        return [_plain(item) for item in change if DIRECTIVE not in item]
    for item in change:
        if not isinstance(item, dict) or key not in item:
            raise Refusal(500, "InternalError", f"map: {item} does not contain declared merge key: {key}")
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


def _ordered(after: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """What the patch orders, as it does; what it does not know keeps its place among them as well as can be."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    old = [identity(item) for item in before]
    known = sorted((x for x in after if identity(x) in wanted), key=lambda item: wanted.index(identity(item)))
    others = [item for item in after if identity(item) not in wanted]
    result: list[Any] = []
    while known and others:
        left, right = identity(others[0]), identity(known[0])
        first = left in old and right in old and old.index(left) < old.index(right)
        result.append((others if first else known).pop(0))
    return result + others + known


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise bad_request(f"{name} is not a list")
    return value


def _plain(value: Any) -> Any:
    """A value without nulls and directives, as it is stored where there was nothing to merge it with."""
    match value:
        case dict():
            return {name: _plain(item) for name, item in value.items() if not name.startswith("$") and item is not None}
        case list():
            return [_plain(item) for item in _standing(value)]
    return value


def _standing(items: Iterable[Any]) -> Iterable[Any]:
    return (item for item in items if not (isinstance(item, dict) and item.get(DIRECTIVE) == "delete"))
