"""The page /metrics: its text, and how often it is made.

One rule: pages take a small share of a core, however many readers ask. A reader who asks too soon gets the last page.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

REST = 50.0
"""How long a page is used, as a multiple of the CPU time that it took: pages take 2 % of a core at most."""


@dataclass(slots=True)
class MetricsPage:
    """The newest page of a process; safe to share between threads."""

    make: Callable[[], bytes]
    clock: Callable[[], float] = time.monotonic
    cpu_clock: Callable[[], float] = time.thread_time
    _text: bytes = b""
    _until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> bytes:
        """Return the page, made now unless the last page may still be used."""
        with self._lock:
            if not self._text or self.clock() >= self._until:
                began = self.cpu_clock()
                self._text = self.make()
                self._until = self.clock() + REST * (self.cpu_clock() - began)
            return self._text
