"""The thread of a worker process that keeps its leases.

One rule: a key is renewed exactly while a thread runs it and does not hang, so that a dead process's keys come back by
themselves. A process of which every thread hangs ends.
"""

import logging
import threading

from kube.stop import Stop
from queues import errors
from queues.dispatch.task_runner import Runs
from queues.redis.log_throttle import Outage
from queues.work import WorkSink

log = logging.getLogger(__name__)


class Keeper(threading.Thread):
    """Says every few seconds that the worker lives, and renews what it runs."""

    def __init__(self, worker: str, sink: WorkSink, runs: Runs, *, pause: float, stop: Stop, outage: Outage) -> None:
        super().__init__(name="lease-keeper", daemon=True)
        self._worker = worker
        self._sink = sink
        self._runs = runs
        self._pause = pause
        self._stopping = stop
        self._outage = outage
        self._ended = threading.Event()
        self._away = False

    def run(self) -> None:
        """Until `end`."""
        while not self._ended.wait(self.keep()):
            pass

    def keep(self) -> float:
        """Register and renew once; seconds until it should be done again."""
        leases = self._runs.leases()
        if self._runs.stuck and not self._stopping():
            log.error("every thread hangs: this worker ends, a new one takes its place")
            self._stopping.request()
        try:
            self._sink.register(self._worker, 0 if self._stopping() else self._runs.threads)
            self._sink.renew(leases)
        except errors.QueueError as error:
            self._outage.met(error)
            self._away = True
            return 1.0
        self._outage.over()
        self._away = False
        return self._pause

    def end(self) -> None:
        """Stop renewing, and take the worker off the list, unless Redis has just been found to be away: a supervisor
        that dies takes everything with it, and nobody should have to wait for us."""
        self._ended.set()
        self.join()
        if not self._away:
            self.keep()
