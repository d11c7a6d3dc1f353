"""JSON paths of printer columns: fields, indexes, and filters for equality.

One rule: a path is compiled once; a path with other syntax is refused when its column is defined.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\s\\])+)
      | \['(?P<quoted>(?:\\.|[^'\\])*)'\]
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \[\?\(\s*@\.(?P<key>[^=\s!<>]+)\s*==\s*(?P<quote>["'])(?P<value>[^"']*)(?P=quote)\s*\)\]
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One step of a path."""

    field: str = ""
    index: int | None = None
    every: bool = False
    key: str = ""
    """The field that a filter compares."""
    value: str = ""


@lru_cache(maxsize=1024)
def compile_path(path: str) -> tuple[PathStep, ...]:
    """Return the steps of a path such as `.status.conditions[?(@.type=="Ready")].status`.

    Raise ValueError for other syntax.
    """
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    position, steps = 0, []
    while position < len(text):
        match = _STEP.match(text, position)
        if not match:
            raise ValueError(f"{path!r} has unsupported syntax at {text[position:]!r}")
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> PathStep:
    if match["index"]:
        return PathStep(index=int(match["index"]))
    if match["all"]:
        return PathStep(every=True)
    if match["key"]:
        return PathStep(key=match["key"], value=match["value"])
    name = match["field"] if match["field"] is not None else match["quoted"]
    return PathStep(every=True) if name == "*" else PathStep(field=re.sub(r"\\(.)", r"\1", name))


def find(value: Any, path: str) -> list[Any]:
    """Return every value at a path."""
    values = [value]
    for step in compile_path(path):
        values = [inner for outer in values for inner in _enter(outer, step)]
    return values


def _enter(value: Any, step: PathStep) -> Iterator[Any]:
    match value:
        case dict() if step.every:
            yield from value.values()
        case dict() if step.field in value and not step.key and step.index is None:
            yield value[step.field]
        case list() if step.every:
            yield from value
        case list() if step.index is not None and -len(value) <= step.index < len(value):
            yield value[step.index]
        case list() if step.key:
            yield from (item for item in value if find(item, "." + step.key) == [step.value])
