"""Reads the log of a run: several files are read as one text.

One rule: a position counts every byte that the run has printed. So the position means the same before and after a file
is begun or removed (`log_writer`).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from embedded import log_writer

_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """One file of a log."""

    start: int
    """The position of the file's first byte."""
    path: str


def files(folder: str | Path) -> list[LogFile]:
    """Return the files of a run's log that still exist, oldest first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    starts = ((log_writer.start_of(name), name) for name in names)
    return sorted(LogFile(start, os.path.join(folder, name)) for start, name in starts if start >= 0)


def span(folder: str | Path) -> tuple[int, int]:
    """Return the positions at which the existing files begin and end. Raise FileNotFoundError if there is no log."""
    log, newest = _state(folder)
    return log[0].start, log[-1].start + newest.st_size


def modification_time(folder: str | Path) -> float:
    """Return when the log was last written, in seconds since the epoch. Raise FileNotFoundError if there is no log."""
    return _state(folder)[1].st_mtime


def _state(folder: str | Path) -> tuple[list[LogFile], os.stat_result]:
    while log := files(folder):
        with suppress(FileNotFoundError):  # an older file was removed in between; the newest one never is
            return log, os.stat(log[-1].path)
    raise FileNotFoundError(f"no log in {folder}")


class LogReader:
    """Reads a log from a position on, also while it is written.

    The file that is being read stays open, so it can be read to its end even after it is removed.
    """

    def __init__(self, folder: str | Path, position: int) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.position = position
        """The position of the next byte."""

    def read(self, most: int = _PIECE) -> bytes:
        """Return the next bytes; nothing at the end. Where output was removed, `position` jumps over the gap."""
        if self._file is not None and (piece := self._file.read(most)):
            self.position += len(piece)
            return piece
        following = self._next()
        if following is None:
            return b""
        # The shim may have written these bytes after the read above and before it began the next file.
        if self._file is not None and (piece := self._file.read(most)):
            self.position += len(piece)
            return piece
        return self.read(most) if self._open(following) else b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next(self) -> LogFile | None:
        """Return the next file to read: the file that holds the position, else the first file after the position."""
        log = files(self._folder)
        holding = [file for file in log if file.start <= self.position]
        if self._file is None and holding:
            return holding[-1]
        current = self._file.name if self._file is not None else ""
        return next((file for file in log if file.start >= self.position and file.path != current), None)

    def _open(self, file: LogFile) -> bool:
        try:
            opened = open(file.path, "rb")  # noqa: SIM115 - it is closed when the next file is opened
        except FileNotFoundError:
            return bool(files(self._folder))
        self.close()
        self._file = opened
        self.position = max(self.position, file.start)
        opened.seek(self.position - file.start)
        return True


def tail(folder: str | Path, most: int) -> str:
    """Return the last bytes of a log as text; empty if there is no log."""
    with suppress(OSError):
        start, end = span(folder)
        return b"".join(pieces(folder, max(start, end - most))).decode(errors="replace")
    return ""


def pieces(folder: str | Path, position: int) -> Iterator[bytes]:
    """Yield the bytes that are in a log now, from a position on."""
    reader = LogReader(folder, position)
    try:
        while piece := reader.read():
            yield piece
    finally:
        reader.close()


def tail_start(folder: str | Path, lines: int) -> int:
    """Return the position at which the last lines of a log begin."""
    start, end = span(folder)
    if not lines:
        return end
    count = 0
    for file in reversed(files(folder)):
        with suppress(FileNotFoundError), open(file.path, "rb") as opened:
            for position in _newlines(opened, min(end - file.start, os.fstat(opened.fileno()).st_size)):
                # The newline at the very end closes the last line; it does not begin another.
                count += file.start + position != end - 1
                if count >= lines:
                    return file.start + position + 1
    return start


def _newlines(file: BinaryIO, position: int) -> Iterator[int]:
    """Yield the offsets of the newlines before an offset, the last newline first."""
    while position > 0:
        size = min(_PIECE, position)
        position -= size
        file.seek(position)
        piece = file.read(size)
        index = piece.rfind(b"\n")
        while index >= 0:
            yield position + index
            index = piece.rfind(b"\n", 0, index)


def line_start(folder: str | Path, position: int) -> int:
    """Return the position of the first line that begins at a position or later."""
    start, end = span(folder)
    if position <= start:
        return start
    reader = LogReader(folder, position - 1)
    try:
        while piece := reader.read():
            index = piece.find(b"\n")
            if index >= 0:
                return reader.position - len(piece) + index + 1
    finally:
        reader.close()
    return end
