"""Telling people about trouble that repeats, once.

One rule: a line when it begins, a line a minute while it lasts, a line when it is over; never a line per attempt.
"""

import logging
import threading
import time
from collections.abc import Callable

REMINDER_SECONDS = 60.0


class Outage:
    """One thing that may be out of reach, as many threads meet it."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._since = 0.0
        self._told = 0.0
        self._message = ""

    def met(self, error: Exception) -> None:
        """It failed."""
        with self._lock:
            now = self._clock()
            if not self._message:
                self._since = now
            if str(error) != self._message or now - self._told >= REMINDER_SECONDS:
                self._log.warning("%s; trying again", error)
                self._message, self._told = str(error), now

    def over(self) -> None:
        """It worked."""
        with self._lock:
            if self._message:
                self._log.info("over after %.0f s: %s", self._clock() - self._since, self._message)
                self._message = ""


class Complaints:
    """Lines about runs that failed for an expected reason: each reason once in a while, with how often it was met."""

    def __init__(self, log: logging.Logger, pause: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}

    def about(self, subject: object, reason: str) -> None:
        """Say it, unless the same reason was given a moment ago."""
        with self._lock:
            now = self._clock()
            told, kept_quiet = self._told.get(reason, (now - self._pause, 0))
            if now - told < self._pause:
                self._told[reason] = (told, kept_quiet + 1)
                return
            self._told = {text: each for text, each in self._told.items() if now - each[0] < 6 * self._pause}
            self._told[reason] = (now, 0)
        more = f" ({kept_quiet} more like it)" if kept_quiet else ""
        self._log.warning("%s: %s; it will be tried again%s", subject, reason, more)
