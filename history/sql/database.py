"""The database of the history: its URL, its connections and transactions, and its errors in words.

One rule: one transaction writes at a time (SQLite has one writer anyway, PostgreSQL gets a lock), so what a transaction
has read stays true until it writes. No error of a library leaves this module, and no message has a password.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool

from history.errors import BadDatabase, HistoryError, NotReachable

_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_OLDEST_POSTGRESQL = (13,)
_LOCK = 7_305_416_113
"""The number of the lock of PostgreSQL that writers hold."""
_BUSY_SECONDS = 10
_STATEMENT_SECONDS = 120
_LIMITS = text(f"SELECT set_config('jit', 'off', true), set_config('statement_timeout', '{_STATEMENT_SECONDS}s', true)")
"""What a transaction of PostgreSQL that reads begins with. Compiling a statement takes longer than any of them runs."""
_WRITER = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    # 16 MB: a transaction of some hundred jobs has 8 MB, and each would be copied from the log at once.
    "PRAGMA wal_autocheckpoint = 4000",
)
_WRITES = "torchq_writes"
_KEPT = {"connect_timeout": 10, "keepalives_idle": 20, "tcp_user_timeout": 30_000, "client_encoding": "utf8"}
"""How soon a server that is gone is noticed; parameters of the URL go first."""


class Database:
    """Connections to one database."""

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        """Raise BadDatabase if the URL cannot be used. Nothing is opened yet, but for a file that is made."""
        self._url = parse(url)
        self.name = _name(self._url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self._read_only = read_only
        self._engine = self._open()
        self._file = self._found_file()
        """Which file of SQLite is open."""

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @property
    def is_replaced(self) -> bool:
        """Whether another file, or none, has taken the place of the file that is open. What is written to a file
        without a name is lost."""
        return self._found_file() != self._file

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that sees one state of the database. Raise NotReachable if the database does not
        answer."""
        with self._told(), self._engine.connect() as connection, connection.begin():
            if not self.is_sqlite:
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
                connection.execute(_LIMITS)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open the one transaction that writes, and commit what the block has written. Raise NotReachable if the
        database does not answer or takes no writes."""
        if self.is_replaced:
            raise NotReachable(f"{self.name} was removed or replaced")
        with self._told(), self._engine.connect() as connection:
            connection.execution_options(**{_WRITES: True})
            with connection.begin():
                if not self.is_sqlite:
                    connection.execute(text(f"SET LOCAL lock_timeout = '{_BUSY_SECONDS}s'"))
                    connection.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_SECONDS}s'"))
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
                yield connection

    def _found_file(self) -> tuple[int, int] | None:
        if not self.is_sqlite:
            return None
        try:
            found = os.stat(str(self._url.database))
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _open(self) -> Engine:
        if self.is_sqlite:
            return self._open_file(Path(str(self._url.database)))
        try:
            engine = create_engine(
                self._url,
                hide_parameters=True,
                pool_pre_ping=True,
                connect_args={name: value for name, value in _KEPT.items() if name not in self._url.query},
            )
        except ModuleNotFoundError as error:
            raise BadDatabase(
                f"history_url names PostgreSQL, and {error.name} is not installed: pip install "
                "'torchq-coordinator[postgres]'"
            ) from None
        event.listen(engine, "connect", _check_server)
        return engine

    def _open_file(self, path: Path) -> Engine:
        if self._read_only:
            if not path.is_file():
                raise NotReachable(f"there is no history yet: {path} does not exist")
            with self._told():
                return self._open_read_only(path)
        try:
            # Private before SQLite writes: its other files get the mode of this one.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise NotReachable(f"the history {path} cannot be opened: {error.strerror}") from None
        return _file_engine(f"file:{quote(str(path))}?mode=rw", *_WRITER)

    def _open_read_only(self, path: Path) -> Engine:
        address = f"file:{quote(str(path))}?mode=ro"
        engine = _file_engine(address)
        try:
            with engine.connect() as connection:
                connection.execute(text("SELECT 1 FROM sqlite_master LIMIT 1"))
        except exc.OperationalError:
            # In a folder that is read-only SQLite cannot make the files of its log. Nobody writes there, unless a log
            # has something in it.
            log = path.with_name(path.name + "-wal")
            if log.exists() and log.stat().st_size:
                raise
            return _file_engine(f"{address}&immutable=1")
        return engine

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except exc.SQLAlchemyError as error:
            raise self._in_words(error) from None

    def _in_words(self, error: exc.SQLAlchemyError) -> HistoryError:
        reason = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        for secret in (self._url.password, quote(str(self._url.password), safe="")):
            reason = reason.replace(str(secret), "***") if secret and self._url.password else reason
        advice = next((words for sign, words in _ADVICE.items() if sign in reason), "")
        return NotReachable(f"{self.name} {advice or 'does not answer'}: {reason}")


_ADVICE = {
    "locked": "is locked by another program",
    "lock timeout": "is locked by another program",
    "full": "is full",
    "No space left": "is full",
    "readonly": "is read-only",
    "read-only": "is read-only",
    "not a database": "is not a database of SQLite",
    "malformed": "is damaged",
    "password authentication failed": "refuses the password",
    "permission denied": "lacks a permission",
}


def parse(url: str) -> URL:
    """Return a URL with the driver that torchq uses. Raise BadDatabase if it names no database that torchq uses."""
    try:
        parsed = make_url(url)
    except (exc.ArgumentError, ValueError):
        raise BadDatabase("history_url is no URL: write sqlite:////PATH or postgresql://USER@HOST/DATABASE") from None
    if parsed.drivername in _POSTGRESQL:
        if "@" in f"{parsed.host}{parsed.database}":  # a part of a password, which messages would name
            raise BadDatabase("history_url is no URL: write %40 for an @ of its password")
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "sqlite":
        raise BadDatabase(f"history_url names {parsed.drivername}: torchq keeps its history in sqlite or postgresql")
    if not parsed.database or parsed.database == ":memory:" or parsed.query:
        raise BadDatabase("history_url names no file: write sqlite:////PATH")
    # As it was written: a path may have any character.
    return parsed.set(database=url.partition("///")[2])


def _name(url: URL) -> str:
    """Return what messages call a database; no password is in it, and no parameters."""
    if url.get_backend_name() == "sqlite":
        return f"the history {url.database}"
    return f"the history in PostgreSQL at {url.host or 'the local socket'}, database {url.database or url.username}"


def _file_engine(address: str, *pragmas: str) -> Engine:
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
        ),
        hide_parameters=True,
        paramstyle="named",
        # Each thread its own connection, as for every file. The URL alone looks like a database in memory.
        poolclass=QueuePool,
    )

    def prepare(connection: Any, _record: object) -> None:
        for pragma in ("PRAGMA temp_store = MEMORY", *pragmas):
            connection.execute(pragma)

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    # A transaction that begins to write after it has read could be refused, however long it waits.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(_WRITES) else "BEGIN")


def _check_server(connection: Any, _record: object) -> None:
    """Raise BadDatabase if a server of PostgreSQL is too old, or its database cannot hold every character."""
    version = connection.info.server_version // 10_000
    if version < _OLDEST_POSTGRESQL[0]:
        raise BadDatabase(f"history_url names PostgreSQL {version}: torchq needs 13 or newer")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise BadDatabase(f"the database of history_url has the encoding {encoding}: make one with UTF8")
