"""The order in which the API server carries out requests that have arrived at the same time: namespaces take turns.

One rule: while several namespaces send requests, one request of each is carried out between two looks at the sockets.
So a request waits for one request of each other namespace, however many those send. On Kubernetes, API priority and
fairness does this for flows that are told apart by namespace.
"""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Callable

SHARED_SECONDS = 1.0
"""For how long a namespace counts as one of several after a request. The requests of a namespace that is alone are not
held back: their changes go to disk, and to the watches, together, which saves a quarter of the server's CPU."""


class NamespaceTurns:
    """The requests that wait for their turn. Only one event loop may use them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The requests of each namespace, oldest first."""
        self._served: Counter[str] = Counter()
        """How many requests of each namespace were carried out in this round."""
        self._latest = ""
        """The namespace of the latest request that has one."""
        self._shared_until = -math.inf
        """Until when the namespaces of the latest requests count as several."""

    async def take(self, namespace: str) -> None:
        """Wait for the turn of a request. Requests without a namespace take turns as those of one more namespace."""
        if namespace and namespace != self._latest:
            self._latest, self._shared_until = namespace, self._clock() + SHARED_SECONDS
        if not self._served[namespace] or not self._is_shared:
            self._serve(namespace)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        await turn

    @property
    def _is_shared(self) -> bool:
        return bool(self._waiting) or self._clock() < self._shared_until

    def _serve(self, namespace: str) -> None:
        if not self._served:
            asyncio.get_running_loop().call_soon(self._begin_round)
        self._served[namespace] += 1

    def _begin_round(self) -> None:
        self._served.clear()
        for namespace, requests in tuple(self._waiting.items()):
            while requests and not self._served[namespace]:
                turn = requests.popleft()
                if not turn.done():  # else its client has hung up
                    turn.set_result(None)
                    self._serve(namespace)
            if not requests:
                del self._waiting[namespace]
