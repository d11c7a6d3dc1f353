"""The channel on which a child process tells its supervisor of itself: lines of JSON over a pipe.

One rule: neither side waits for the other. A child that hangs costs its supervisor nothing, and a supervisor that hangs
keeps only the sending thread of its child.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

PIPE = "TORCHQ_LIFE_PIPE"
"""The environment variable with DESCRIPTOR:INODE of the pipe to the supervisor."""
SECONDS = 2.0
"""The seconds between two reports, if nothing asks for one."""
SOONEST_SECONDS = 0.25
"""The seconds between two reports that are asked for."""
MOST_BYTES = 4 * 1024 * 1024
"""The most bytes of one report; a longer one is dropped."""
_PIECE = 64 * 1024

Report = Mapping[str, Any]
"""What a process tells: its checks, and the URL of its own port if it has one."""


class ReportPipe:
    """The supervisor's side of the channel of one child process."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        """`writer` is the descriptor that the child inherits."""
        os.set_blocking(self._reader, False)
        self._rest = b""

    @property
    def environment(self) -> dict[str, str]:
        """The variable with which the child finds its side."""
        return {PIPE: f"{self.writer}:{os.fstat(self.writer).st_ino}"}

    def keep_reader(self) -> None:
        """Close the side that only the child writes to."""
        os.close(self.writer)

    def read(self) -> list[Report]:
        """Return the reports that have arrived since the last call, in their order."""
        found: list[bytes] = []
        while piece := self._piece():
            *lines, self._rest = (self._rest + piece).split(b"\n")
            found += lines
            self._rest = self._rest if len(self._rest) <= MOST_BYTES else b""
        return [report for line in found if (report := _parse(line)) is not None]

    def close(self) -> None:
        """Close the supervisor's side."""
        os.close(self._reader)

    def _piece(self) -> bytes:
        try:
            return os.read(self._reader, _PIECE)
        except BlockingIOError:
            return b""


@contextlib.contextmanager
def telling(report: Callable[[], Report], news: threading.Event | None = None) -> Iterator[None]:
    """Tell the supervisor of this process while the block runs, soon after `news` is set, and once at its end. Without
    a supervisor this does nothing."""
    descriptor = _inherited_pipe()
    if descriptor is None:
        yield
        return
    stop, news = threading.Event(), news or threading.Event()
    sender = threading.Thread(target=_tell, args=(descriptor, report, stop, news), name="life", daemon=True)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        news.set()
        sender.join(SECONDS)  # a supervisor that hangs takes no last report


def _tell(descriptor: int, report: Callable[[], Report], stop: threading.Event, news: threading.Event) -> None:
    with contextlib.suppress(OSError):  # the supervisor is dead
        while True:
            is_last = stop.is_set()
            news.clear()
            _write(descriptor, orjson.dumps(report()) + b"\n")
            if is_last:
                return
            stop.wait(SOONEST_SECONDS)
            news.wait(SECONDS - SOONEST_SECONDS)


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


def _inherited_pipe() -> int | None:
    """Return the descriptor of the pipe to the supervisor; None if this process has no supervisor."""
    descriptor, _, inode = os.environ.pop(PIPE, "").partition(":")
    if not descriptor:
        return None
    try:
        is_pipe = os.fstat(int(descriptor)).st_ino == int(inode)
    except OSError:
        return None  # a parent may have inherited the variable without the descriptor
    if is_pipe:
        os.set_inheritable(int(descriptor), False)
    return int(descriptor) if is_pipe else None


def _parse(line: bytes) -> Report | None:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
