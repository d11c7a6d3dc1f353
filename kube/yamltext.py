"""A YAML parser for manifests, with bounded time and memory.

One rule: the size of a document is that of its expanded text: an alias counts as all the values that it repeats. A
duplicate key is an error.
"""

import math
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.events import CollectionEndEvent, CollectionStartEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from crds import excerpts

_MOST_NODES = 1_000_000
"""Maximum number of values in one document, including those that its aliases repeat."""
_DEEPEST = 200
"""Maximum nesting depth of a document."""
_TOO_DEEP = f"must not be nested deeper than {_DEEPEST} levels"
_LONGEST_KEY = 80
"""Maximum number of characters of a key in a message."""
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """The loader in C if it is installed, else the one in Python."""


def _float(loader: Any, node: Any) -> float:
    value: float = loader.construct_yaml_float(node)
    if not math.isfinite(value):
        raise ConstructorError(None, None, "a number must be finite", node.start_mark)
    return value


_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def documents(text: str) -> Iterator[Any]:
    """Yield the documents of a stream.

    Raise yaml.YAMLError, in most cases with a mark, or ValueError for a text that is not YAML.
    """
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
    """Raise ConstructorError for a text so deeply nested that composing it would overflow the stack of the process."""
    depth = 0
    for event in _events(text):
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                mark: Any = event.start_mark
                raise ConstructorError(None, None, _TOO_DEEP, mark)
        elif isinstance(event, CollectionEndEvent):
            depth -= 1


def _events(text: str) -> Iterator[Any]:
    """Yield the events of a text. The library reads brackets ahead of their events, and has its own limit for them."""
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        if error.problem != "exceeded maximum nesting depth":
            raise
        raise ConstructorError(None, None, _TOO_DEEP, error.problem_mark) from error


def _check(root: Node) -> None:
    """Raise ConstructorError for a document that contains itself, or whose aliases repeat too many values."""
    sizes: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, done = stack.pop()
        if done:
            open_nodes.discard(id(node))
            sizes[id(node)] = _size(node, sizes)
        elif id(node) in open_nodes:
            raise ConstructorError(None, None, "an alias refers to a value that contains it", node.start_mark)
        elif id(node) not in sizes:
            open_nodes.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in _children(node)]


def _size(node: Node, sizes: dict[int, int]) -> int:
    if isinstance(node, MappingNode):
        _check_keys(node)
    size = 1 + sum(sizes[id(child)] for child in _children(node))
    if size > _MOST_NODES:
        raise ConstructorError(None, None, f"aliases repeat more than {_MOST_NODES:,} values", node.start_mark)
    return size


def _children(node: Node) -> list[Node]:
    match node:
        case MappingNode():
            return [part for pair in node.value for part in pair]
        case SequenceNode():
            return list(node.value)
    return []


def _check_keys(node: MappingNode) -> None:
    keys: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if (key.tag, key.value) in keys:
                name = excerpts.excerpt(key.value, _LONGEST_KEY)
                raise ConstructorError(None, None, f"duplicate key {name!r}", key.start_mark)
            keys.add((key.tag, key.value))
