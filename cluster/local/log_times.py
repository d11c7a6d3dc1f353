"""When the lines of a container's log were written.

One rule: the log is the container's own file, which nobody else touches; the node notes now and then how long it is
(`times`, beside it: a time in seconds and a length per line). So a line's time is known to about a second, and is never
too early: it is the time of the first note that knows of the line's beginning, else the file's own.
"""

import bisect
import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

NOTE_SECONDS = 1.0
"""How often the node notes."""


def note(folder: str, now: float, known: int) -> int:
    """Note how long the log in a folder is, if that is news; the length."""
    try:
        length = os.stat(folder + "/output").st_size
    except FileNotFoundError:
        return known
    if length != known:
        with open(folder + "/times", "a", encoding="ascii") as file:
            file.write(f"{now:.6f} {length}\n")
    return length


class Times:
    """The times of one log, as noted so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moments: list[float] = []
        self._lengths: list[int] = []
        self.read()

    def read(self) -> None:
        """Look at the notes and the file again."""
        with suppress(FileNotFoundError):
            self._moments, self._lengths = _notes(self._folder / "times")
        self._last = 0.0
        with suppress(FileNotFoundError):
            self._last = (self._folder / "output").stat().st_mtime

    def of(self, position: int) -> float:
        """When what is at a position was written, in seconds since the epoch."""
        index = bisect.bisect_right(self._lengths, position)
        return self._moments[index] if index < len(self._moments) else self._last

    def start(self, moment: float) -> int | None:
        """A position before everything that was written since a moment; None if nothing was."""
        index = bisect.bisect_left(self._moments, moment)
        if index == len(self._moments) and self._last < moment:
            return None
        return self._lengths[index - 1] if index else 0


def _notes(path: Path) -> tuple[list[float], list[int]]:
    moments: list[float] = []
    lengths: list[int] = []
    for line in path.read_text("ascii").splitlines():
        moment, _, length = line.partition(" ")
        if not length.isdecimal():
            break  # half written
        moments.append(float(moment))
        lengths.append(int(length))
    return moments, lengths


class Stamper:
    """Puts the time before each line of a log that comes in pieces."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._open = False

    def stamped(self, piece: bytes, position: int) -> bytes:
        """A piece that begins at a position, with its lines stamped."""
        return b"".join(self._parts(piece, position))

    def _parts(self, piece: bytes, position: int) -> Iterator[bytes]:
        self._times.read()
        for line in _lines(piece):
            if not self._open:
                yield stamp(self._times.of(position)).encode() + b" "
            yield line
            position += len(line)
            self._open = not line.endswith(b"\n")


def _lines(piece: bytes) -> list[bytes]:
    *whole, rest = piece.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


def stamp(moment: float) -> str:
    """A moment as `kubectl logs --timestamps` shows it: RFC 3339 with nanoseconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
