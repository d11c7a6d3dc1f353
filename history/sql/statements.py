"""What the statements of the history share: upserts, and functions that have other names in each database."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Dialect,
    LargeBinary,
    Table,
    any_,
    bindparam,
    case,
    func,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite

from history.sql.tables import KEYS, OPEN

_CHUNK = 500
"""The most values of one list in a statement."""

Insert = sqlite.Insert | postgresql.Insert


def insert(connection: Connection, table: Table) -> Insert:
    """Return an INSERT that may have ON CONFLICT."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def upsert(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *order: str, is_falling: bool = False
) -> int:
    """Insert rows, or update those whose columns `order` are smaller, as a tuple (larger, if is_falling). Return how
    many differ now."""
    if not rows:
        return 0
    statement = _upsert_text(connection.dialect, table, tuple(rows[0]), order, is_falling)
    # The rows go to the driver as they are: the library would take as long over them as the database. By default it
    # counts only updates and deletions.
    return connection.exec_driver_sql(statement, list(rows), {"preserve_rowcount": True}).rowcount


@lru_cache(maxsize=64)
def _upsert_text(
    dialect: Dialect, table: Table, names: tuple[str, ...], order: tuple[str, ...], is_falling: bool
) -> str:
    kind = sqlite if dialect.name == "sqlite" else postgresql
    statement = kind.insert(table).values({name: bindparam(name) for name in names})
    new, old = (tuple_(*(columns[name] for name in order)) for columns in (statement.excluded, table.c))
    statement = statement.on_conflict_do_update(
        index_elements=KEYS[table.name],
        set_={name: statement.excluded[name] for name in names if name not in KEYS[table.name]},
        where=new < old if is_falling else new > old,
    )
    return str(statement.compile(dialect=dialect))


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the values in lists that are short enough for one statement."""
    rest = iter(values)
    while some := list(islice(rest, _CHUNK)):
        yield some


def among(connection: Connection, column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """Return the condition that a column has one of some values. They are one parameter: a statement with a parameter
    for each would take longer to write and to read than the rows."""
    if connection.dialect.name != "sqlite":
        return column == any_(bindparam(None, [*values], type_=ARRAY(type(column.type)())))
    if isinstance(column.type, LargeBinary):  # JSON has no bytes
        return column.in_(values)
    listed = func.json_each(json.dumps([*values])).table_valued("value")
    return column.in_(select(listed.c.value))


def least(connection: Connection, *values: Any) -> ColumnElement[int]:
    """Return the smallest of values."""
    return func.min(*values) if connection.dialect.name == "sqlite" else func.least(*values)


def greatest(connection: Connection, *values: Any) -> ColumnElement[int]:
    """Return the largest of values."""
    return func.max(*values) if connection.dialect.name == "sqlite" else func.greatest(*values)


def ended(until: ColumnElement[int], now: int) -> ColumnElement[int]:
    """Return an end, which is now where it has not come yet."""
    return case((until == OPEN, now), else_=until)
