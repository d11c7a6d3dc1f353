"""Server-side apply: every manager owns the fields that it applies, and changes fields of others only by force.

One rule: owners are recorded from an object's first apply on. All earlier fields belong to the manager
`before-first-apply`, as with a Kubernetes API server for objects that are older than its record of owners.

The algorithm is the algorithm of structured-merge-diff. Merge the configuration into the object. Remove the fields that
the manager no longer applies and that no other manager owns. Compare the result with the old object, and report
conflicts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from embedded.apiserver.schema import field_sets
from embedded.apiserver.schema.field_sets import Path
from embedded.apiserver.schema.json_types import json_type
from embedded.apiserver.schema.schema import ANY, SchemaNode
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.storage.objects import encode
from kube.api import Manifest

MEDIA_TYPE = "application/apply-patch+yaml"
APPLY, UPDATE = "Apply", "Update"
_BEFORE = "before-first-apply"


class Manager(NamedTuple):
    """A field manager: a client with one way of writing (apply or update)."""

    operation: str
    name: str
    api_version: str
    subresource: str = ""

    def __str__(self) -> str:
        part = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == UPDATE else ""
        return f'"{self.name}"{part}{using}'


@dataclass(frozen=True, slots=True)
class OwnedFields:
    """The fields that a manager owns."""

    fields: frozenset[Path]
    time: str
    """The time of the last change of these fields."""


OwnersByManager = dict[Manager, OwnedFields]


def owners(manifest: Mapping[str, Any]) -> OwnersByManager:
    """Return the owners of an object's fields; empty for an object that was never applied."""
    return dict(map(_read, (manifest.get("metadata") or {}).get("managedFields") or ()))


def _read(entry: Mapping[str, Any]) -> tuple[Manager, OwnedFields]:
    manager = Manager(entry["operation"], entry["manager"], entry["apiVersion"], entry.get("subresource", ""))
    return manager, OwnedFields(frozenset(field_sets.from_fields_v1(entry["fieldsV1"])), entry["time"])


def managed_fields(owners: OwnersByManager) -> list[dict[str, Any]]:
    """Return the owners as metadata.managedFields of an object."""
    entries = sorted(owners.items(), key=lambda pair: (pair[0].operation, pair[1].time, *pair[0][1:]))
    return [_entry(manager, owned) for manager, owned in entries if owned.fields]


def _entry(manager: Manager, owned: OwnedFields) -> dict[str, Any]:
    return {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": field_sets.to_fields_v1(owned.fields),
        **({"subresource": manager.subresource} if manager.subresource else {}),
    }


def after_update(old: Manifest, new: Manifest, schema: SchemaNode, manager: Manager, now: str) -> list[dict[str, Any]]:
    """Return the managedFields after a write other than an apply: a manager owns the fields that it changes."""
    changed, removed = _diff(old, new, schema)
    owners_by_manager = _without_fields(owners(old), manager, changed | removed, now)
    previous = owners_by_manager.get(manager, OwnedFields(frozenset(), now))
    fields = (previous.fields - removed) | changed
    return managed_fields(
        {**owners_by_manager, manager: previous if fields == previous.fields else OwnedFields(fields, now)}
    )


def _diff(old: Manifest, new: Manifest, schema: SchemaNode) -> tuple[frozenset[Path], frozenset[Path]]:
    """Return the fields that are new or have another value, and the fields that no longer exist."""
    before, after = field_sets.all_fields(old, schema), field_sets.all_fields(new, schema)
    same = {path for path in before.keys() & after.keys() if encode({"": before[path]}) == encode({"": after[path]})}
    return frozenset(after.keys() - same), frozenset(before.keys() - after.keys())


def _without_fields(
    owners: OwnersByManager, manager: Manager, lost_fields: frozenset[Path], now: str
) -> OwnersByManager:
    return {
        owner: OwnedFields(owned.fields - lost_fields, now)
        if owner != manager and owned.fields & lost_fields
        else owned
        for owner, owned in owners.items()
    }


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """A configuration that a manager applies."""

    config: Manifest
    schema: SchemaNode
    manager: Manager
    now: str
    force: bool = False


def apply(live: Manifest | None, request: ApplyRequest) -> Manifest:
    """Return the object with the applied configuration and its owners.

    Raise StatusError (Conflict) if other managers own the fields. For a configuration that is not an object, raise a
    StatusError without a reason.
    """
    _check(request)
    config, schema, manager = request.config, request.schema, request.manager
    fields = frozenset(field_sets.fields_to_manage(config, schema, manager.subresource))
    if live is None:
        return {
            **config,
            "metadata": {
                **config["metadata"],
                "managedFields": managed_fields({manager: OwnedFields(fields, request.now)}),
            },
        }
    owners_by_manager = owners(live)
    if not owners_by_manager:
        first = OwnedFields(
            frozenset(field_sets.all_fields(live, schema)), live["metadata"].get("creationTimestamp", "")
        )
        owners_by_manager = {Manager(UPDATE, _BEFORE, manager.api_version): first}
    previous = owners_by_manager.get(manager, OwnedFields(frozenset(), ""))
    result: Manifest = _merge(live, _section(config, manager.subresource), schema)
    kept_fields = fields.union(*(owned.fields for owner, owned in owners_by_manager.items() if owner != manager))
    for path in sorted(previous.fields - kept_fields, key=len):  # an item of a list is removed before its fields
        if not _is_key(path) and not any(other[: len(path)] == path for other in kept_fields):
            _remove(result, path)
    changed, removed = _diff(live, result, schema)
    if not request.force:
        _refuse({owner: owned.fields & changed for owner, owned in owners_by_manager.items() if owner != manager})
    owners_by_manager = _without_fields(owners_by_manager, manager, changed | removed, request.now)
    owners_by_manager[manager] = previous if fields == previous.fields else OwnedFields(fields, request.now)
    result["metadata"] = {**result["metadata"], "managedFields": managed_fields(owners_by_manager)}
    return result


