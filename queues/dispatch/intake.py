"""Whether one worker process takes batches, and if not, why.

One rule: a record for all threads of the process. It decides nothing but what `queues.registrations` and `HostClock`
say, and waits for nobody.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from kube.process import server_time
from kube.process.turns import Turns
from queues import redis_keys
from queues.registrations import Registration, StoreIdentity, find_refusal


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


class Intake:
    """The intake of one worker process. Every method may be called by any thread."""

    def __init__(
        self,
        version: str = "",
        owner: str = "",
        *,
        layout: int = redis_keys.OWN_LAYOUT,
        clock: Callable[[], float] = time.monotonic,
        turns: Turns | None = None,
        host_clock: HostClock | None = None,
    ) -> None:
        """`version` is torchq's, `owner` the installation of this worker (`Registration`)."""
        self._host_clock = host_clock or HostClock()
        self.clock_problem = ""
        """Why the clock of this machine cannot be trusted; empty if it can."""
        self.turns = turns or Turns()
        """The loops of the process."""
        self._own = Registration(worker="", threads=0, version=version, layout=layout, owner=owner)
        self._clock = clock
        self._changed = threading.Condition()
        self.registered = False
        """Whether the store knows this worker."""
        self.refusal = ""
        """Why this worker must not take batches, whatever else works; empty if it may."""
        self.outage = ""
        """Why the last registration failed; empty if it did not."""
        self.stopping = False
        """Whether the process ends."""
        self.unfinished_seconds: Callable[[], float] = float
        """Returns the sum of the times for which the runs of now have run."""
        self.popped_at = -math.inf
        """When the process last asked RQ for a batch, by its clock."""

    @property
    def problem(self) -> str:
        """Why this worker takes no batches now; empty if it does, or if it has not registered yet."""
        return self.refusal or self.outage

    @property
    def is_open(self) -> bool:
        """Whether this worker may take batches."""
        return self.registered and not self.refusal and not self.stopping

    def registration(self, worker: str, threads: int) -> Registration:
        """Return the registration of this process."""
        problem = self.clock_problem if threads else ""  # a process that stops has no thread
        return replace(self._own, worker=worker, threads=0 if problem else threads, clock=problem)

    def learn(self, store: StoreIdentity) -> None:
        """Record the store's answer to a registration."""
        with self._changed:
            self.registered, self.outage = True, ""
            self.clock_problem = self._host_clock.problem(store.time)
            self.refusal = find_refusal(self._own, store) or self.clock_problem
            self._changed.notify_all()

    def fail(self, outage: str) -> None:
        """Record that the store did not take a registration."""
        self.outage = outage

    def stop(self) -> None:
        """Record that the process ends: it takes no more batches."""
        with self._changed:
            self.stopping = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until this worker may take batches or the time is over. Return whether it may."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_open, timeout=seconds)

    def mark_pop(self) -> None:
        """Record that the process asks RQ for a batch."""
        self.popped_at = self._clock()
