"""What pages read for themselves, kept for a moment.

One rule: however often a page asks, a server is asked once in some seconds for each value, and what nobody has asked
for in a while is forgotten.
"""

import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

V = TypeVar("V")
KEPT_SECONDS = 60.0
"""How long a value is kept after the last page has asked for it: a page that was away for a moment finds it again."""
MOST = 512


@dataclass(slots=True)
class _Kept:
    value: object = None
    is_known: bool = False
    read_at: float = 0.0
    asked_at: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Loads(Generic[V]):
    """Values by key, each read again once it is older than some seconds and a page asks for it."""

    def __init__(
        self,
        seconds: float,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep at most `most` values."""
        self._seconds, self._most, self._clock = seconds, most, clock
        self._kept: dict[Hashable, _Kept] = {}
        """The values; that which was asked for last is last."""
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[V | None], V]) -> V:
        """Return the value of a key. `read` gets the value before, if there is one, and returns the present one.

        While another thread reads a value, the value before is returned: a server that hangs keeps one thread waiting.
        An error of `read` is raised, and the value before stays.
        """
        kept = self._find(key)
        if self._is_fresh(kept):
            return cast(V, kept.value)
        if not kept.lock.acquire(blocking=not kept.is_known):
            return cast(V, kept.value)
        try:
            if not self._is_fresh(kept):
                kept.value = read(cast("V | None", kept.value))
                kept.is_known, kept.read_at = True, self._clock()
            return cast(V, kept.value)
        finally:
            kept.lock.release()

    def expire(self, key: Hashable) -> None:
        """Let the value of a key be read again when a page asks for it next."""
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                kept.read_at = -math.inf

    def _is_fresh(self, kept: _Kept) -> bool:
        return kept.is_known and self._clock() - kept.read_at < self._seconds

    def _find(self, key: Hashable) -> _Kept:
        with self._lock:
            now = self._clock()
            kept = self._kept.pop(key, None) or _Kept()
            kept.asked_at = now
            self._kept[key] = kept
            while len(self._kept) > self._most or now - next(iter(self._kept.values())).asked_at > KEPT_SECONDS:
                del self._kept[next(iter(self._kept))]
        return kept
