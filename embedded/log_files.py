"""A run's log as it is read: its files as one text.

One rule: a position counts every byte that the run has printed, so it means the same before and after a file was begun
or removed (`log_writer`).
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
    """The position at which it begins."""
    path: str


def files(folder: str | Path) -> list[LogFile]:
    """The files that are kept of the log of a run, oldest first."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    starts = ((log_writer.start_of(name), name) for name in names)
    return sorted(LogFile(start, os.path.join(folder, name)) for start, name in starts if start >= 0)


def span(folder: str | Path) -> tuple[int, int]:
    """The positions at which what is kept begins and ends. FileNotFoundError if there is no log."""
    while found := files(folder):
        with suppress(FileNotFoundError):  # removed between the two looks: the newest file never is
            return found[0].start, found[-1].start + os.stat(found[-1].path).st_size
    raise FileNotFoundError(f"no log in {folder}")


def written_at(folder: str | Path) -> float:
    """When the log was last written, in seconds since the epoch. FileNotFoundError if there is no log."""
    while found := files(folder):
        with suppress(FileNotFoundError):
            return os.stat(found[-1].path).st_mtime
    raise FileNotFoundError(f"no log in {folder}")


class LogReader:
    """Reads a log from a position on, also while it is written. The file it reads is held open: it may be removed."""

    def __init__(self, folder: str | Path, position: int) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self.position = position
        """Of the next byte."""

    def read(self, most: int = _PIECE) -> bytes:
        """What comes next; nothing at the end. `position` tells where output was removed: it goes on after that."""
        if self._file is not None and (piece := self._file.read(most)):
            self.position += len(piece)
            return piece
        following = self._next()
        if following is None:
            return b""
        if self._file is not None and (piece := self._file.read(most)):  # written before the next file was begun
            self.position += len(piece)
            return piece
        return self.read(most) if self._open(following) else b""

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _next(self) -> LogFile | None:
        """The file to go on with: the one that holds the position, else the first one after it."""
        found = files(self._folder)
        holding = [file for file in found if file.start <= self.position]
        if self._file is None and holding:
            return holding[-1]
        return next((file for file in found if file.start >= self.position and not self._reads(file)), None)

    def _reads(self, file: LogFile) -> bool:
        return self._file is not None and self._file.name == file.path

    def _open(self, file: LogFile) -> bool:
        try:
            opened = open(file.path, "rb")  # noqa: SIM115 - closed with the next one
        except FileNotFoundError:
            return bool(files(self._folder))
        self.close()
        self._file = opened
        self.position = max(self.position, file.start)
        opened.seek(self.position - file.start)
        return True


def tail(folder: str | Path, most: int) -> str:
    """The last bytes of a log; nothing if there is none."""
    with suppress(OSError):
        start, end = span(folder)
        return b"".join(pieces(folder, max(start, end - most))).decode(errors="replace")
    return ""


def pieces(folder: str | Path, position: int) -> Iterator[bytes]:
    """What is in a log now, from a position on."""
    reader = LogReader(folder, position)
    try:
        while piece := reader.read():
            yield piece
    finally:
        reader.close()


def tail_start(folder: str | Path, lines: int) -> int:
    """The position at which the last lines of a log begin."""
    start, end = span(folder)
    if not lines:
        return end
    found = 0
    for file in reversed(files(folder)):
        with suppress(FileNotFoundError), open(file.path, "rb") as opened:
            for position in _newlines(opened, min(end - file.start, os.fstat(opened.fileno()).st_size)):
                # The newline at the very end closes the last line; it does not begin another.
                found += file.start + position != end - 1
                if found >= lines:
                    return file.start + position + 1
    return start


def _newlines(file: BinaryIO, position: int) -> Iterator[int]:
    """Where the newlines before a position are, the last one first."""
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
    """Where the first line begins that begins at a position or later."""
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
