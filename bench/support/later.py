"""Calls functions at set times, several in parallel.

One rule: no delay is hidden. The lateness of every call is recorded.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Later:
    """A timer with threads that call functions; times are `time.monotonic`."""

    def __init__(self, threads: int) -> None:
        self.late: list[float] = []
        """The seconds by which each call began too late."""
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopping = False
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="later")
        self._clock = threading.Thread(target=self._run, name="later-clock", daemon=True)

    def __enter__(self) -> "Later":
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the timer; calls that are not due yet are dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._clock.join()
        self._threads.shutdown(cancel_futures=True)

    def at(self, moment: float, work: Callable[[], object]) -> None:
        """Call `work` at a moment, or now if the moment has passed. `work` has to handle its own errors.

        Callable from any thread.
        """
        with self._changed:
            heapq.heappush(self._due, (moment, next(self._numbers), work))
            self._changed.notify()

    def after(self, seconds: float, work: Callable[[], object]) -> None:
        """Call `work` after a number of seconds."""
        self.at(time.monotonic() + seconds, work)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                if self._stopping:
                    return
                moment, _, work = heapq.heappop(self._due)
            self._threads.submit(self._do, moment, work)

    def _do(self, moment: float, work: Callable[[], object]) -> None:
        self.late.append(max(0.0, time.monotonic() - moment))
        work()
