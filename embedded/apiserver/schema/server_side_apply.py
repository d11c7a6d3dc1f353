"""Server-side apply: an object is what its appliers say together, and nobody overwrites another's field unasked.

One rule: ownership is kept from an object's first apply on; what it had until then belongs to `before-first-apply`, as
with a Kubernetes API server for objects that were made before it kept ownership. The algorithm is that of
structured-merge-diff: merge, take away what the applier no longer names and nobody else owns, compare, tell conflicts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from embedded.apiserver.schema import field_sets
from embedded.apiserver.schema.field_sets import Path
from embedded.apiserver.schema.json_types import json_type
from embedded.apiserver.schema.schema import ANY, Node
from embedded.apiserver.status_errors import Refusal
from embedded.apiserver.storage.objects import encode
from kube.api import Manifest

MEDIA_TYPE = "application/apply-patch+yaml"
APPLY, UPDATE = "Apply", "Update"
_BEFORE = "before-first-apply"


class Manager(NamedTuple):
    """Who owns fields, and by which way of writing."""

    operation: str
    name: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == UPDATE else ""
        return f'"{self.name}"{part}{using}'


@dataclass(frozen=True, slots=True)
class Owned:
    """What somebody owns."""

    fields: frozenset[Path]
    time: str
    """When that changed last."""


Owners = dict[Manager, Owned]


def owners(manifest: Mapping[str, Any]) -> Owners:
    """Who owns what of an object; empty: it has never been applied."""
    return dict(map(_read, (manifest.get("metadata") or {}).get("managedFields") or ()))


def _read(entry: Mapping[str, Any]) -> tuple[Manager, Owned]:
    who = Manager(entry["operation"], entry["manager"], entry["apiVersion"], entry.get("subresource", ""))
    return who, Owned(frozenset(field_sets.unpacked(entry["fieldsV1"])), entry["time"])


def written(found: Owners) -> list[dict[str, Any]]:
    """The metadata.managedFields of an object."""
    entries = sorted(found.items(), key=lambda pair: (pair[0].operation, pair[1].time, *pair[0][1:]))
    return [_entry(who, owned) for who, owned in entries if owned.fields]


def _entry(who: Manager, owned: Owned) -> dict[str, Any]:
    return {
        "manager": who.name,
        "operation": who.operation,
        "apiVersion": who.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": field_sets.packed(owned.fields),
        **({"subresource": who.subresource} if who.subresource else {}),
    }


def after_update(old: Manifest, new: Manifest, schema: Node, who: Manager, now: str) -> list[dict[str, Any]]:
    """Who owns what after a write that is no apply: whoever changes a field has it."""
    changed, removed = _compared(old, new, schema)
    found = _without(owners(old), who, changed | removed, now)
    mine = found.get(who, Owned(frozenset(), now))
    fields = (mine.fields - removed) | changed
    return written({**found, who: mine if fields == mine.fields else Owned(fields, now)})


def _compared(old: Manifest, new: Manifest, schema: Node) -> tuple[frozenset[Path], frozenset[Path]]:
    """The fields that are new or have another value, and those that are gone."""
    before, after = field_sets.everything(old, schema), field_sets.everything(new, schema)
    same = {path for path in before.keys() & after.keys() if encode({"": before[path]}) == encode({"": after[path]})}
    return frozenset(after.keys() - same), frozenset(before.keys() - after.keys())


def _without(found: Owners, who: Manager, lost: frozenset[Path], now: str) -> Owners:
    return {
        each: Owned(owned.fields - lost, now) if each != who and owned.fields & lost else owned
        for each, owned in found.items()
    }


@dataclass(frozen=True, slots=True)
class Application:
    """What somebody applies."""

    config: Manifest
    schema: Node
    who: Manager
    now: str
    force: bool = False


def applied(live: Manifest | None, wish: Application) -> Manifest:
    """The object with what is applied, and its owners. Conflict; a failure without a reason for what is no object."""
    _check(wish)
    config, schema, who = wish.config, wish.schema, wish.who
    fields = frozenset(field_sets.managed(config, schema, who.subresource))
    if live is None:
        return {**config, "metadata": {**config["metadata"], "managedFields": written({who: Owned(fields, wish.now)})}}
    found = owners(live) or _first(live, schema, who)
    mine = found.get(who, Owned(frozenset(), ""))
    result: Manifest = _merged(live, _section(config, who.subresource), schema)
    kept = fields.union(*(owned.fields for each, owned in found.items() if each != who))
    for path in sorted(mine.fields - kept, key=len):  # a list's item goes before its fields
        if not _is_key(path) and not any(other[: len(path)] == path for other in kept):
            _remove(result, path)
    changed, removed = _compared(live, result, schema)
    if not wish.force:
        _refuse({each: owned.fields & changed for each, owned in found.items() if each != who})
    found = _without(found, who, changed | removed, wish.now)
    found[who] = mine if fields == mine.fields else Owned(fields, wish.now)
    result["metadata"] = {**result["metadata"], "managedFields": written(found)}
    return result


def _first(live: Manifest, schema: Node, who: Manager) -> Owners:
    fields = frozenset(field_sets.everything(live, schema))
    made = live["metadata"].get("creationTimestamp", "")
    return {Manager(UPDATE, _BEFORE, who.api_version): Owned(fields, made)}


def _section(config: Manifest, section: str) -> Manifest:
    if not section:
        return {name: value for name, value in config.items() if name != "status"}
    return {name: value for name, value in config.items() if name == section}


def _refuse(conflicts: Mapping[Manager, frozenset[Path]]) -> None:
    """Conflict, if there are any."""
    found = sorted((str(who), sorted(map(field_sets.shown, fields))) for who, fields in conflicts.items() if fields)
    if not found:
        return
    count = sum(len(fields) for _, fields in found)
    if count == 1:
        message = f"Apply failed with 1 conflict: conflict with {found[0][0]}: {found[0][1][0]}"
    else:
        texts = ["\n- ".join([f"conflicts with {who}:", *fields]) for who, fields in found]
        message = f"Apply failed with {count} conflicts: " + "\n".join(texts)
    causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
              for who, fields in found for field in fields]  # fmt: skip
    raise Refusal(409, "Conflict", message, {"causes": causes})


def _merged(live: Any, config: Any, node: Node) -> Any:
    match live, config:
        case dict(), dict() if not field_sets.is_atomic(node):
            below = {name: field_sets.below(node, name) for name in config}
            return {**live, **{name: _merged(live.get(name), item, below[name]) for name, item in config.items()}}
        case list(), list() if field_sets.keys(node) or field_sets.is_set(node):
            return list(_listed(live, config, node))
    return config


def _listed(live: list[Any], config: list[Any], node: Node) -> Iterator[Any]:
    """The items of both, in both orders: what only the object has comes before what only the applier says."""
    present = {field_sets.step(item, node): item for item in live}
    wanted = {field_sets.step(item, node): item for item in config}
    theirs, ours = list(present), list(wanted)
    while theirs or ours:
        if theirs and theirs[0] not in wanted:
            yield present[theirs.pop(0)]
        elif theirs and theirs[0] not in ours:
            theirs.pop(0)  # told already
        else:
            place = ours.pop(0)
            yield _merged(present[place], wanted[place], node.items or ANY) if place in present else wanted[place]


def _is_key(path: Path) -> bool:
    """Whether a field tells an item of its list from the others: an item that stays keeps it, or it would match any."""
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in field_sets.identity(path[-2])


def _remove(value: Any, path: Path) -> bool:
    """Take a field away, and what is empty without it; whether nothing is left."""
    place = _place(value, path[0])
    if place is None:
        return False
    if len(path) == 1 or _remove(value[place], path[1:]):
        del value[place]
        return not value
    return False


def _place(value: Any, each: str) -> Any:
    match value:
        case dict() if each.startswith("f:") and each[2:] in value:
            return each[2:]
        case list():
            return next((index for index, item in enumerate(value) if _is(item, each)), None)
    return None


def _is(item: Any, each: str) -> bool:
    wanted = field_sets.identity(each)
    if each.startswith("v:"):
        return encode({"": item}) == encode({"": wanted})
    return isinstance(item, dict) and all(item.get(name, value) == value for name, value in wanted.items())


def _check(wish: Application) -> None:
    """Whether what is applied has only fields that there are, of their types."""
    problems = list(_problems(_section(wish.config, wish.who.subresource), wish.schema, ()))
    if not problems:
        return
    own = wish.config["metadata"]
    group, _, version = wish.who.api_version.rpartition("/")
    about = f"{own.get('namespace', '')}/{own.get('name', '')}; {group}/{version}, Kind={wish.config['kind']}"
    text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {each}" for each in problems)
    raise Refusal(500, "", f"failed to create typed patch object ({about}): {text}")


def _problems(value: Any, node: Node, path: Path) -> Iterator[str]:
    found = json_type(value)
    if value is None or not _fits(found, node):
        wanted = "numeric (int or float)" if node.type in {"integer", "number"} else node.type
        yield from [] if value is None else [f"{field_sets.shown(path)}: expected {wanted}, got {found}"]
        return
    match value:
        case dict():
            for name, item in value.items():
                there = (*path, f"f:{name}")
                if name in node.properties or node.additional is not None or node.open or not node.type:
                    yield from _problems(item, field_sets.below(node, name), there)
                else:
                    yield f"{field_sets.shown(there)}: field not declared in schema"
        case list() if node.items is not None:
            for item in value:
                yield from _problems(item, node.items, (*path, field_sets.step(item, node)))


def _fits(found: str, node: Node) -> bool:
    return not node.type or node.int_or_string or found == node.type or (found, node.type) == ("integer", "number")
