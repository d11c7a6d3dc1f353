"""Writes a container's log: a few files whose sizes add up to no more than the container may keep.

One rule: a file's name says where it begins (`output`, then `output.N`, which begins at byte N of all that the run has
printed), and a new file is begun only when the one before is complete: so a reader that has read a file to its end
finds the next one by name, and misses and repeats nothing.

Every file is as long as a quarter of what the container may keep. Before one is begun the oldest files of the
container, of this run or of an earlier one, are removed until all of them fit together with it.

Part of the shim, which stays in memory beside its container: it imports the least there is.
"""

import os

FIRST = "output"
"""The name of a log's first file."""
FILES = 4
"""Files of a log that is full."""
_NOTES_BYTES = 512
"""For what the writer itself puts into the files."""


class LogWriter:
    """The files of a run's log, as they are written."""

    def __init__(self, folder: str, most: int) -> None:
        """`most`: bytes that all files of the container may have together, over all its runs."""
        self._folder = folder
        self._file_bytes = max(1, (most - _NOTES_BYTES) // FILES)
        self._kept_bytes = self._file_bytes * (FILES - 1)
        self._file = -1
        self._start = self._size = 0
        self._ended_line = True
        self._lost = 0

    def open(self) -> str:
        """Begin the first file; why it cannot be. OSError if the disk is full: the run is begun later."""
        try:
            self._begin(0)
        except (IsADirectoryError, PermissionError, NotADirectoryError) as e:
            return f"cannot open the log {e.filename}: {e.strerror}"
        return ""

    def write(self, piece: bytes) -> None:
        """Add to the log, in as many files as it takes. What a full disk does not take is counted and left out."""
        if self._lost and piece:
            self._confess()
        while piece:
            fitting = self._fitting(piece)
            if fitting:
                self._put(piece[:fitting])
                piece = piece[fitting:]
            if piece and not self._rotated():
                self._lost += len(piece)
                return

    def _fitting(self, piece: bytes) -> int:
        """How much of a piece goes into this file: all of it, or lines as far as possible."""
        room = self._file_bytes - self._size
        if len(piece) <= room:
            return len(piece)
        lines = piece.rfind(b"\n", 0, max(0, room)) + 1
        return lines or (0 if self._ended_line and self._size else max(0, room))

    def _rotated(self) -> bool:
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
        """Remove the oldest files of the container's logs, but for one that is still written, until another fits."""
        container = os.path.dirname(self._folder)
        found = [(int(run), start, path) for run, start, path in files(container)]
        sizes = {path: _size(path) for _, _, path in found}
        kept = sum(sizes.values())
        for _, _, path in sorted(found):
            if kept <= self._kept_bytes:
                return
            os.unlink(path)
            kept -= sizes[path]

    def _put(self, text: bytes) -> None:
        while text:
            try:
                written = os.write(self._file, text)
            except OSError:
                self._lost += len(text)
                return
            self._size += written
            self._ended_line = text[written - 1 : written] == b"\n"
            text = text[written:]

    def _confess(self) -> None:
        """Say in the log what is missing, as soon as the disk takes that."""
        lost, self._lost = self._lost, 0
        end = "" if self._ended_line else "\n"
        self._put(f"{end}[torchq: {lost} bytes of output are lost: the disk was full]\n".encode())
        if self._lost:
            self._lost = lost


def name_of(start: int) -> str:
    """The name of the log file that begins at a byte of all output."""
    return f"{FIRST}.{start}" if start else FIRST


def start_of(name: str) -> int:
    """The byte at which a file of this name begins; -1 if it is no file of a log."""
    if name == FIRST:
        return 0
    word, _, start = name.partition(".")
    return int(start) if word == FIRST and start.isdecimal() else -1


def files(container: str) -> "list[tuple[str, int, str]]":
    """The run, the beginning and the path of each file of a container's logs."""
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
