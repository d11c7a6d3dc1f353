"""One function applied to many items, some of them at a time.

One rule: a free thread takes the next item, so that no item waits for the slowest one before it. All work that was
begun is over when `run` returns or raises.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

TURN = 4
"""The number of items after which a thread of the executor lets other waiting tasks run."""


@dataclass(slots=True)
class ParallelRun(Generic[T]):
    """One pass over some items."""

    work: Callable[[T], None]
    items: Sequence[T]
    executor: Executor
    """The source of further threads. The calling thread works, too; it works alone if the executor has no free
    thread."""
    may_begin: Callable[[int], None]
    """Called before each item, by one thread at a time; raises if neither this item nor a later one may be begun."""
    _next: int = 0
    _failures: dict[int, Exception] = field(default_factory=dict)
    """The failures by the index of their item."""
    _lent: list[Future[None]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, most: int) -> list[Exception]:
        """Process all items, at most `most` at a time, until one fails; return the failures in the order of the
        items."""
        with self._lock:
            for _ in range(min(most, len(self.items)) - 1):
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
        """Process some items, then queue up again behind other tasks of the executor."""
        for _ in range(TURN):
            if not self._one():
                return
        with self._lock:
            if not self._over:
                self._lend()

    def _one(self) -> bool:
        """Process the next item; return False if no further item is to be begun."""
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
            self.work(self.items[at])
        except Exception as error:
            self._failures[at] = error
        return True

    @property
    def _over(self) -> bool:
        return bool(self._failures) or self._next >= len(self.items)

    def _end(self) -> None:
        """Wait for the items that other threads have begun; tasks that have not begun are cancelled."""
        with self._lock:
            self._next = len(self.items)
            futures = [future for future in self._lent if not future.cancel()]
        wait(futures)
        for future in futures:
            future.result()
