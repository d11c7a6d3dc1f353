"""Jobs that wait for a shared budget: tenants take turns, and the jobs of one tenant go by rank.

One rule: a tenant's next job waits for at most one job of each other tenant, however many they have.

With jobs 1, 2 and 3 of tenant a, and then job 9 of tenant b, the order is 1, 9, 2, 3.
"""

import heapq
from collections import deque

from crds.keys import JobKey

_FEW = 64
"""Entries of jobs that wait no more, below which there is no need to look for them."""


class RoundRobin:
    """Jobs by tenant; of one thread, or under its caller's lock."""

    def __init__(self) -> None:
        self._waiting: dict[JobKey, tuple[str, float]] = {}
        """The tenant and the rank of every job that waits."""
        self._lanes: dict[str, list[tuple[float, JobKey]]] = {}
        """A heap for each tenant. It may hold jobs that wait no more."""
        self._turns: deque[str] = deque()
        """The tenants of the lanes; the turn of the first one is next."""
        self._entries = 0

    def __contains__(self, key: JobKey) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        """Everything that is remembered."""
        return self._entries

    def add(self, tenant: str, rank: float, key: JobKey) -> None:
        """Let a job wait; the least rank of a tenant goes first. A job that waits already keeps its place."""
        if key in self._waiting:
            return
        self._waiting[key] = tenant, rank
        self._push(tenant, rank, key)
        if self._entries > 2 * len(self._waiting) + _FEW:
            self._rebuild()

    def discard(self, key: JobKey) -> None:
        """The job waits no more, if it does."""
        self._waiting.pop(key, None)

    def pop(self) -> JobKey | None:
        """The job whose turn it is, which waits no more; None if no job waits."""
        while self._turns:
            tenant = self._turns.popleft()
            key = self._first(tenant)
            if self._lanes[tenant]:
                self._turns.append(tenant)
            else:
                del self._lanes[tenant]
            if key is not None:
                del self._waiting[key]
                return key
        return None

    def _first(self, tenant: str) -> JobKey | None:
        lane = self._lanes[tenant]
        while lane:
            rank, key = heapq.heappop(lane)
            self._entries -= 1
            if self._waiting.get(key) == (tenant, rank):
                return key
        return None

    def _push(self, tenant: str, rank: float, key: JobKey) -> None:
        if tenant not in self._lanes:
            self._lanes[tenant] = []
            self._turns.append(tenant)
        heapq.heappush(self._lanes[tenant], (rank, key))
        self._entries += 1

    def _rebuild(self) -> None:
        """Without the jobs that wait no more; the tenants keep their order."""
        turns = list(self._turns)
        self._lanes, self._entries = {}, 0
        self._turns.clear()
        for key, (tenant, rank) in self._waiting.items():
            self._push(tenant, rank, key)
        self._turns = deque(tenant for tenant in turns if tenant in self._lanes)
