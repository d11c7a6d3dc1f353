"""The embedded cluster's objects on disk: one SQLite file, one transaction for a batch of changes.

One rule: a change survives a killed process once `commit` has returned. (WAL with synchronous=NORMAL: a machine that
loses power may lose the last changes, but the database stays consistent.)
"""

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embedded.apiserver.storage import disk_reserve
from embedded.apiserver.storage.disk_reserve import DiskReserve

_FORMAT = 1
_MAGIC, _HEADER_BYTES, _USER_VERSION = b"SQLite format 3\0", 100, 60
"""The header of a SQLite file: its beginning, its length, and the position of PRAGMA user_version.

The format is described in section 1.3 of www.sqlite.org/fileformat.html.
"""
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
    resource TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (resource, namespace, name)
);
CREATE TABLE IF NOT EXISTS revision (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), newest INTEGER NOT NULL);
INSERT OR IGNORE INTO revision VALUES (1, 0);
"""
_PUT = "INSERT OR REPLACE INTO objects (resource, namespace, name, version, body) VALUES (?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM objects WHERE resource = ? AND namespace = ? AND name = ?"


class DiskFailed(Exception):
    """The database cannot be opened or written."""


class DiskFull(DiskFailed):
    """The disk has no room for a change."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the disk of {path.parent} is full: no object can be created or grow until the disk has room again; "
            "deletions and small changes, such as torchq job cancel and suspend, still work; "
            f"free some room (df -h {path.parent})"
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One stored object; without a body, a deleted object."""

    resource: str
    namespace: str
    name: str
    version: int
    body: bytes | None


def check(path: Path) -> None:
    """Raise DiskFailed if the file exists and this version cannot read it. The file is not opened as a database."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DiskFailed(f"cannot open the database {path}: {error.strerror}") from error
    if not header:
        return
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise DiskFailed(f"cannot open the database {path}: it is not a database")
    _check_format(path, int.from_bytes(header[_USER_VERSION : _USER_VERSION + 4], "big"))


def _check_format(path: Path, version: int) -> None:
    if version > _FORMAT:
        raise DiskFailed(f"{path} was written by a newer version (format {version}, this one reads {_FORMAT})")


class Disk:
    """The database file, held exclusively while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
        except (OSError, sqlite3.Error) as error:
            raise DiskFailed(f"cannot open the database {path}: {error}") from error
        try:
            self._prepare()
        except (sqlite3.Error, DiskFailed) as error:
            self._database.close()
            if isinstance(error, DiskFailed):
                raise
            if "locked" in str(error):
                message = f"another API server uses {path.parent}: stop it or choose another data folder"
                raise DiskFailed(message) from error
            raise DiskFailed(f"cannot open the database {path}: {error}") from error
        path.chmod(0o600)

    @property
    def full(self) -> bool:
        """Whether the disk has room for deletions and small changes only."""
        return self._reserve.full and not self._reserve.has_room_again()

    def full_error(self) -> DiskFull:
        """Return the error for changes that a full disk cannot take."""
        return DiskFull(self._path)

    def _prepare(self) -> None:
        # Exclusive: two servers on one folder would answer from different copies in memory.
        self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.execute("PRAGMA temp_store=MEMORY")
        self._database.execute(f"PRAGMA wal_autocheckpoint={disk_reserve.CHECKPOINT_PAGES}")
        _check_format(self._path, self._database.execute("PRAGMA user_version").fetchone()[0])
        self._database.executescript(_TABLES)
        self._database.execute(f"PRAGMA user_version={_FORMAT}")
        self._reserve = DiskReserve(self._database, self._path)

    def load(self) -> tuple[int, Iterator[Row]]:
        """Return the newest revision that was ever assigned, and all objects."""
        newest: int = self._database.execute("SELECT newest FROM revision").fetchone()[0]
        cursor = self._database.execute("SELECT resource, namespace, name, version, body FROM objects ORDER BY version")
        return newest, (Row(*columns) for columns in cursor)

    def commit(self, rows: Iterable[Row], newest: int) -> None:
        """Write changes in order, all or none.

        Raise DiskFailed if the changes are not stored, and DiskFull if the reason is that the disk has no room.
        """
        changes = tuple(rows)
        size = sum(len(row.body) for row in changes if row.body is not None)
        try:
            self._write(changes, newest)
        except sqlite3.Error as error:
            if not disk_reserve.is_full(error):
                raise DiskFailed(f"cannot write the database {self._path}: {error}") from error
            self._reserve.mark_full()
            try:
                self._write(changes, newest)
            except sqlite3.Error as again:
                raise self.full_error() from again
        self._reserve.consume(size)

    def _write(self, changes: tuple[Row, ...], newest: int) -> None:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for row in changes:
                key = (row.resource, row.namespace, row.name)
                if row.body is None:
                    self._database.execute(_REMOVE, key)
                else:
                    self._database.execute(_PUT, (*key, row.version, row.body))
            self._database.execute("UPDATE revision SET newest = ?", (newest,))
            self._database.execute("COMMIT")
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Write the log into the database and close the file."""
        self._database.close()
