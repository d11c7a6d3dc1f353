"""Runs the CEL rules of an object: walks the object along its schema and runs the rules of every value.

One rule: a rule can name only fields that the schema declares. Unknown fields that an object preserves count only when
whole objects are compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crds import timestamps
from embedded.apiserver.schema import cel, schema_validation
from embedded.apiserver.schema.cel import Needs
from embedded.apiserver.schema.schema import SchemaNode
from embedded.apiserver.status_errors import Cause

_VISIBLE_METADATA = ("name", "generateName")


def check_object(
    new: Mapping[str, Any], old: Mapping[str, Any] | None, root: SchemaNode, changed: set[str]
) -> Iterator[Cause]:
    """Run all rules of a resource on an object, and yield the causes of the failures.

    `changed` are the top-level fields that differ from the old object. At a value that stays as it was, and below it,
    only transition rules run, as with the ratcheting of a Kubernetes API server.
    """
    yield from _run(_root_view(new), _root_view(old) if old else None, root, "", bool(changed))
    for name, child in root.properties.items():
        if name in new:
            yield from _check(new[name], (old or {}).get(name), child, name, name in changed)


def _check(new: Any, old: Any, node: SchemaNode, path: str, changed: bool) -> Iterator[Cause]:
    if not node.has_rules or new is None or not (changed or node.has_transition_rules):
        return
    yield from _run(new, old, node, path, changed)
    for step, item, item_before, child in _below(new, old, node):
        differs = changed and child.has_rules and not schema_validation.is_unchanged(item, item_before)
        yield from _check(item, item_before, child, path + step, differs)


def _below(new: Any, old: Any, node: SchemaNode) -> Iterator[tuple[str, Any, Any, SchemaNode]]:
    match new:
        case dict():
            before = old if isinstance(old, dict) else {}
            for name, item in new.items():
                if name in node.properties:
                    yield f".{name}", item, before.get(name), node.properties[name]
                elif node.additional is not None:
                    yield f"[{name}]", item, before.get(name), node.additional
        case list() if node.items is not None:
            known = old if node.list_type == "map" and isinstance(old, list) else ()
            old_items = {_identity(item, node): item for item in known}
            for index, item in enumerate(new):
                yield f"[{index}]", item, old_items.get(_identity(item, node)), node.items


def _identity(item: Any, node: SchemaNode) -> tuple[Any, ...]:
    return tuple(str(item.get(key)) for key in node.list_keys) if isinstance(item, dict) else ()


def _run(value: Any, before: Any, node: SchemaNode, path: str, changed: bool) -> Iterator[Cause]:
    plan = node.create_plan if before is None else node.update_plan if changed else node.unchanged_plan
    uncached = plan.memory.missing(plan.rules, value, before)
    if not uncached:
        return
    old_value = None if before is None else visible(before, node, plan.needs)
    context = cel.context(visible(value, node, plan.needs), old_value)
    for rule, key in uncached:
        cause = cel.run(rule, context, path, value)
        if cause:
            yield cause
        else:
            plan.memory.add(key)


def _root_view(value: Mapping[str, Any]) -> dict[str, Any]:
    metadata = value.get("metadata", {})
    return {**value, "metadata": {name: metadata[name] for name in _VISIBLE_METADATA if name in metadata}}


def visible(value: Any, node: SchemaNode, needs: Needs = None) -> Any:
    """Return a value for CEL: its declared fields with their declared types, restricted to those that rules need.

    Undeclared fields of a preserve-unknown object are kept unchanged. No rule can name them (`find_undefined_fields`),
    but they make two objects unequal, as in a Kubernetes API server.
    """
    match value:
        case dict() if needs is not None:
            children = {name: node.properties.get(name) or node.additional for name in needs if name in value}
            return {name: visible(value[name], child, needs[name]) for name, child in children.items() if child}
        case dict() if node.additional is not None:
            return {name: visible(item, node.additional) for name, item in value.items()}
        case dict():
            declared = {
                name: visible(item, node.properties[name]) for name, item in value.items() if name in node.properties
            }
            return {**value, **declared} if node.open else declared
        case list() if node.items is not None:
            return [visible(item, node.items) for item in value]
        case int() if node.type == "number" and not isinstance(value, bool):
            return float(value)
        case str() if node.limits and node.limits.format == "date-time":
            return timestamps.parse(value)
        case _:
            return value


def find_undefined_fields(root: SchemaNode) -> Iterator[str]:
    """Yield the fields that a rule reads and the schema does not declare.

    A Kubernetes API server does not compile such a rule.
    """
    yield from _find_undefined(root, "", is_root=True)


def _find_undefined(node: SchemaNode, path: str, *, is_root: bool = False) -> Iterator[str]:
    for rule in node.rules:
        for chain in rule.field_paths:
            missing = _missing(node, chain, is_root)
            if missing:
                yield f"{path or '<root>'}: undefined field '{missing}' in rule {rule.source!r}"
    for name, child in node.properties.items():
        yield from _find_undefined(child, f"{path}.{name}" if path else name)
    for child in filter(None, (node.additional, node.items)):
        yield from _find_undefined(child, f"{path}[*]")


def _missing(node: SchemaNode, chain: tuple[str, ...], is_root: bool) -> str:
    for position, step in enumerate(chain):
        if is_root and position == 0 and step == "metadata":
            return next((name for name in chain[1:2] if name not in _VISIBLE_METADATA), "")
        child = node.properties.get(step) or node.additional
        if child is None:
            return step
        node = child
    return ""
