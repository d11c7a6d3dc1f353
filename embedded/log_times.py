"""When the lines of a container's log were written.

One rule: the node notes now and then how much has been printed (`times`, beside the log: a time in seconds and a number
of bytes per line). So a line's time is known to about a second, and is never too early: it is the time of the first
note that knows of the line's beginning, else the log's own.

The notes are bounded as the log is: those of output that was removed are dropped, and of the others, if there are too
many, every second one of the older half.
"""

import bisect
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from embedded import log_files

NOTE_SECONDS = 1.0
"""How often the node notes."""


_NOTE = re.compile(r"(\d{1,11}\.\d{6}) (\d{1,18})")
_LONGEST = 512 * 1024
"""Bytes of notes: with more of them they are thinned."""
_LONGEST_NOTE = 32
"""Bytes of one, about."""


def note(folder: str, now: float, known: int) -> int:
    """Note how much a run in a folder has printed, if that is news; the number of bytes. OSError."""
    try:
        first, length = log_files.span(folder)
    except FileNotFoundError:
        return known
    if length != known:
        path = folder + "/times"
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{now:.6f} {length}\n")
            size = file.tell()
        if size > _LONGEST:
            _thin(Path(path), first)
    return length


def _thin(path: Path, first: int) -> None:
    """Drop the notes that nobody needs."""
    moments, lengths = _notes(path)
    begin = max(0, bisect.bisect_right(lengths, first) - 1)
    notes = list(zip(moments, lengths, strict=True))[begin:]
    half = len(notes) // 2
    kept = [*notes[:half:2], *notes[half:]] if len(notes) * _LONGEST_NOTE > _LONGEST // 2 else notes
    draft = path.with_name(".times")
    draft.write_text("".join(f"{moment:.6f} {length}\n" for moment, length in kept), "ascii")
    draft.rename(path)


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
            self._last = log_files.written_at(self._folder)

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
    """The notes in order; without those that a full disk or a clock that was set back has spoiled."""
    moments: list[float] = []
    lengths: list[int] = []
    for line in path.read_text("ascii", "replace").splitlines():
        found = _NOTE.fullmatch(line)
        if found is None:
            continue
        moment, length = float(found[1]), int(found[2])
        if not lengths or (length >= lengths[-1] and moment >= moments[-1]):
            moments.append(moment)
            lengths.append(length)
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
