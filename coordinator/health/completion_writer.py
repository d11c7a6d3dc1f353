"""The record of jobs whose pods have completed them, and that no worker has ended.

One rule: a job that is complete trains no second time. A finished pod may be deleted at any moment, for example by the
drain of its node, and while no worker looks nothing else would be left of its success. What follows, workers decide.

Almost always, a worker ends the job first, and nothing is read or written here.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from coordinator.cache.watches import Watches
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import cached_parser
from kube import errors
from kube.api import Cluster, Manifest
from kube.process.turns import Turns
from queues.redis.log_throttle import OutageLog
from reconcilers.plan import ending
from reconcilers.values import Observation
from reconcilers.views import pod_view
from reconcilers.views.pod_history import SETTLING

LOOK_SECONDS = 1.0
"""The seconds between two looks."""
WORKERS_SECONDS = SETTLING
"""How long a job is left to the workers. By then it is also clear whether a node has ended its pods."""
MOST_JOBS = 20
"""The most jobs that are read in one look; the others are read in the next ones."""
UNAVAILABLE_ERRORS = (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Forbidden)
"""The errors after which no other job is looked at until the next look."""
ALL = "the completion of jobs"
log = logging.getLogger(__name__)


@dataclass(slots=True)
class CompletionWriter:
    """The jobs of one leader that may be complete. One thread uses it."""

    cluster: Cluster
    watches: Watches
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    _since: dict[JobKey, float] | None = None
    """The jobs with completed pods that no worker has ended, each with the time when that was noticed; None: unknown.
    """
    _refused: OutageLog = field(default_factory=lambda: OutageLog(log))

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Look and write while this process leads, until stopped, as one of the loops in `turns`."""
        for _ in turns.loop("completions").rounds(stop, LOOK_SECONDS):
            if not (leading() and self.watches.synced):
                self.forget()
                continue
            try:
                self.look()
            except Exception as error:
                self.watches.errors.record(ALL, error)
            else:
                self.watches.errors.clear(ALL)

    def forget(self) -> None:
        """Forget everything, because another process may lead."""
        self._since, self.watches.completed = None, set()

    def look(self) -> int:
        """Look at the jobs with completed pods; return how many statuses were written."""
        now = self.elapsed()
        noticed, self.watches.completed = self.watches.completed, set()
        if self._since is None:
            noticed |= {pod.job for pod in self.watches.pods.values() if pod.completed and pod.job is not None}
        known = self._since or {}
        open_jobs = {key: known.get(key, now) for key in (*known, *noticed) if self._is_open(key)}
        self._since = dict(open_jobs)
        written = 0
        for key in [key for key, since in open_jobs.items() if now - since >= WORKERS_SECONDS][:MOST_JOBS]:
            try:
                written += self._record(key)
                self._refused.report_recovery()
            except (errors.Conflict, errors.NotFound):
                continue  # a worker has just written, or the job is gone: it is looked at again
            except UNAVAILABLE_ERRORS as error:
                self._refused.report_failure(error)
                break
            except Exception as error:
                self.watches.skip(key, error)
            del self._since[key]
        return written

    def _is_open(self, key: JobKey) -> bool:
        """Return whether a job is admitted and has not ended."""
        job = self.watches.job(key)
        return job is not None and job.admission is not None and not (job.finished or job.deleting)

    def _record(self, key: JobKey) -> bool:
        """Record the completion of a job if its pods show it; return whether that was written. Raises ClusterError."""
        manifest = self._read(key)
        if manifest is None:
            return False
        try:
            job = cached_parser.parse(manifest)
        except InvalidObject:
            return False
        listed = self.cluster.list(PODS, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}").items
        pods = tuple(pod for each in listed if (pod := pod_view.trim(each)).job_uid == key.uid)
        now = datetime.fromtimestamp(self.clock(), UTC)
        found = ending.find_completion(Observation(key=key, job=job, pods=pods, reservation=None), now)
        if found is None:
            return False
        self.cluster.patch(
            TORCHJOBS,
            key.name,
            {"status": {"completed": found.manifest()}},
            key.namespace,
            subresource="status",
            resource_version=job.metadata.resource_version,
        )
        return True

    def _read(self, key: JobKey) -> Manifest | None:
        try:
            manifest = self.cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return None
        return manifest if manifest["metadata"]["uid"] == key.uid else None
