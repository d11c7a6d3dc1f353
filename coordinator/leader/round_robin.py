"""Jobs that wait for a shared budget: tenants take turns, and the jobs of one tenant are ordered by rank.

One rule: a tenant's next job waits for at most one job of each other tenant, however many jobs that tenant has.

With jobs 1, 2 and 3 of tenant a, and then job 9 of tenant b, the order is 1, 9, 2, 3.
"""

import heapq
from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")

_FEW = 64
"""The number of stale entries at which the heaps are rebuilt."""


class RoundRobin(Generic[K]):
    """The waiting jobs of each tenant. Only one thread may use the object, unless the caller holds a lock."""

    def __init__(self) -> None:
        self._waiting: dict[K, tuple[str, float]] = {}
        """The tenant and the rank of every waiting job."""
        self._heaps: dict[str, list[tuple[float, K]]] = {}
        """A heap for each tenant. It may contain stale entries: jobs that do not wait any more."""
        self._turns: deque[str] = deque()
        """The tenants that have a heap; the first tenant has the next turn."""
        self._entries = 0

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        """Return the number of all entries that are kept, stale ones included."""
        return self._entries

    def add(self, tenant: str, rank: float, key: K) -> None:
        """Add a waiting job; the job with the lowest rank of its tenant is first. A job that already waits keeps its
        place."""
        if key in self._waiting:
            return
        self._waiting[key] = tenant, rank
        self._push(tenant, rank, key)
        if self._entries > 2 * len(self._waiting) + _FEW:
            self._rebuild()

    def discard(self, key: K) -> None:
        """Remove a job, if it waits."""
        self._waiting.pop(key, None)

    def pop(self) -> K | None:
        """Remove and return the job whose turn it is; None if no job waits."""
        while self._turns:
            tenant = self._turns.popleft()
            key = self._first(tenant)
            if self._heaps[tenant]:
                self._turns.append(tenant)
            else:
                del self._heaps[tenant]
            if key is not None:
                del self._waiting[key]
                return key
        return None

    def _first(self, tenant: str) -> K | None:
        heap = self._heaps[tenant]
        while heap:
            rank, key = heapq.heappop(heap)
            self._entries -= 1
            if self._waiting.get(key) == (tenant, rank):
                return key
        return None

    def _push(self, tenant: str, rank: float, key: K) -> None:
        if tenant not in self._heaps:
            self._heaps[tenant] = []
            self._turns.append(tenant)
        heapq.heappush(self._heaps[tenant], (rank, key))
        self._entries += 1

    def _rebuild(self) -> None:
        """Drop the stale entries; the tenants keep their order."""
        tenants = list(self._turns)
        self._heaps, self._entries = {}, 0
        self._turns.clear()
        for key, (tenant, rank) in self._waiting.items():
            self._push(tenant, rank, key)
        self._turns = deque(tenant for tenant in tenants if tenant in self._heaps)
