"""Which fields an object has, as server-side apply counts them, and how sets of them are written down.

One rule: what is one field stands in the schema: atomic maps and lists are, of all others the entries are. The written
form (FieldsV1) has one step per level: `f:` a field's name, `k:` the keys of a list's item, `v:` a value in a set.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from embedded.apiserver.schema.schema import ANY, Node

Path = tuple[str, ...]
_PAIRED = {"containerPort": ("containerPort", "protocol"), "port": ("port", "protocol")}
"""Lists whose items are told apart by more than a patch's merge key."""
_OWN = frozenset(
    ("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion")
) | {"deletionTimestamp", "deletionGracePeriodSeconds"}
"""Metadata that nobody manages."""


def is_atomic(node: Node) -> bool:
    """Whether a map is one field."""
    return node.source.get("x-kubernetes-map-type") == "atomic"


def keys(node: Node) -> tuple[str, ...]:
    """What tells a list's items apart; empty: a plain list or a set."""
    if node.list_type == "map":
        return node.list_keys
    merged = str(node.source.get("x-kubernetes-patch-merge-key", ""))
    return _PAIRED.get(merged, (merged,)) if merged else ()


def is_set(node: Node) -> bool:
    """Whether each value of a list is a field of its own."""
    return node.list_type == "set" or (not keys(node) and "x-kubernetes-patch-strategy" in node.source)


def below(node: Node, name: str) -> Node:
    """The schema of a map's value."""
    return node.properties.get(name) or node.additional or ANY


def step(item: Any, node: Node) -> str:
    """The step to an item of a list."""
    names = keys(node)
    if not names:
        return "v:" + _text(item)
    inner = (node.items or ANY).properties
    given = item if isinstance(item, Mapping) else {}
    found = {name: given.get(name, orjson.loads(inner[name].default or b"null") if name in inner else None)
             for name in names}  # fmt: skip
    return "k:" + _text(found)


def identity(each: str) -> Any:
    """What a step to an item says of it: its keys, or itself."""
    return orjson.loads(each[2:])


def _text(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def managed(manifest: Mapping[str, Any], node: Node, section: str = "") -> dict[Path, Any]:
    """All fields that somebody who writes an object (or one section of it) manages, with their values."""
    found = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}
    own = found.pop("metadata", None) or {}
    if section:
        return _flat({section: found[section]} if section in found else {}, node)
    found.pop("status", None)
    return _flat({**found, **_own(own)}, node)


def everything(manifest: Mapping[str, Any], node: Node) -> dict[Path, Any]:
    """All fields of an object with their values."""
    found = {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind", "metadata"}}
    return _flat({**found, **_own(manifest.get("metadata") or {})}, node)


def _own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in metadata.items() if name not in _OWN}
    return {"metadata": own} if own else {}


def _flat(value: dict[str, Any], node: Node) -> dict[Path, Any]:
    return dict(_leaves(value, node, ())) if value else {}


def _leaves(value: Any, node: Node, path: Path) -> Iterator[tuple[Path, Any]]:
    match value:
        case dict() if value and not is_atomic(node):
            for name, item in value.items():
                there = (*path, f"f:{name}")
                if name not in node.properties:
                    yield there, None  # an entry is a field, besides what is in it
                yield from _leaves(item, below(node, name), there)
        case list() if value and keys(node):
            for item in value:
                there = (*path, step(item, node))
                yield there, None
                yield from _leaves(item, node.items or ANY, there)
        case list() if value and is_set(node):
            yield from (((*path, step(item, node)), item) for item in value)
        case _:
            yield path, value


def packed(paths: Iterable[Path]) -> dict[str, Any]:
    """A set of fields as FieldsV1."""
    root: dict[str, Any] = {}
    ends = []
    for path in sorted(paths):
        tree = root
        for each in path:
            tree = tree.setdefault(each, {})
        ends.append(tree)
    for tree in ends:
        if tree:
            tree["."] = {}
    return root


def unpacked(tree: Mapping[str, Any], path: Path = ()) -> Iterator[Path]:
    """The fields of a FieldsV1."""
    if path and (not tree or "." in tree):
        yield path
    for name, inner in tree.items():
        if name != ".":
            yield from unpacked(inner, (*path, name))


def shown(path: Path) -> str:
    """A field as messages name it."""
    return "".join(_shown(each) for each in path)


def _shown(each: str) -> str:
    kind, text = each[:2], each[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    return "[" + ",".join(f"{key}={_text(value)}" for key, value in orjson.loads(text).items()) + "]"
