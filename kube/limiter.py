"""An optional limit on our own requests per second.

One rule: it only says how long to wait; who asked waits.
"""

import math
import threading
import time
from collections.abc import Callable


class Limiter:
    """A token bucket: `burst` requests at once, `rate` per second in the long run; rate 0 never limits."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / rate if rate > 0 else 0.0
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._next = -math.inf
        """When the next request would go out if all of them had been evenly spaced."""

    def reserve(self) -> float:
        """Take a place in the order and return the seconds until it; 0 while the burst lasts."""
        if not self._interval:
            return 0.0
        with self._lock:
            now = self._clock()
            mine = max(self._next, now - (self._burst - 1) * self._interval)
            self._next = mine + self._interval
            return max(0.0, mine - now)
