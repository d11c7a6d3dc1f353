"""The time at which the lines of a container's log were written.

One rule: the node records at intervals how much has been printed. The file `times`, beside the log, has one note per
line: a time in seconds and a number of bytes.

The time of a log line is that of the first note that counts the line's first byte, else that of the log. So the time is
exact to about a second, and never too early.

The size of the notes is bounded, as the size of the log is. Notes about removed output are dropped. If there are still
too many, every second note of the older half is dropped.
"""

import bisect
import re
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from crds import timestamps
from embedded import log_files

NOTE_SECONDS = 1.0
"""The interval between two notes."""

_LINES = re.compile(rb"[^\n]*\n|[^\n]+")
_NOTE = re.compile(r"(\d{1,11}\.\d{6}) (\d{1,18})")
_LONGEST = 512 * 1024
"""The size in bytes above which notes are dropped."""
_MOST_COPIED = 2048
"""The most notes that are copied for a log of which only the end is kept."""
_LONGEST_NOTE = 32
"""The size of one note in bytes, roughly."""


def note(folder: str, now: float, last_length: int) -> int:
    """Write a note if the log in a folder has grown since its last length; return its length in bytes.

    Raise OSError on failure.
    """
    try:
        first, length = log_files.span(folder)
    except FileNotFoundError:
        return last_length
    if length != last_length:
        path = folder + "/times"
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{now:.6f} {length}\n")
            size = file.tell()
        if size > _LONGEST:
            _thin(Path(path), first)
    return length


def _thin(path: Path, first: int) -> None:
    """Drop the notes about removed output, and every second old note if there are still too many."""
    moments, lengths = _notes(path)
    begin = max(0, bisect.bisect_right(lengths, first) - 1)
    notes = list(zip(moments, lengths, strict=True))[begin:]
    half = len(notes) // 2
    if len(notes) * _LONGEST_NOTE > _LONGEST // 2:
        notes = [*notes[:half:2], *notes[half:]]
    draft = path.with_name(".times")
    draft.write_text("".join(f"{moment:.6f} {length}\n" for moment, length in notes), "ascii")
    draft.rename(path)


def copy_notes(source: Path, target: Path, position: int) -> None:
    """Write the notes about the output from a position on into another folder; of many notes every second one is
    dropped.

    Raise OSError on failure.
    """
    with suppress(FileNotFoundError):
        moments, lengths = _notes(source / "times")
        begin = bisect.bisect_right(lengths, position)
        notes = list(zip(moments, lengths, strict=True))[begin:]
        while len(notes) > _MOST_COPIED:
            notes = notes[::-2][::-1]  # the last note stays: it is about the end
        (target / "times").write_text("".join(f"{moment:.6f} {length}\n" for moment, length in notes), "ascii")


class LogTimes:
    """The times of one log, from the notes so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._moments: list[float] = []
        self._lengths: list[int] = []
        self.read()

    def read(self) -> None:
        """Read the notes and the log's own time again."""
        with suppress(FileNotFoundError):
            self._moments, self._lengths = _notes(self._folder / "times")
        self._last = 0.0
        with suppress(FileNotFoundError):
            self._last = log_files.modification_time(self._folder)

    def of(self, position: int) -> float:
        """Return when the byte at a position was written, in seconds since the epoch."""
        index = bisect.bisect_right(self._lengths, position)
        return self._moments[index] if index < len(self._moments) else self._last

    def start(self, moment: float) -> int | None:
        """Return a position before everything that was written since a moment; None if nothing was written."""
        index = bisect.bisect_left(self._moments, moment)
        if index == len(self._moments) and self._last < moment:
            return None
        return self._lengths[index - 1] if index else 0


def _notes(path: Path) -> tuple[list[float], list[int]]:
    """Return the times and lengths of the notes, without those that a full disk or a clock set back has spoiled."""
    moments: list[float] = []
    lengths: list[int] = []
    for line in path.read_text("ascii", "replace").splitlines():
        match = _NOTE.fullmatch(line)
        if match is None:
            continue
        moment, length = float(match[1]), int(match[2])
        if not lengths or (length >= lengths[-1] and moment >= moments[-1]):
            moments.append(moment)
            lengths.append(length)
    return moments, lengths


class Stamper:
    """Puts the position and the time, or only one of the two, before each line of a log that arrives in pieces."""

    def __init__(self, times: LogTimes | None, *, positions: bool) -> None:
        """Stamp lines with their times, unless `times` is None, and with their positions."""
        self._times = times
        self._positions = positions
        self._open = False

    def stamp_lines(self, piece: bytes, position: int) -> bytes:
        """Return a piece that begins at a position, with the stamp before each line."""
        stamped = []
        if self._times is not None:
            self._times.read()
        for line in _LINES.findall(piece):
            if not self._open and self._positions:
                stamped.append(b"@%d " % position)
            if not self._open and self._times is not None:
                stamped.append(_stamp_of(self._times.of(position)))
            stamped.append(line)
            position += len(line)
            self._open = not line.endswith(b"\n")
        return b"".join(stamped)


@lru_cache(16)
def _stamp_of(moment: float) -> bytes:
    return f"{stamp(moment)} ".encode()


def stamp(moment: float) -> str:
    """Format a moment as `kubectl logs --timestamps` does: RFC 3339 with nanoseconds."""
    return f"{timestamps.format_micro_time(moment)[:-1]}000Z"
