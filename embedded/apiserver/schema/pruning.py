"""Preparation of an object for its validation: unknown fields and nulls are removed, defaults are added.

One rule: the object is changed in place, and every unknown field is reported by its path.
"""

from typing import Any

import orjson

from embedded.apiserver.schema.schema import SchemaNode


def settle(value: Any, node: SchemaNode, path: str = "") -> list[str]:
    """Prune and default a value in place, and return the paths of the unknown fields, which are removed."""
    unknown: list[str] = []
    _settle(value, node, path, unknown)
    return unknown


def settle_sections(manifest: dict[str, Any], root: SchemaNode, changed: set[str]) -> list[str]:
    """Prune and default only some top-level fields of an object, and return the paths of the unknown fields in them."""
    unknown: list[str] = []
    part = {name: value for name, value in manifest.items() if name in changed}
    absent = root.defaults.keys() - manifest.keys()
    _settle_mapping(part, root, "", unknown)
    for name in changed:
        manifest.pop(name, None)
    manifest.update({name: value for name, value in part.items() if name in changed or name in absent})
    return unknown


def _settle(value: Any, node: SchemaNode, path: str, unknown: list[str]) -> None:
    match value:
        case dict():
            _settle_mapping(value, node, path, unknown)
        case list() if node.items is not None:
            for index, item in enumerate(value):
                if item.__class__ is not node.items.plain:
                    _settle(item, node.items, f"{path}[{index}]", unknown)


def _settle_mapping(value: dict[str, Any], node: SchemaNode, path: str, unknown: list[str]) -> None:
    properties, additional = node.properties, node.additional
    for name in list(value):
        child = properties.get(name) or additional
        if child is not None:
            if value[name].__class__ is child.plain:
                continue
            if value[name] is None and not child.nullable and child.type:
                del value[name]  # so the default applies, if the field has one
            else:
                _settle(value[name], child, f"{path}.{name}" if path else name, unknown)
        elif not node.open and (node.type == "object" or properties):
            unknown.append(f"{path}.{name}" if path else name)
            del value[name]
    for name, child in node.defaults.items():
        if child.default is not None and name not in value:
            value[name] = orjson.loads(child.default)
            _settle(value[name], child, path, unknown)