def _section(config: Manifest, section: str) -> Manifest:
    if not section:
        return {name: value for name, value in config.items() if name != "status"}
    return {name: value for name, value in config.items() if name == section}


def _refuse(conflicts: Mapping[Manager, frozenset[Path]]) -> None:
    """Raise StatusError (Conflict), with all conflicts, if there are conflicts."""
    conflicting = sorted(
        (str(manager), sorted(map(field_sets.format_path, fields))) for manager, fields in conflicts.items() if fields
    )
    if not conflicting:
        return
    count = sum(len(fields) for _, fields in conflicting)
    if count == 1:
        message = f"Apply failed with 1 conflict: conflict with {conflicting[0][0]}: {conflicting[0][1][0]}"
    else:
        texts = ["\n- ".join([f"conflicts with {manager}:", *fields]) for manager, fields in conflicting]
        message = f"Apply failed with {count} conflicts: " + "\n".join(texts)
    causes = [{"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
              for manager, fields in conflicting for field in fields]  # fmt: skip
    raise StatusError(409, "Conflict", message, {"causes": causes})


def _merge(live: Any, config: Any, node: SchemaNode) -> Any:
    match live, config:
        case dict(), dict() if not field_sets.is_atomic(node):
            below = {name: field_sets.below(node, name) for name in config}
            return {**live, **{name: _merge(live.get(name), item, below[name]) for name, item in config.items()}}
        case list(), list() if field_sets.keys(node) or field_sets.is_set(node):
            return list(_merge_lists(live, config, node))
    return config


def _merge_lists(live: list[Any], config: list[Any], node: SchemaNode) -> Iterator[Any]:
    """Yield the items of both lists in both orders.

    Items that only the object has come before items that only the configuration has.
    """
    live_items = {field_sets.step(item, node): item for item in live}
    config_items = {field_sets.step(item, node): item for item in config}
    live_steps, config_steps = list(live_items), list(config_items)
    while live_steps or config_steps:
        if live_steps and live_steps[0] not in config_items:
            yield live_items[live_steps.pop(0)]
        elif live_steps and live_steps[0] not in config_steps:
            live_steps.pop(0)  # yielded already
        else:
            step = config_steps.pop(0)
            yield (
                _merge(live_items[step], config_items[step], node.items or ANY)
                if step in live_items
                else config_items[step]
            )


def _is_key(path: Path) -> bool:
    """Return whether a field is a key of a list's item. A remaining item keeps its keys, which identify it."""
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in field_sets.identity(path[-2])


def _remove(value: Any, path: Path) -> bool:
    """Remove a field, and the containers that become empty; return whether the value is empty now."""
    place = _locate(value, path[0])
    if place is None:
        return False
    if len(path) == 1 or _remove(value[place], path[1:]):
        del value[place]
        return not value
    return False


def _locate(value: Any, step: str) -> Any:
    match value:
        case dict() if step.startswith("f:") and step[2:] in value:
            return step[2:]
        case list():
            return next((index for index, item in enumerate(value) if _matches(item, step)), None)
    return None


def _matches(item: Any, step: str) -> bool:
    identity = field_sets.identity(step)
    if step.startswith("v:"):
        return encode({"": item}) == encode({"": identity})
    return isinstance(item, dict) and all(item.get(name, value) == value for name, value in identity.items())


def _check(request: ApplyRequest) -> None:
    """Raise StatusError unless the configuration has only declared fields with values of their types."""
    problems = list(_type_problems(_section(request.config, request.manager.subresource), request.schema, ()))
    if not problems:
        return
    metadata = request.config["metadata"]
    group, _, version = request.manager.api_version.rpartition("/")
    about = (
        f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {group}/{version}, Kind={request.config['kind']}"
    )
    text = problems[0] if len(problems) == 1 else "errors:\n" + "\n".join(f"  {problem}" for problem in problems)
    raise StatusError(500, "", f"failed to create typed patch object ({about}): {text}")


def _type_problems(value: Any, node: SchemaNode, path: Path) -> Iterator[str]:
    value_type = json_type(value)
    if value is None or not _has_type(value_type, node):
        expected = "numeric (int or float)" if node.type in {"integer", "number"} else node.type
        yield from [] if value is None else [f"{field_sets.format_path(path)}: expected {expected}, got {value_type}"]
        return
    match value:
        case dict():
            for name, item in value.items():
                field_path = (*path, f"f:{name}")
                if name in node.properties or node.additional is not None or node.open or not node.type:
                    yield from _type_problems(item, field_sets.below(node, name), field_path)
                else:
                    yield f"{field_sets.format_path(field_path)}: field not declared in schema"
        case list() if node.items is not None:
            for item in value:
                yield from _type_problems(item, node.items, (*path, field_sets.step(item, node)))


def _has_type(value_type: str, node: SchemaNode) -> bool:
    return (
        not node.type
        or node.int_or_string
        or value_type == node.type
        or (value_type, node.type) == ("integer", "number")
    )
