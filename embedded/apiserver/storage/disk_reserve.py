"""Room that the database of objects has for itself, so that deletions and small changes are kept on a full disk too.

One rule: the room is inside of the database's own files, where no other program can take it: pages of the database that
are free but on disk, and a log (WAL) that is as long as it ever gets. A file beside them that is given up when the disk
is full would be filled by whatever has filled the disk.

A commit on a full disk then overwrites what is on disk already. (Where the file system puts changed blocks elsewhere,
as Btrfs and ZFS do, it also needs what that keeps free for itself.)
"""

import errno
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

CHECKPOINT_PAGES = 4000
"""Pages in the log from which it is folded into the database: 16 MB, as a checkpoint waits for the disk."""
_LOG_BYTES = 24 * 1024 * 1024
"""Those pages, and the largest usual batch on top."""
_MOST_SPARE, _LEAST_SPARE = 4 * 1024 * 1024, 2 * 1024 * 1024
"""Bytes of free pages: so many are made when there are fewer than the least."""
_PIECE = 1024 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RETRY_SECONDS = 1.0
_TABLE = "CREATE TABLE IF NOT EXISTS spare (room BLOB)"


class DiskRoom:
    """The room of one database, which is open in WAL mode and exclusively."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database = database
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._page: int = database.execute("PRAGMA page_size").fetchone()[0]
        self._spare = 0
        self._retry_at = 0.0
        self.full = False
        """Whether the disk has no room for more than what is set aside."""
        self._wiping = int(database.execute("PRAGMA secure_delete").fetchone()[0])
        database.execute(_TABLE)
        self.provide(0)

    def spent(self, size: int) -> None:
        """So many bytes were written; see that there is room for the next ones."""
        self._spare -= size
        if self._spare < _LEAST_SPARE:
            self.provide(0)

    def provide(self, size: int) -> bool:
        """See that there is room for so many bytes, and the reserve beside it; whether there is."""
        with suppress(OSError, sqlite3.Error):
            self._extend_log()
            self._count()
            if self._spare - size < _LEAST_SPARE:
                self._grow(size + _MOST_SPARE - self._spare)
                self._count()
        self.full = self._spare - size < _LEAST_SPARE or not self._log_is_long()
        return not self.full

    def ran_out(self) -> None:
        """A commit failed because the disk is full."""
        self.full = True
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        with suppress(sqlite3.Error):
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def is_back(self) -> bool:
        """Whether the disk has room again; it is looked at once a second at most."""
        if self.full and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            self.provide(0)
        return not self.full

    def _count(self) -> None:
        self._spare = self._page * int(self._database.execute("PRAGMA freelist_count").fetchone()[0])

    def _log_is_long(self) -> bool:
        with suppress(OSError):
            return self._log.stat().st_size >= _LOG_BYTES
        return False

    def _extend_log(self) -> None:
        """What follows the last commit in the log is not read. OSError."""
        if not self._log_is_long():
            allocate(self._log, _LOG_BYTES)

    def _grow(self, size: int) -> None:
        """Make free pages that are on disk. OSError, sqlite3.Error.

        The room is taken by another file first: pages that are in the log and find no room in the database would keep
        the log from being folded into it.
        """
        draft = self._path.with_name(f".{self._path.name}.room")
        try:
            allocate(draft, size + self._page * 16)
            self._database.execute("INSERT INTO spare VALUES (zeroblob(?))", (size,))
        finally:
            draft.unlink(missing_ok=True)
        try:
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            self._database.execute("PRAGMA secure_delete=OFF")  # there is nothing in it
            self._database.execute("DELETE FROM spare")
            self._database.execute(f"PRAGMA secure_delete={self._wiping}")


def allocate(path: Path, size: int) -> None:
    """Have a file be so long at least, on disk. OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if _preallocated(descriptor, size):
            return
        missing = size - os.lseek(descriptor, 0, os.SEEK_END)
        while missing > 0:
            missing -= os.write(descriptor, bytes(min(missing, _PIECE)))
    finally:
        os.close(descriptor)


def _preallocated(descriptor: int, size: int) -> bool:
    """Whether the system could do it without writing. OSError if there is no room."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        return False
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        return False  # this file system cannot
    return True


def is_full(error: sqlite3.Error) -> bool:
    """Whether a commit failed because the disk, or its user's quota, is full."""
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
