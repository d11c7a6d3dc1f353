"""The store of the history in SQLite or PostgreSQL.

One rule: each question is one transaction, and so is each write. What they do is in the modules beside this one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from history.rows import GapRow, PodRow, PoolRow, QueueRow, Row
from history.sql import pages, pruning, schema, sums, waiting, writes
from history.sql.database import Database
from history.sql.migrations.migrate import migrate
from history.store import Demand, GroupKey, GroupSums, JobQuery, JobRecord, OpenJob, Span

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")


def open_history(url: str, cluster: str, *, read_only: bool = False) -> "SqlHistory":
    """Open a history. A file of SQLite is made and migrated; a database of PostgreSQL has to be (`torchq history
    migrate`). `cluster` is the uid of the namespace kube-system; empty: it is not checked.

    Raise BadDatabase, NotReachable, WrongSchema or ForeignHistory if the history cannot be used.
    """
    database = Database(url, read_only=read_only)
    try:
        if database.is_sqlite and not read_only:
            migrate(url)
        with database.reading() if read_only else database.writing() as connection:
            schema.check(connection, database.name)
            (schema.check_cluster if read_only else schema.claim)(connection, database.name, cluster)
    except BaseException:
        database.close()
        raise
    return SqlHistory(database)


class SqlHistory:
    """A HistoryStore. Threads may use it at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def is_replaced(self) -> bool:
        """Whether the file that is open has lost its place to another one."""
        return self._database.is_replaced

    def write(self, rows: Iterable[Row]) -> int:
        """See HistoryStore."""
        with self._database.writing() as connection:
            return writes.write(connection, rows)

    def recorded_until(self) -> int:
        """See HistoryStore."""
        with self._database.reading() as connection:
            return int(schema.read_fact(connection, schema.RECORDED_UNTIL) or 0)

    def record_until(self, moment: int) -> None:
        """See HistoryStore."""
        with self._database.writing() as connection:
            if moment > int(schema.read_fact(connection, schema.RECORDED_UNTIL) or 0):
                schema.write_fact(connection, schema.RECORDED_UNTIL, str(moment))

    def open_jobs(self) -> Sequence[OpenJob]:
        """See HistoryStore."""
        return self._read(pages.open_jobs)

    def open_pods(self) -> Sequence[PodRow]:
        """See HistoryStore."""
        return self._read(pages.open_pods)

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        """See HistoryStore."""
        return self._read(pages.records, query)

    def count_jobs(self, query: JobQuery) -> int:
        """See HistoryStore."""
        return self._read(pages.count, query)

    def sums(self, span: Span, now: int) -> Sequence[GroupSums]:
        """See HistoryStore."""
        return self._read(sums.sums, span, now)

    def first_waits(self, span: Span) -> Mapping[GroupKey, Sequence[int]]:
        """See HistoryStore."""
        return self._read(waiting.first_waits, span)

    def demands(self, span: Span, now: int) -> Sequence[Demand]:
        """See HistoryStore."""
        return self._read(waiting.demands, span, now)

    def waits(self, span: Span, now: int) -> Sequence[Span]:
        """See HistoryStore."""
        return self._read(waiting.waiting, span, now)

    def held_while(self, spans: Sequence[Span], now: int) -> Mapping[str, int]:
        """See HistoryStore."""
        return self._read(sums.held_while, spans, now)

    def queues(self, span: Span) -> Sequence[QueueRow]:
        """See HistoryStore."""
        return self._read(pages.weights, span)

    def pools(self, span: Span) -> Sequence[PoolRow]:
        """See HistoryStore."""
        return self._read(pages.all_pools, span)

    def gaps(self, span: Span) -> Sequence[GapRow]:
        """See HistoryStore."""
        return self._read(pages.all_gaps, span)

    def prune(self, before: int, limit: int) -> int:
        """See HistoryStore."""
        return pruning.prune(self._database, before, limit)

    def _read(
        self,
        question: Callable[Concatenate[Connection, _Parameters], _Answer],
        *arguments: _Parameters.args,
        **named: _Parameters.kwargs,
    ) -> _Answer:
        with self._database.reading() as connection:
            return question(connection, *arguments, **named)
