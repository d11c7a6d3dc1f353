"""Writes the log of a container into a few files whose total size is limited.

One rule: the name of a file gives the position at which the file begins, and a new file is begun only when the previous
file is complete. The first file is `output`; `output.N` begins at byte N of everything that the run has printed. So a
reader at the end of a file finds the next file by its name, and neither misses nor repeats output.

The length of a file is at most a quarter of the limit. Before a file is begun, the oldest files of the container are
removed, whether they belong to this run or to an earlier run. Then the others and the new file fit into the limit.

This module is a part of the shim, which stays in memory beside its container. So this module imports as little as
possible.
"""

import os

FIRST = "output"
"""The name of a log's first file."""
FILES = 4
"""The number of files of a log that has reached its limit."""
_NOTES_BYTES = 512
"""The part of the limit that is reserved for lines of the writer itself."""


class LogWriter:
    """The writer of one run's log."""

    def __init__(self, folder: str, most: int) -> None:
        """Prepare the log of a run in `folder`. All files of the container, of all its runs, may have `most` bytes."""
        self._folder = folder
        self._file_bytes = max(1, (most - _NOTES_BYTES) // FILES)
        self._kept_bytes = self._file_bytes * (FILES - 1)
        self._file = -1
        self._start = self._size = 0
        self._ended_line = True
        self._lost = 0

    def open(self) -> str:
        """Begin the first file. Return the reason if that is impossible, else an empty text.

        Raise OSError if the disk is full: then the node starts the run later.
        """
        try:
            self._begin(0)
        except (IsADirectoryError, PermissionError, NotADirectoryError) as e:
            return f"cannot open the log {e.filename}: {e.strerror}"
        return ""

    def write(self, piece: bytes) -> None:
        """Append to the log, in the number of files that is needed. Bytes that a full disk does not take are counted as
        lost.
        """
        if self._lost and piece:
            self._report_loss()
        while piece:
            fitting = self._fitting(piece)
            if fitting:
                self._append(piece[:fitting])
                piece = piece[fitting:]
            if piece and not self._rotate():
                self._lost += len(piece)
                return

    def _fitting(self, piece: bytes) -> int:
        """Return how many bytes of a piece go into this file: the whole piece, or the largest possible number of whole
        lines.
        """
        room = self._file_bytes - self._size
        if len(piece) <= room:
            return len(piece)
        lines = piece.rfind(b"\n", 0, max(0, room)) + 1
        return lines or (0 if self._ended_line and self._size else max(0, room))

    def _rotate(self) -> bool:
        """Begin the next file; return whether the disk had room for the file."""
        try:
            self._begin(self._start + self._size)
        except OSError:
            return False
        return True

    def _begin(self, start: int) -> None:
        self._make_room()
        path = os.path.join(self._folder, name_of(start))
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._start, self._size = file, start, 0

    def _make_room(self) -> None:
        """Remove the oldest files of the container's logs, except one that is still written, until a new file fits."""
        container = os.path.dirname(self._folder)
        log = [(int(run), start, path) for run, start, path in files(container)]
        sizes = {path: _size(path) for _, _, path in log}
        total = sum(sizes.values())
        for _, _, path in sorted(log):
            if total <= self._kept_bytes:
                return
            os.unlink(path)
            total -= sizes[path]

    def _append(self, text: bytes) -> None:
        while text:
            try:
                written = os.write(self._file, text)
            except OSError:
                self._lost += len(text)
                return
            self._size += written
            self._ended_line = text[written - 1 : written] == b"\n"
            text = text[written:]

    def _report_loss(self) -> None:
        """Write into the log how many bytes are missing, as soon as the disk has room for that line."""
        count, self._lost = self._lost, 0
        end = "" if self._ended_line else "\n"
        self._append(f"{end}[torchq: {count} bytes of output are lost: the disk was full]\n".encode())
        if self._lost:
            self._lost = count


def name_of(start: int) -> str:
    """Return the name of the log file that begins at this byte of the run's output."""
    return f"{FIRST}.{start}" if start else FIRST


def start_of(name: str) -> int:
    """Return the byte at which a file of this name begins; -1 if it is not a file of a log."""
    if name == FIRST:
        return 0
    stem, _, start = name.partition(".")
    return int(start) if stem == FIRST and start.isdecimal() else -1


def files(container: str) -> "list[tuple[str, int, str]]":
    """Return the number of the run, the position of the first byte, and the path of each file of a container's logs."""
    return [
        (run, start, os.path.join(container, run, name))
        for run in os.listdir(container)
        if run.isdecimal()
        for name in os.listdir(os.path.join(container, run))
        if (start := start_of(name)) >= 0
    ]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
