"""What the API server does to an object before it judges it: unknown fields out, nulls out, defaults in.

One rule: the object is changed in place, and every unknown field is reported by its path.
"""

from typing import Any

import orjson

from embedded.apiserver.schema.schema import Node


def settle(value: Any, node: Node, path: str = "") -> list[str]:
    """Prune and default a value in place; the paths of the unknown fields that were dropped."""
    unknown: list[str] = []
    _settle(value, node, path, unknown)
    return unknown


def settle_sections(manifest: dict[str, Any], root: Node, changed: set[str]) -> list[str]:
    """The same for an object of which only some top-level fields are new; the others are left as they are."""
    unknown: list[str] = []
    part = {name: value for name, value in manifest.items() if name in changed}
    absent = root.defaults.keys() - manifest.keys()
    _settle_mapping(part, root, "", unknown)
    for name in changed:
        manifest.pop(name, None)
    manifest.update({name: value for name, value in part.items() if name in changed or name in absent})
    return unknown


def _settle(value: Any, node: Node, path: str, unknown: list[str]) -> None:
    match value:
        case dict():
            _settle_mapping(value, node, path, unknown)
        case list() if node.items is not None:
            for index, item in enumerate(value):
                if item.__class__ is not node.items.plain:
                    _settle(item, node.items, f"{path}[{index}]", unknown)


def _settle_mapping(value: dict[str, Any], node: Node, path: str, unknown: list[str]) -> None:
    properties, additional = node.properties, node.additional
    for name in list(value):
        child = properties.get(name) or additional
        if child is not None:
            if value[name].__class__ is child.plain:
                continue
            if value[name] is None and not child.nullable and child.type:
                del value[name]  # then the default applies, if there is one
            else:
                _settle(value[name], child, f"{path}.{name}" if path else name, unknown)
        elif not node.open and (node.type == "object" or properties):
            unknown.append(f"{path}.{name}" if path else name)
            del value[name]
    for name, child in node.defaults.items():
        if child.default is not None and name not in value:
            value[name] = orjson.loads(child.default)
            _settle(value[name], child, path, unknown)
