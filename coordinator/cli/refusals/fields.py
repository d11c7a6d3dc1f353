"""Paths of fields, as an API server writes them, and the values and lines that they name.

One rule: a path that leads nowhere ends at the last value that exists, so that a missing field has its parent's line.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from crds import yamltext

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def value(body: Any, path: str) -> tuple[bool, Any]:
    """Return whether the path names a value in a document, and that value."""
    found, rest = body, path
    while rest:
        if isinstance(found, dict):
            key = _key(found, rest)
            if key is None:
                return False, None
            found, rest = found[key], _after(rest, key)
        elif isinstance(found, list) and (index := _index(rest)) is not None and index[0] < len(found):
            found, rest = found[index[0]], index[1]
        else:
            return False, None
    return True, found


def line(text: str, number: int, path: str) -> int | None:
    """Return the line, from 1, of a field in a document of a YAML text; `number` counts documents from 1.

    None if the text has no such document.
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
        if isinstance(node, MappingNode):
            pairs = {str(key.value): (key, child) for key, child in node.value}
            name = _key(pairs, rest)
            if name is None:
                return int(found)
            key, node = pairs[name]
            found, rest = key.start_mark.line, _after(rest, name)
        elif isinstance(node, SequenceNode) and (index := _index(rest)) is not None and index[0] < len(node.value):
            node, rest = node.value[index[0]], index[1]
            found = node.start_mark.line
        else:
            return int(found)
    return int(found)


def _key(names: dict[str, Any], path: str) -> str | None:
    """Return the longest name with which a path continues; names may contain dots, as nvidia.com/gpu does."""
    return max((name for name in names if name and _continues(path, name)), key=len, default=None)


def _continues(path: str, name: str) -> bool:
    return any(_is_first(path, form) for form in _forms(name))


def _forms(name: str) -> Iterator[str]:
    yield name
    yield f"[{name}]"


def _is_first(path: str, form: str) -> bool:
    return path.startswith(form) and path[len(form) : len(form) + 1] in ("", ".", "[")


def _after(path: str, name: str) -> str:
    form = next(form for form in _forms(name) if _is_first(path, form))
    return path[len(form) :].removeprefix(".")


def _index(path: str) -> tuple[int, str] | None:
    """Return the index with which a path continues, and the rest of the path."""
    digits, bracket, rest = path.removeprefix("[").partition("]")
    if not path.startswith("[") or not bracket or not digits.isdecimal():
        return None
    return int(digits), rest.removeprefix(".")
