"""The fields of an object as server-side apply counts them, and their format in managedFields.

One rule: the schema decides what one field is: an atomic map or list is one field, and each entry of any other map or
list is one field. The format (FieldsV1) has one step per level: `f:` a field's name, `k:` the keys of a list's item,
`v:` a value in a set.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from embedded.apiserver.schema.schema import ANY, SchemaNode

Path = tuple[str, ...]
_PAIRED = {"containerPort": ("containerPort", "protocol"), "port": ("port", "protocol")}
"""Keys of list items by the merge key of a patch, for lists whose items have a second key."""
_UNMANAGED = frozenset(
    ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion")
) | {"deletionTimestamp", "deletionGracePeriodSeconds"}
"""The fields of metadata without managers."""


def is_atomic(node: SchemaNode) -> bool:
    """Return whether a map is one field."""
    return node.source.get("x-kubernetes-map-type") == "atomic"


def keys(node: SchemaNode) -> tuple[str, ...]:
    """Return the keys that identify a list's items; empty for a plain list or a set."""
    if node.list_type == "map":
        return node.list_keys
    merged = str(node.source.get("x-kubernetes-patch-merge-key", ""))
    return _PAIRED.get(merged, (merged,)) if merged else ()


def is_set(node: SchemaNode) -> bool:
    """Return whether each value of a list is a separate field."""
    return node.list_type == "set" or (not keys(node) and "x-kubernetes-patch-strategy" in node.source)


def below(node: SchemaNode, name: str) -> SchemaNode:
    """Return the schema of the value at a name in a map."""
    return node.properties.get(name) or node.additional or ANY


def step(item: Any, node: SchemaNode) -> str:
    """Return the step to an item of a list."""
    names = keys(node)
    if not names:
        return "v:" + _text(item)
    inner = (node.items or ANY).properties
    entry = item if isinstance(item, Mapping) else {}
    key_values = {name: entry.get(name, orjson.loads(inner[name].default or b"null") if name in inner else None)
             for name in names}  # fmt: skip
    return "k:" + _text(key_values)


def identity(step: str) -> Any:
    """Return the content of a step to an item: the keys of the item, or the item itself."""
    return orjson.loads(step[2:])


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def fields_to_manage(manifest: Mapping[str, Any], node: SchemaNode, section: str = "") -> dict[Path, Any]:
    """Return the fields, with their values, that a manager owns after it has written an object or one section of it."""
    fields = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}
    metadata = fields.pop("metadata", None) or {}
    if section:
        return _flat({section: fields[section]} if section in fields else {}, node)
    fields.pop("status", None)
    return _flat({**fields, **_manageable_metadata(metadata)}, node)


def all_fields(manifest: Mapping[str, Any], node: SchemaNode) -> dict[Path, Any]:
    """Return all fields of an object with their values."""
    fields = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind", "metadata"}}
    return _flat({**fields, **_manageable_metadata(manifest.get("metadata") or {})}, node)


def _manageable_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    managed_metadata = {name: value for name, value in metadata.items() if name not in _UNMANAGED}
    return {"metadata": managed_metadata} if managed_metadata else {}


def _flat(value: dict[str, Any], node: SchemaNode) -> dict[Path, Any]:
    return dict(_leaves(value, node, ())) if value else {}


def _leaves(value: Any, node: SchemaNode, path: Path) -> Iterator[tuple[Path, Any]]:
    match value:
        case dict() if value and not is_atomic(node):
            for name, item in value.items():
                child_path = (*path, f"f:{name}")
                if name not in node.properties:
                    yield child_path, None  # an entry of a map is a field, in addition to the fields in it
                yield from _leaves(item, below(node, name), child_path)
        case list() if value and keys(node):
            for item in value:
                child_path = (*path, step(item, node))
                yield child_path, None
                yield from _leaves(item, node.items or ANY, child_path)
        case list() if value and is_set(node):
            yield from (((*path, step(item, node)), item) for item in value)
        case _:
            yield path, value


def to_fields_v1(paths: Iterable[Path]) -> dict[str, Any]:
    """Return a set of fields as FieldsV1."""
    root: dict[str, Any] = {}
    ends = []
    for path in sorted(paths):
        tree = root
        for step in path:
            tree = tree.setdefault(step, {})
        ends.append(tree)
    for tree in ends:
        if tree:
            tree["."] = {}
    return root


def from_fields_v1(tree: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    """Yield the fields of a FieldsV1."""
    if path and (not tree or "." in tree):
        yield path
    for name, inner in tree.items():
        if name != ".":
            yield from from_fields_v1(inner, (*path, name))


def format_path(path: Path) -> str:
    """Return a field's path as in messages."""
    return "".join(_format_step(step) for step in path)


def _format_step(step: str) -> str:
    kind, text = step[:2], step[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    return "[" + ",".join(f"{key}={_text(value)}" for key, value in orjson.loads(text).items()) + "]"
