"""JSON paths as printer columns write them: fields, indexes, and filters for equality.

One rule: a path is compiled once; one that says more than these is refused when its column is defined.
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
class Step:
    """One step into a value."""

    field: str = ""
    index: int | None = None
    every: bool = False
    key: str = ""
    """Of a filter: the field compared."""
    value: str = ""


@lru_cache(maxsize=1024)
def compiled(path: str) -> tuple[Step, ...]:
    """The steps of a path such as `.status.conditions[?(@.type=="Ready")].status`. ValueError for any other."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    position, steps = 0, []
    while position < len(text):
        found = _STEP.match(text, position)
        if not found:
            raise ValueError(f"{path!r} is not understood from {text[position:]!r} on")
        steps.append(_step(found))
        position = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["index"]:
        return Step(index=int(found["index"]))
    if found["all"]:
        return Step(every=True)
    if found["key"]:
        return Step(key=found["key"], value=found["value"])
    name = found["field"] if found["field"] is not None else found["quoted"]
    return Step(every=True) if name == "*" else Step(field=re.sub(r"\\(.)", r"\1", name))


def find(value: Any, path: str) -> list[Any]:
    """Every value at a path."""
    found = [value]
    for step in compiled(path):
        found = [inner for outer in found for inner in _enter(outer, step)]
    return found


def _enter(value: Any, step: Step) -> Iterator[Any]:
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
