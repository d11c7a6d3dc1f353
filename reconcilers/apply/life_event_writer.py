"""Writes the Events of a normal life, beside the reconciles.

One rule: nobody waits for them. They have a budget of their own, and one that the budget does not cover is dropped: a
burst of jobs needs all other writes more.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from crds.api_resources import EVENTS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster
from reconcilers.apply import events
from reconcilers.values import EmitEvent

PER_SECOND = 5.0
AT_ONCE = 50
"""The Events that one process may write together before `PER_SECOND` applies, and that may wait to be written."""

log = logging.getLogger(__name__)


class LifeEventWriter:
    """Writes Events on a thread of its own; safe to share between threads."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives the times of Events, `elapsed` those of the budget."""
        self._cluster, self._clock, self._elapsed = cluster, clock, elapsed
        self._lock = threading.Lock()
        self._left = float(AT_ONCE)
        self._since = elapsed()
        self._waiting = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="life-events")

    def tell(self, key: JobKey, event: EmitEvent) -> None:
        """Write an Event on a job soon, or drop it. Neither waits nor raises."""
        if self._takes():
            with contextlib.suppress(RuntimeError):  # the writer was closed
                self._executor.submit(self._write, key, event, self._clock())

    def close(self) -> None:
        """Drop the Events that wait."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _takes(self) -> bool:
        """Take a place for one Event; return whether there was one."""
        with self._lock:
            now = self._elapsed()
            self._left = min(float(AT_ONCE), self._left + (now - self._since) * PER_SECOND)
            self._since = now
            if self._left < 1.0 or self._waiting >= AT_ONCE:
                return False
            self._left -= 1.0
            self._waiting += 1
            return True

    def _write(self, key: JobKey, event: EmitEvent, now: float) -> None:
        try:
            self._cluster.create(EVENTS, events.manifest(key, event, now, owned=True), key.namespace)
        except errors.ClusterError as error:
            log.debug("%s: the Event %s could not be created: %s", key, event.reason, error)
        finally:
            with self._lock:
                self._waiting -= 1
