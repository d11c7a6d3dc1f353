"""The times at which jobs are routed again because time alone changes their routes.

One rule: nothing here is stored. The next leader computes it again from the jobs.
"""

import heapq
from collections.abc import Iterator

from crds.keys import JobKey


class DelayedKeys:
    """One time per key, in seconds since 1970."""

    def __init__(self) -> None:
        self._at: dict[JobKey, float] = {}
        self._heap: list[tuple[float, JobKey]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: JobKey, at: float) -> None:
        """Set the time at which the key is due, and drop its earlier time; 0: never."""
        if self._at.get(key, 0.0) == at:
            return
        self._at.pop(key, None)
        if at:
            self._at[key] = at
            heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + 64:
            self._heap = [(time, key) for key, time in self._at.items()]
            heapq.heapify(self._heap)

    def take_due(self, now: float) -> Iterator[JobKey]:
        """Remove and yield the keys whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                yield key
