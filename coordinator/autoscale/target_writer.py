"""The writes of the targets of jobs.

One rule: a target is a merge patch for the version of the job that was judged. If the job has changed since, nothing is
written: the leader judges the job anew. Only a leader writes, and a write never delays a pick.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from crds import integers
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.status import Target
from kube import errors
from kube.api import Cluster
from kube.process.turns import Turns
from queues.redis.log_throttle import OutageLog

PER_SECOND = 50.0
AT_ONCE = 50
"""The most targets that are written in a row."""
INTERVAL_SECONDS = 0.2
"""The seconds between two rounds of writes."""
REFUSED_SECONDS = 30.0
"""How long nothing is written after the API server has refused a write because a permission is missing."""
ALL = "the targets of jobs"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class TargetWriter:
    """The targets that are yet to be written. The control loop decides on them; a thread of this class writes them."""

    cluster: Cluster
    watches: Watches
    leading: Callable[[], bool] = lambda: True
    """Returns whether this process leads now."""
    elapsed: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: dict[JobKey, tuple[JobView, Target | None]] = field(default_factory=dict)
    _written: dict[JobKey, float] = field(default_factory=dict)
    """The resourceVersions of writes that the watch may not have shown yet; infinite until the answer is there."""
    _free_at: float = 0.0
    _refused: OutageLog = field(default_factory=lambda: OutageLog(log))

    def put(self, job: JobView, target: Target | None) -> None:
        """Write a target for a job as it was judged; None: remove its target. A later decision replaces it."""
        with self._lock:
            self._pending[job.key] = (job, target)

    def keep(self, key: JobKey) -> None:
        """Forget the target that is yet to be written for a job: the one that it has may stay."""
        with self._lock:
            self._pending.pop(key, None)

    def is_under_way(self, key: JobKey) -> bool:
        """Return whether a target is being written, or was written and the watch has not shown it yet."""
        return self._written.get(key, 0) > self.watches.jobs.resource_version

    def clear(self) -> None:
        """Forget what was decided in an earlier term."""
        with self._lock:
            self._pending.clear()

    def __len__(self) -> int:
        """Return the number of all entries that are kept."""
        return len(self._pending) + len(self._written)

    def run(self, stop: threading.Event, turns: Turns) -> None:
        """Write while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop("targets").rounds(stop, INTERVAL_SECONDS):
            if self._pending and self.leading():
                try:
                    self.step()
                except Exception as error:
                    self.watches.errors.record(ALL, error)
                else:
                    self.watches.errors.clear(ALL)

    def step(self) -> int:
        """Write what the budget allows; return how many targets were tried."""
        tried = 0
        while self.elapsed() >= self._free_at and self.leading() and (found := self._next()) is not None:
            tried += 1
            if not self._write(*found):
                break
        return tried

    def _next(self) -> tuple[JobView, Target | None] | None:
        with self._lock:
            key = next(iter(self._pending), None)
            if key is None:
                return None
            self._written[key] = math.inf
            return self._pending.pop(key)

    def _write(self, job: JobView, target: Target | None) -> bool:
        """Write one target; return whether the next one may be written."""
        self._free_at = max(self._free_at, self.elapsed() - (AT_ONCE - 1) / PER_SECOND) + 1 / PER_SECOND
        version = 0
        try:
            version = self._patch(job, target)
        except errors.Forbidden as error:
            self._refused.report_failure(error)
            self._free_at = self.elapsed() + REFUSED_SECONDS
            return False
        except errors.ClusterError as error:  # the job has changed, or the API server is away: it is judged anew
            log.debug("target of %s: %s", job.key, error)
            return isinstance(error, errors.Conflict | errors.NotFound | errors.Invalid)
        finally:
            self._note(job.key, version)
        self._refused.report_recovery()
        return True

    def _patch(self, job: JobView, target: Target | None) -> int:
        """Write one target, and return the resourceVersion of the job after it. Raises ClusterError."""
        key, patch = job.key, {"status": {"target": None if target is None else target.manifest()}}
        made = self.cluster.patch(
            TORCHJOBS, key.name, patch, key.namespace, subresource="status", resource_version=job.version
        )
        return integers.parse(made["metadata"]["resourceVersion"], 0)

    def _note(self, key: JobKey, version: int) -> None:
        """Record the end of a write (0: it was refused), and forget those that the watch has shown."""
        shown = self.watches.jobs.resource_version
        with self._lock:
            written = {**self._written, key: version}
            self._written = {each: number for each, number in written.items() if number > shown}
