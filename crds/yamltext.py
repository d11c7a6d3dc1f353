"""YAML as people write manifests in, in bounded time and memory.

One rule: what a text stands for may not be larger than anybody could have written: an alias counts as all that it
repeats. A key that is there twice is a mistake, not a choice.
"""

import math
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_MOST_NODES = 1_000_000
"""Values in one document, with all that its aliases repeat."""
_DEEPEST = 200
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """The quick loader, where there is one."""


def _float(loader: Any, node: Any) -> float:
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        raise ConstructorError(None, None, "a number must be finite", node.start_mark)
    return value


_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def documents(text: str) -> Iterator[Any]:
    """The documents of a stream. yaml.YAMLError, mostly with a mark, or ValueError for what is none."""
    check_depth(text)
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _check(node)
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def check_depth(text: str) -> None:
    """Refuse what is nested so deeply that composing it would overflow the stack of the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                mark: Any = event.start_mark
                raise ConstructorError(None, None, "nested too deeply", mark)
        elif isinstance(event, CollectionEndEvent):
            depth -= 1


def _check(root: Node) -> None:
    """Refuse a document that holds itself, or repeats itself too often."""
    sizes: dict[int, int] = {}
    ahead: list[tuple[Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while ahead:
        node, done = ahead.pop()
        if done:
            open_nodes.discard(id(node))
            sizes[id(node)] = _size(node, sizes)
        elif id(node) in open_nodes:
            raise ConstructorError(None, None, "an alias stands for what it is part of", node.start_mark)
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            ahead.append((node, True))
            ahead += [(child, False) for child in _children(node)]


def _size(node: Node, sizes: dict[int, int]) -> int:
    if isinstance(node, MappingNode):
        _check_keys(node)
    size = 1 + sum(sizes[id(child)] for child in _children(node))
    if size > _MOST_NODES:
        raise ConstructorError(None, None, "aliases repeat too much", node.start_mark)
    return size


def _children(node: Node) -> list[Node]:
    match node:
        case MappingNode():
            return [part for pair in node.value for part in pair]
        case SequenceNode():
            return list(node.value)
    return []


def _check_keys(node: MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if (key.tag, key.value) in seen:
                raise ConstructorError(None, None, f"the key {key.value[:40]!r} is there twice", key.start_mark)
            seen.add((key.tag, key.value))
