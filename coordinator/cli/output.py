"""The output of commands: columns for people, JSON or YAML for programs.

One rule: columns are stable and plain, so that `awk` works on them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
import orjson
import yaml

from coordinator import terminal
from coordinator.query.questions import Document
from coordinator.wording import columns as table_columns
from coordinator.wording.columns import TableColumn, TextTable

FORM = click.option("-o", "form", type=click.Choice(["json", "yaml"]), help="print for programs")
Row = Sequence[object]
Command = Callable[..., Any]


def as_value(name: str, kind: type[Any], *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, which gets them as one value: a dataclass with their names."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*arguments: Any, **given: Any) -> Any:
            value = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
            return command(*arguments, **{name: value}, **given)

        decorated: Command = run
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def columns(header: Sequence[str], rows: Sequence[Row]) -> str:
    """Format left-aligned columns, three spaces apart, as kubectl prints them."""
    table = [list(map(terminal.one_line, row)) for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def table(found: TextTable) -> str:
    """Format a table; empty if it has no rows."""
    return columns(found.titles, found.rows) if found.rows else ""


def facts(values: Iterable[tuple[str, object]], width: int) -> str:
    """Format values one below the other, each in a line with its title."""
    return "\n".join(terminal.one_line(f"{title + ':':<{width}}{value}") for title, value in values)


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The output options of a list command."""

    form: str | None = None
    """json, yaml, wide, csv or None."""
    no_headers: bool = False
    sort_by: str = ""

    def show(self, shape: Sequence[TableColumn], items: Sequence[Document]) -> None:
        """Print the items. Raises UsageError for an unknown column."""
        ordered = self.sort(shape, items)
        if self.form in ("json", "yaml"):
            print_document({"apiVersion": "v1", "kind": "List", "items": ordered}, self.form)
        elif self.form == "csv":
            click.echo(table_columns.sheet(shape, ordered, headers=not self.no_headers), nl=False)
        elif text := self._text(shape, ordered):
            click.echo(text)

    def table(self, shape: Sequence[TableColumn], items: Sequence[Document]) -> str:
        """Format the items as columns. Raises UsageError for an unknown column."""
        return self._text(shape, self.sort(shape, items))

    def _text(self, shape: Sequence[TableColumn], items: Sequence[Document]) -> str:
        found = table_columns.table(shape, items, wide=self.form == "wide")
        text = columns(found.titles, found.rows)
        return text.partition("\n")[2] if self.no_headers else text

    def sort(self, shape: Sequence[TableColumn], items: Sequence[Document]) -> list[Document]:
        """Return the items in the order that the user wants. Raises UsageError for an unknown column."""
        if not self.sort_by:
            return list(items)
        titles = {column.title: column for column in shape}
        column = titles.get(self.sort_by.lstrip("-").upper())
        if column is None:
            raise click.UsageError(f"--sort-by: there is no column {self.sort_by!r}; choose from {', '.join(titles)}")
        return table_columns.ordered(items, column, descending=self.sort_by.startswith("-"))


def _table_options(*forms: str) -> Callable[[Command], Command]:
    return as_value(
        "listing",
        TableOptions,
        click.option("-o", "form", type=click.Choice(forms), help="print for programs, or more columns"),
        click.option("--no-headers", is_flag=True, help="print no header line"),
        click.option("--sort-by", default="", metavar="COLUMN", help="sort by this column; -COLUMN sorts in reverse"),
    )


table_options = _table_options("json", "yaml", "wide")
"""Adds the options of every list command, which gets them as `listing`."""
sheet_options = _table_options("json", "yaml", "wide", "csv")
"""Adds the options of a list command that also prints for spreadsheets."""


def show(document: Any, form: str | None, format_text: Callable[[Any], str]) -> None:
    """Print a document for programs, as `-o` says, else as text for people."""
    if form:
        print_document(document, form)
    else:
        click.echo(format_text(document))


def print_document(value: Any, form: str) -> None:
    """Print a JSON value as JSON or YAML, as `-o` says."""
    if form == "json":
        click.echo(json_text(value, indent=True))
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False), nl=False)


def json_text(value: Any, *, indent: bool = False) -> str:
    """Format a JSON value."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else None).decode()
    return terminal.clean_json(text)


def now() -> datetime:
    """Return the current time, for ages."""
    return datetime.now(UTC)
