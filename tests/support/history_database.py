"""The database under a history, for tests: what is in its tables, and faults in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import event

from history.sql.database import Database, parse
from history.sql.sql_history import SqlHistory
from history.sql.tables import metadata


class Killed(Exception):
    """The process ends here."""


def content(url: str) -> dict[str, list[Any]]:
    """Return the rows of all tables."""
    with connected(url) as connection:
        names = sqlalchemy.inspect(connection).get_table_names()
        return {
            name: sorted(map(tuple, connection.execute(sqlalchemy.select(metadata.tables[name]))), key=repr)
            for name in names
            if name in metadata.tables
        }


@contextmanager
def connected(url: str) -> Iterator[sqlalchemy.Connection]:
    """Open a connection of another program, which commits at once."""
    engine = sqlalchemy.create_engine(parse(url), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def engine(database: Database | SqlHistory) -> sqlalchemy.Engine:
    """Return the engine of a database."""
    return (database._database if isinstance(database, SqlHistory) else database)._engine


@contextmanager
def interrupted(
    target: sqlalchemy.Engine | type[sqlalchemy.Engine], at: int, action: Any = None
) -> Iterator[list[str]]:
    """Do something before a statement, counted from 0; by default the process ends there. Yield the statements."""
    seen: list[str] = []

    def before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        seen.append(statement)
        if len(seen) == at + 1:
            if action is None:
                raise Killed
            action()

    event.listen(target, "before_cursor_execute", before)
    try:
        yield seen
    finally:
        event.remove(target, "before_cursor_execute", before)
