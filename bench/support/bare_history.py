"""The database of the history by its bare driver: what a benchmark compares the store with.

One rule: the same tables and indexes, the same rows, the same size of a transaction, the same care for the disk.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg

from history.sql.migrations.migrate import migrate
from history.sql.sql_history import SqlHistory, open_history
from history.sql.tables import KEYS

_SHARED, _OWN = ("parties", "charges"), ("jobs", "holds", "waits")
_VERSION = {17: 1, 7: 2}
"""Where the version is, by the number of columns: in jobs and in waits."""
_SCAN = """
SELECT h.queue, j.namespace, j.username, j.outcome, h.charge,
       SUM({least}(h.until, {end}) - {greatest}(h.start, {start})), COUNT(*)
FROM holds h JOIN jobs j ON j.uid = h.uid
WHERE h.until > {start} AND h.start < {end}
GROUP BY h.queue, j.namespace, j.username, j.outcome, h.charge
"""
"""The seconds of all holds, by what sums are kept apart by."""


class BareHistory:
    """A connection of the driver to the database of a store, and new places with the same tables."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._database = self._connect(url)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def size(self) -> int:
        """Return the bytes of the tables and indexes."""
        if self._is_sqlite:
            return int(self._one("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"))
        return int(
            self._one(
                "SELECT SUM(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND "
                "relnamespace = current_schema()::regnamespace"
            )
        )

    def settle(self) -> None:
        """Do at once what a server does for its tables within a minute."""
        if not self._is_sqlite:
            self._database.execute("VACUUM ANALYZE")

    def scan(self, start: int, end: int) -> int:
        """Add up the seconds of a span with one SELECT, and return the number of sums."""
        names = ("min", "max") if self._is_sqlite else ("least", "greatest")
        text = _SCAN.format(least=names[0], greatest=names[1], start=start, end=end)
        return len(self._database.execute(text).fetchall())

    def compare_upserts(self, write: Callable[[SqlHistory], float], batch: int) -> tuple[float, float]:
        """Return the seconds that a store needs to write rows into empty tables, and that the driver needs."""
        ours = self._place("ours")
        with closing(open_history(ours, "")) as store:
            ours_s = write(store)
        return ours_s, self._upsert(ours, self._place("bare"), batch)

    @property
    def _is_sqlite(self) -> bool:
        return self._url.startswith("sqlite")

    def _upsert(self, source: str, target: str, batch: int) -> float:
        with closing(self._connect(source)) as read, closing(self._connect(target)) as write:
            shared = {table: read.execute(f"SELECT * FROM {table}").fetchall() for table in _SHARED}
            rows = {table: _by_job(read.execute(f"SELECT * FROM {table}")) for table in _OWN}
            texts = {table: self._text(read, table) for table in (*_SHARED, *_OWN)}
            begun = time.perf_counter()
            for table in _SHARED:
                write.cursor().executemany(texts[table], shared[table])
            rest = iter(rows["jobs"])
            while uids := list(islice(rest, batch)):
                for tables, older in (((("jobs", "waits")), 9), (_OWN, 0)):
                    write.execute("BEGIN")
                    for table in tables:
                        values = [_with_older(row, older) for uid in uids for row in rows[table].get(uid, ())]
                        write.cursor().executemany(texts[table], values)
                    write.execute("COMMIT")
            return time.perf_counter() - begun

    def _text(self, database: Any, table: str) -> str:
        """Return the upsert of a table."""
        names = [column[0] for column in database.execute(f"SELECT * FROM {table} LIMIT 0").description]
        keys = KEYS[table]
        changes = ", ".join(f"{name} = excluded.{name}" for name in names if name not in keys)
        versions = f" WHERE excluded.version > {table}.version" if "version" in names else ""
        marks = ", ".join(["?" if self._is_sqlite else "%s"] * len(names))
        return (
            f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) ON CONFLICT ({', '.join(keys)}) "
            f"DO UPDATE SET {changes}{versions}"
        )

    def _place(self, name: str) -> str:
        """Return the URL of empty tables."""
        if self._is_sqlite:
            url = f"sqlite:///{self._folder}/{name}.sqlite"
        else:
            self._database.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")
            url = f"{self._url}{'&' if '?' in self._url else '?'}options=-csearch_path%3D{name}"
        migrate(url)
        return url

    def _connect(self, url: str) -> Any:
        if not self._is_sqlite:
            return psycopg.connect(url, autocommit=True)
        database = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA temp_store = MEMORY")
        return database

    def _one(self, text: str) -> Any:
        return self._database.execute(text).fetchone()[0]


def _by_job(rows: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Return rows by their first column, the uid of a job."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _with_older(row: Sequence[Any], by: int) -> Sequence[Any]:
    """Return a row of an older version, which is the column that names it in each table."""
    return row if not by else (*row[: _VERSION[len(row)]], row[_VERSION[len(row)]] - by, *row[_VERSION[len(row)] + 1 :])
