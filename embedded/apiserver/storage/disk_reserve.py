"""The reserve of the database of objects, which stores deletions and small changes also on a full disk.

One rule: the reserve is inside the database's own files, where no other program can take it. The reserve consists of
free pages of the database that are allocated on disk, and of a log (WAL) of its full length. A separate file that is
deleted when the disk is full would not work: the program that has filled the disk would take its room too.

A commit on a full disk then overwrites blocks that are allocated already. (A file system that writes changed blocks to
another place, such as Btrfs and ZFS, also needs the blocks that it keeps free for itself.)
"""

import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from embedded.preallocation import allocate

CHECKPOINT_PAGES = 4000
"""The pages in the log from which a checkpoint writes them into the database: 16 MB, since it waits for the disk."""
_LOG_BYTES = 24 * 1024 * 1024
"""The length of the log: those pages, and the largest usual batch."""
_MOST_SPARE, _LEAST_SPARE = 8 * 1024 * 1024, 2 * 1024 * 1024
"""Bytes of free pages. If there are fewer than the second number, pages are added up to the first. All requests wait
for that, some 0.1 s."""
_RETRY_SECONDS = 1.0
_TABLE = "CREATE TABLE IF NOT EXISTS spare (room BLOB)"


class DiskReserve:
    """The reserve of one database, which is open exclusively and in WAL mode."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._page: int = database.execute("PRAGMA page_size").fetchone()[0]
        self._spare = 0
        self._retry_at = 0.0
        self.full = False
        """Whether the disk has no room beyond the reserve."""
        self._secure_delete = int(database.execute("PRAGMA secure_delete").fetchone()[0])
        database.execute(_TABLE)
        self.fill()

    def consume(self, size: int) -> None:
        """Subtract the bytes of a commit from the reserve, and fill the reserve up if it is low."""
        self._spare -= size
        if self._spare < _LEAST_SPARE:
            self.fill()

    def fill(self) -> None:
        """Allocate room for the log and for the reserve, as far as the disk has it."""
        with suppress(OSError, sqlite3.Error):
            if not self._is_log_long():  # SQLite does not read the bytes behind the last commit
                allocate(self._log, _LOG_BYTES)
            self._count_free_pages()
            if self._spare < _LEAST_SPARE:
                self._grow(_MOST_SPARE)
                self._count_free_pages()
        self.full = self._spare < _LEAST_SPARE or not self._is_log_long()

    def mark_full(self) -> None:
        """Record that a commit failed because the disk is full."""
        self.full = True
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        with suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def has_room_again(self) -> bool:
        """Return whether the disk has room again; the disk is tested once a second at most."""
        if self.full and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.fill()
        return not self.full

    def _count_free_pages(self) -> None:
        self._spare = self._page * int(self._database.execute("PRAGMA freelist_count").fetchone()[0])

    def _is_log_long(self) -> bool:
        with suppress(OSError):
            return self._log.stat().st_size >= _LOG_BYTES
        return False

    def _grow(self, spare: int) -> None:
        """Add free pages to the database file until it has `spare` bytes of them. Raise OSError or sqlite3.Error on
        failure.

        The row takes the free pages that there are already, so it has the size of all that are to be free.

        A scratch file tests first whether the disk has the room. Otherwise pages in the log that find no room in the
        database would block every later checkpoint.
        """
        scratch = self._path.with_name(f".{self._path.name}.room")
        try:
            allocate(scratch, spare - self._spare + self._page * 16)
            self._database.execute("INSERT INTO spare VALUES (zeroblob(?))", (spare,))
        finally:
            scratch.unlink(missing_ok=True)
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            self._database.execute("PRAGMA secure_delete=OFF")  # the row holds only zeros
            self._database.execute("DELETE FROM spare")
            self._database.execute(f"PRAGMA secure_delete={self._secure_delete}")


def is_full(error: sqlite3.Error) -> bool:
    """Return whether a commit failed because the disk, or the quota of the user, is full."""
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
