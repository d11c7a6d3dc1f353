"""The columns of lists: a title, and what a column shows of an item.

One rule: a column shows one value and never changes its place. A new column comes last, or only with `-o wide`.
"""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.query.questions import Document


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column of a list."""

    title: str
    text: Callable[[Document], object]
    order: Callable[[Document], Any] | None = None
    """The sort key, a number or a text; None sorts by the text of the column."""
    wide: bool = False
    """Whether only `-o wide` shows this column."""

    def key(self, item: Document) -> tuple[bool, Any]:
        """Return the sort key of an item. A missing value sorts last."""
        value = self.text(item) if self.order is None else self.order(item)
        return value is None or value == "-", 0 if value is None else value


def status_of(item: Document) -> dict[str, Any]:
    """Return the status of an object; empty if it has none yet."""
    return item.get("status") or {}


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table with its titles; each row has as many cells."""

    titles: Sequence[str]
    rows: Sequence[Sequence[object]]


def table(shape: Sequence[TableColumn], items: Sequence[Document], *, wide: bool = False) -> TextTable:
    """Return what the columns show of items, a row for each."""
    visible = [column for column in shape if wide or not column.wide]
    return TextTable(
        [column.title for column in visible], [[column.text(item) for column in visible] for item in items]
    )


def ordered(items: Sequence[Document], column: TableColumn, *, descending: bool = False) -> list[Document]:
    """Return the items in the order of a column. Items without a value are last in both directions."""
    keys = [(column.key(item), item) for item in items]
    sortable = sorted((each for each in keys if not each[0][0]), key=lambda each: each[0], reverse=descending)
    return [item for _, item in sortable] + [item for (is_missing, _), item in keys if is_missing]


def sheet(shape: Sequence[TableColumn], items: Sequence[Document], *, headers: bool = True) -> str:
    """Return all columns as CSV for a spreadsheet, with plain numbers: each value is the sort key of its column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[column.title for column in shape]] if headers else [])
    writer.writerows([[_cell(column.key(item)) for column in shape] for item in items])
    return text.getvalue()


def _cell(key: tuple[bool, Any]) -> object:
    """Return a sort key as a cell. A text that a spreadsheet would compute is only shown."""
    is_missing, value = key
    if is_missing:
        return ""
    is_formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if is_formula else value
