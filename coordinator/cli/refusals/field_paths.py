"""Paths of fields, as an API server writes them, and the values and lines that they name.

One rule: a path that leads nowhere ends at the last value that exists, so that a missing field has its parent's line.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from kube import yamltext

T = TypeVar("T")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def value(body: Any, path: str) -> tuple[bool, Any]:
    """Return whether the path names a value in a document, and that value."""
    found, rest = body, path
    while rest:
        step = None
        if isinstance(found, dict):
            step = _named(found, rest)
        elif isinstance(found, list):
            step = _numbered(found, rest)
        if step is None:
            return False, None
        found, rest = step
    return True, found


def line(text: str, number: int, path: str) -> int | None:
    """Return the line, from 1, of a field in a document of a YAML text; `number` counts documents from 1.

    The result is None if the text has no such document.
    """
    try:
        yamltext.check_depth(text)
        documents = yaml.compose_all(text, Loader=_Loader)
        node = next((each for place, each in enumerate(documents, start=1) if place == number), None)
    except (yaml.YAMLError, ValueError):
        return None
    return None if node is None else _line(node, path) + 1


def _line(node: Node, path: str) -> int:
    found, rest = node.start_mark.line, path
    while rest:
        step = None
        if isinstance(node, MappingNode):
            step = _named({str(key.value): (key, child) for key, child in node.value}, rest)
        elif isinstance(node, SequenceNode):
            step = _numbered([(child, child) for child in node.value], rest)
        if step is None:
            break
        (place, node), rest = step
        found = place.start_mark.line
    return int(found)


def _named(children: Mapping[str, T], path: str) -> tuple[T, str] | None:
    """Return the child of the longest name with which a path continues, and the rest of the path.

    A path has a name as it is or in brackets; names may contain dots, as nvidia.com/gpu does.
    """
    ends = ((name, form) for name in filter(None, children) for form in (name, f"[{name}]") if path.startswith(form))
    fitting = [(name, path[len(form) :]) for name, form in ends if path[len(form) : len(form) + 1] in ("", ".", "[")]
    if not fitting:
        return None
    name, rest = max(fitting, key=lambda pair: len(pair[0]))
    return children[name], rest.removeprefix(".")


def _numbered(children: Sequence[T], path: str) -> tuple[T, str] | None:
    """Return the child of the index with which a path continues, and the rest of the path."""
    digits, bracket, rest = path.removeprefix("[").partition("]")
    if not path.startswith("[") or not bracket or not digits.isdecimal() or int(digits) >= len(children):
        return None
    return children[int(digits)], rest.removeprefix(".")
