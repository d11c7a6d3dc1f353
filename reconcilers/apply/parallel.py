"""The same to many things, some of them at a time.

One rule: whoever is free takes the next thing, so that nothing waits for the slowest of those before it; and all that
was begun is over when this returns or raises.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

TURN = 4
"""Things that a thread of the executor does before it looks whether others wait for it."""


@dataclass(slots=True)
class SideBySide(Generic[T]):
    """One go through some things."""

    work: Callable[[T], None]
    things: Sequence[T]
    executor: Executor
    """Lends threads to whoever asks first; the thread that calls works too, and alone if it must."""
    may_begin: Callable[[int], None]
    """Asked before each thing, of one at a time; raises if neither it nor any after it may be begun."""
    _next: int = 0
    _failures: dict[int, Exception] = field(default_factory=dict)
    """By the thing they are about."""
    _lent: list[Future[None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, most: int) -> list[Exception]:
        """Go through all of them, at most so many at a time, as long as none fails; the failures, in the order of the
        things."""
        with self._lock:
            for _ in range(min(most, len(self.things)) - 1):
                self._lend()
        try:
            while self._one():
                pass
        finally:
            self._end()
        return [self._failures[at] for at in sorted(self._failures)]

    def _lend(self) -> None:
        self._lent.append(self.executor.submit(self._turn))

    def _turn(self) -> None:
        """Some things; then behind whatever else waits for a thread."""
        for _ in range(TURN):
            if not self._one():
                return
        with self._lock:
            if not self._over:
                self._lend()

    def _one(self) -> bool:
        """Do the next thing; False if none is to be begun any more."""
        with self._lock:
            if self._over:
                return False
            at = self._next
            try:
                self.may_begin(at)
            except Exception as error:
                self._failures[at] = error
                return False
            self._next += 1
        try:
            self.work(self.things[at])
        except Exception as error:
            self._failures[at] = error
        return True

    @property
    def _over(self) -> bool:
        return bool(self._failures) or self._next >= len(self.things)

    def _end(self) -> None:
        """Wait for what others have begun; what they have not, they need not."""
        with self._lock:
            self._next = len(self.things)
            lent = [each for each in self._lent if not each.cancel()]
        wait(lent)
        for each in lent:
            each.result()
