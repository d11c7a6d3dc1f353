"""Whether the clock of a worker's machine can be trusted.

One rule: two other clocks must agree that it is wrong, so that a single wrong clock elsewhere stops no worker. A worker
with a wrong clock would end jobs whose deadlines are hours away, and delete finished ones.
"""

import time
from collections.abc import Callable

from kube.process import server_time


class HostClock:
    """The clock of this machine, beside those of the API server and of Redis."""

    def __init__(self, ahead: Callable[[], float] = float, clock: Callable[[], float] = time.time) -> None:
        """`ahead` returns by how many seconds the clock of this machine is ahead of the API server's."""
        self._ahead = ahead
        self._clock = clock

    def problem(self, redis_time: float) -> str:
        """Return why the clock cannot be trusted, at this time of Redis (0: not known); empty if it can."""
        of_server, of_redis = self._ahead(), self._clock() - redis_time if redis_time else 0.0
        if not (server_time.is_large(of_server) and server_time.is_large(of_redis)) or of_server * of_redis < 0:
            return ""
        return f"the clock of this machine is {server_time.describe(of_server)} those of the API server and Redis"
