"""The turns of the loops of a process: which loop has not come around for too long.

One rule: a loop that waits for a server that is known to be away is not late, and neither is a loop that has ended.
Every such wait ends by itself, at a time limit of its own.

A loop marks each of its turns, in its own thread. The client of the API server notes its waits by itself, for the loop
whose thread makes the request.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LATE_SECONDS = 30.0
"""A loop that has not turned for longer hangs."""


class Turn:
    """One loop of a process. Only the thread of the loop changes the object; any thread may read it.

    As a context manager it is the loop's life: its loop is late until the first mark, and not any more after its end.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock = clock
        self._due = clock()
        self.waits_for = ""
        """What the loop waits for, for people; empty if it works or waits for its next turn."""

    def mark(self) -> None:
        """Note that the loop has turned."""
        _here.turn = self
        self._due = self._clock()

    def allow(self, seconds: float) -> None:
        """Note that the loop has turned, and that its next turn may take that number of seconds longer than other
        turns.
        """
        _here.turn = self
        self._due = self._clock() + seconds

    @contextmanager
    def waiting(self, what: str, seconds: float = math.inf) -> Iterator[None]:
        """Keep the loop from being late inside the block, for at most `seconds`. The end of the block is a sign of
        life, and leaves it the time that it had before."""
        due, waits_for = self._due, self.waits_for
        self._due, self.waits_for = max(due, self._clock() + seconds), what
        try:
            yield
        finally:
            self._due, self.waits_for = max(due, self._clock()), waits_for

    def end(self) -> None:
        """Note that the loop has ended, or need not turn until its next mark."""
        self._due = math.inf

    def rounds(self, stop: threading.Event, seconds: float) -> Iterator[None]:
        """Yield after every pause of `seconds`, until stopped. Each pause is a turn of the loop."""
        with self:
            while True:
                self.allow(seconds)
                if stop.wait(seconds):
                    return
                self.mark()
                yield

    @property
    def age(self) -> float:
        """The seconds since the last turn was due; 0 while the loop waits, or has ended."""
        return max(0.0, self._clock() - self._due)

    def __enter__(self) -> "Turn":
        self.mark()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Turns:
    """The loops of a process that must turn; safe to share between threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._loops: tuple[Turn, ...] = ()

    def loop(self, name: str) -> Turn:
        """Return a loop, which must turn from now on. A loop of the same name takes the place of an earlier loop."""
        turn = Turn(name, self._clock)
        with self._lock:
            self._loops = (*(each for each in self._loops if each.name != name), turn)
        return turn

    @property
    def loops(self) -> tuple[Turn, ...]:
        """All loops, in the order in which they were named."""
        return self._loops

    def late(self, seconds: float = LATE_SECONDS) -> tuple[str, ...]:
        """Return the names of the loops whose turn is late by more than `seconds`."""
        return tuple(each.name for each in self._loops if each.age > seconds)


class _Here(threading.local):
    def __init__(self) -> None:
        self.turn = Turn("")


_here = _Here()


def current() -> Turn:
    """Return the loop that this thread has marked last; a loop that nobody reads if the thread has marked none."""
    return _here.turn
