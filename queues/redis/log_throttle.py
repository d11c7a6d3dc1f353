"""Log lines about errors that repeat, without a line per attempt.

One rule: one line when an error begins, one line a minute while it lasts, one line when it is over. Errors that
alternate cause one line a minute each.
"""

import logging
import math
import threading
import time
from collections.abc import Callable

REMINDER_SECONDS = 60.0


class OutageLog:
    """The log lines about one service that may be unreachable. Many threads may use the object."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._since = 0.0
        self._message = ""
        self._logged_at: dict[str, float] = {}
        """Messages of this outage, which may alternate -> when each was logged last."""

    def report_failure(self, error: Exception) -> None:
        """Log a failed attempt, unless the same error was logged within the last minute."""
        with self._lock:
            now, message = self._clock(), str(error)
            if not self._message:
                self._since = now
            self._message = message
            if now - self._logged_at.get(message, -math.inf) >= REMINDER_SECONDS:
                self._log.warning("%s; trying again", error)
                recent = {text: at for text, at in self._logged_at.items() if now - at < REMINDER_SECONDS}
                self._logged_at = recent | {message: now}

    def report_recovery(self) -> None:
        """Log that an attempt succeeded, if the previous attempt failed."""
        with self._lock:
            if self._message:
                self._log.info("over after %.0f s: %s", self._clock() - self._since, self._message)
                self._message = ""
                self._logged_at.clear()


class FailureLog:
    """The log lines about runs that failed for an expected reason. Each reason is logged once per `pause` seconds,
    together with the number of failures that were not logged."""

    def __init__(self, log: logging.Logger, pause: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._reasons: dict[str, tuple[float, int]] = {}
        """Reason -> when it was logged last, and how many failures were not logged since."""

    def report(self, subject: object, reason: str) -> None:
        """Log that the run of a subject failed, or only count it if the reason was logged a moment ago."""
        with self._lock:
            now = self._clock()
            logged_at, skipped = self._reasons.get(reason, (now - self._pause, 0))
            if now - logged_at < self._pause:
                self._reasons[reason] = (logged_at, skipped + 1)
                return
            self._reasons = {
                text: record for text, record in self._reasons.items() if now - record[0] < 6 * self._pause
            }
            self._reasons[reason] = (now, 0)
        more = f" ({skipped} more like it)" if skipped else ""
        self._log.warning("%s: %s; it will be tried again%s", subject, reason, more)
