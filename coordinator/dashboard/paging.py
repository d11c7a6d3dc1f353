"""Long lists in pages.

One rule: pure, and harmless: a page that is out of range is the nearest page, and an order that nobody knows is the
usual one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from coordinator.dashboard import paths
from coordinator.wording.columns import TableColumn

ROWS = 50
"""The rows of a page."""
_LONGEST_NUMBER = 6
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pager:
    """Which rows of a list are shown, and where the others are."""

    first: int
    last: int
    total: int
    previous: str
    """The address of the page before; empty on the first page."""
    following: str


def cut(items: Sequence[T], path: str, query: Mapping[str, str], name: str = "page") -> tuple[Sequence[T], Pager]:
    """Return the rows of the page that a query asks for, and the pager. `name` is the parameter with the number."""
    shown, pager = window(len(items), path, query, name)
    return items[shown], pager


def window(total: int, path: str, query: Mapping[str, str], name: str = "page") -> tuple[slice, Pager]:
    """Return where the rows of the page are in a list of a length, and the pager; see `cut`."""
    pages = max(1, -(-total // ROWS))
    number = min(pages, max(1, _number(query.get(name, ""))))
    first = (number - 1) * ROWS
    last = min(total, first + ROWS)

    def address(page: int) -> str:
        return paths.with_query(path, {**query, name: str(page) if page > 1 else ""}) if 1 <= page <= pages else ""

    pager = Pager(min(first + 1, total), last, total, address(number - 1), address(number + 1))
    return slice(first, last), pager


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of a column, by which rows can be sorted."""

    text: str
    address: str
    """The address of the page in the order of this column; empty for a column that has no order."""
    order: str = "none"
    """The present order by this column, as aria-sort names it: none, ascending or descending."""
    kind: str = ""
    """The class of its cells: `n` for numbers, `gauge` for bars."""


def sorted_by(query: Mapping[str, str], shape: Mapping[str, TableColumn]) -> tuple[TableColumn | None, bool]:
    """Return the column by which a query sorts, None for the usual order, and whether that is from high to low."""
    text = query.get("sort", "")
    return shape.get(text.removeprefix("-")), text.startswith("-")


def heading(text: str, name: str, path: str, query: Mapping[str, str], *, kind: str = "") -> Heading:
    """Return the title of a column with the link that sorts by it, or that turns the order around. Numbers are sorted
    from high to low first."""
    present = query.get("sort", "")
    order = {name: "ascending", f"-{name}": "descending"}.get(present, "none")
    first, second = (f"-{name}", name) if kind else (name, f"-{name}")
    wanted = second if present == first else first
    kept: dict[str, Any] = {each: value for each, value in query.items() if each not in ("sort", "page")}
    return Heading(text, paths.with_query(path, {**kept, "sort": wanted}), order, kind)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else 1
