"""The tables of the page of a job, as elements: the rows that `torchq job show` prints.

One rule: pure and bounded. Words of users are cut, and long tables end with the number of the rows that are left out.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from coordinator.dashboard.elements import Element
from coordinator.dashboard.jobs.index import UNREADABLE
from coordinator.query.questions import Document
from coordinator.wording.columns import TextTable
from crds import excerpts, timestamps

LONGEST = 2_000
"""The most characters of a cell."""
MOST_ROWS = 200
_TIME_LENGTHS = range(20, 33)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JobCell:
    """A cell of a row."""

    text: str
    kind: str = ""
    """n: a number; time: a time, as the browser's reader knows it."""


def attempt(make: Callable[[], T], otherwise: T) -> T:
    """Return what a function makes of an object, or something else if the object is not as its schema says."""
    try:
        return make()
    except UNREADABLE:
        return otherwise


def short(text: object) -> str:
    """Return a text in one line that fits into a cell."""
    return excerpts.excerpt(excerpts.one_line(str(text)[: 2 * LONGEST]), LONGEST)


def cell(value: object) -> JobCell:
    """Return a value as a cell."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return JobCell(f"{value:.6g}" if isinstance(value, float) else str(value), "n")
    text = short(value)
    return JobCell(text, "time" if is_time(text) else "")


def is_time(text: str) -> bool:
    """Return whether a text is a time alone."""
    return len(text) in _TIME_LENGTHS and text[:1].isdigit() and timestamps.seconds_or_none(text) is not None


def rows(name: str, make: Callable[[], TextTable]) -> tuple[Element, ...]:
    """Return the rows of a table; `name` begins the ids of their elements."""
    table = attempt(make, None)
    return tuple(_rows(name, table.rows)) if table is not None else ()


def _rows(name: str, found: Sequence[Sequence[object]]) -> Iterator[Element]:
    shown = found[:MOST_ROWS]
    for number, row in enumerate(shown):
        yield Element(f"{name}-{number}", "row", tuple(map(cell, row)))
    if len(found) > len(shown):
        yield Element(f"{name}-more", "more_rows", (len(found) - len(shown), len(shown[0])))


def lines(name: str, texts: Iterable[object]) -> tuple[Element, ...]:
    """Return sentences as elements of a list."""
    found = [short(text) for text in texts]
    return tuple(Element(f"{name}-{number}", "line", text) for number, text in enumerate(found[:MOST_ROWS]) if text)


def facts(name: str, found: Iterable[tuple[str, object]]) -> tuple[Element, ...]:
    """Return facts with their titles as elements."""
    return tuple(
        Element(f"{name}-{number}", "job_fact", (title, cell(value))) for number, (title, value) in enumerate(found)
    )


def reports(training: Document) -> TextTable:
    """Return the last report of each pod."""
    fields = ("pod", "step", "stepsPerSecond", "samplesPerSecond", "loss", "checkpoint", "reportedAt")
    found = [[pod.get(name, "-") for name in fields] for pod in training.get("pods") or ()]
    return TextTable(fields, found)
