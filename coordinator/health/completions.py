"""The record of jobs whose pods have completed them, where no worker has ended the jobs.

One rule: a job that is complete trains no second time. A finished pod may be deleted at any moment, for example by the
drain of its node, and while no worker looks nothing else would be left of its success. The workers decide what to do
about a completed job.

Almost always, a worker ends the job first, and nothing is read or written here.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from coordinator.cache.watches import Watches
from coordinator.health.rounds import Rounds
from coordinator.status_lane import JobLane
from crds import labels, owners
from crds.api_resources import PODS, TORCHJOBS
from crds.errors import InvalidObject
from crds.keys import JobKey
from crds.torchjob import cached_parser
from crds.torchjob.status import Completion
from kube import errors
from kube.api import Cluster, Manifest
from queues.redis.log_throttle import OutageLog
from reconcilers.plan import ending
from reconcilers.values import Observation
from reconcilers.views import pod_result, pod_view
from reconcilers.views.pod_history import SETTLING
from reconcilers.views.pod_view import PodView

WORKERS_SECONDS = SETTLING
"""How long a job is left to the workers. By then it is also clear whether a node has ended its pods."""
REFUSED_SECONDS = 10.0
"""How long a job waits after the API server has refused or failed to tell of it."""
MOST_JOBS = 20
"""The most jobs that are read in one look; the others are read in the next ones."""
UNAVAILABLE_ERRORS = (errors.Unreachable, errors.ServerError, errors.TooManyRequests, errors.Forbidden)
"""The errors after which no other job is looked at until the next look."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Completions(Rounds):
    """The jobs of one leader that may be complete. Only one thread uses this object."""

    loop, subject, seconds = "completions", "the completion of jobs", 1.0
    cluster: Cluster
    lane: JobLane
    watches: Watches
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    _since: dict[JobKey, float] | None = None
    """The jobs with completed pods that no worker has ended, each with the time when the last of them was noticed;
    None: unknown."""
    _refused: OutageLog = field(default_factory=lambda: OutageLog(log))

    def forget(self) -> None:
        """Forget everything, because another process may lead."""
        self._since = None
        self.watches.completed.clear()

    def look(self) -> None:
        """Look at the jobs with completed pods."""
        now = self.elapsed()
        noticed = self._take_noticed()
        if self._since is None:
            noticed |= {pod.job for pod in self.watches.pods.values() if pod.completed and pod.job is not None}
        since = {**(self._since or {}), **dict.fromkeys(noticed, now)}
        self._since = {key: at for key, at in since.items() if self._is_open(key)}
        for key in [key for key, at in self._since.items() if now - at >= WORKERS_SECONDS][:MOST_JOBS]:
            try:
                verdict = self._judge(key)
                self._refused.report_recovery()
            except UNAVAILABLE_ERRORS as error:
                self._refused.report_failure(error)
                self._since[key] = now + REFUSED_SECONDS - WORKERS_SECONDS  # the others have their turn
                break
            except Exception as error:
                self.watches.skip(key, error)
                verdict = "Settled"
            if verdict == "Settled":
                del self._since[key]
            elif verdict == "Complete":
                self._since[key] = now  # a worker may write first: then it is looked at again

    def _take_noticed(self) -> set[JobKey]:
        """Take the jobs of which a pod has completed its work. The informer's thread adds other jobs at the same
        time."""
        noticed: set[JobKey] = set()
        while self.watches.completed:
            noticed.add(self.watches.completed.pop())
        return noticed

    def _is_open(self, key: JobKey) -> bool:
        """Return whether a job is admitted and has not ended."""
        job = self.watches.job(key)
        return job is not None and job.admission is not None and not (job.finished or job.deleting)

    def _judge(self, key: JobKey) -> Literal["Complete", "Settled", "Unsettled"]:
        """Put the completion of a job if its pods show it, and no status has recorded it. Raises ClusterError."""
        manifest = self._read(key)
        try:
            job = cached_parser.parse(manifest) if manifest is not None else None
        except InvalidObject:
            job = None
        if job is None or job.admission is None:
            return "Settled"
        listed = self.cluster.list(PODS, key.namespace, label_selector=f"{labels.JOB_UID}={key.uid}").items
        pods = tuple(self._view(each) for each in listed if owners.job_uid(each["metadata"]) == key.uid)
        now = datetime.fromtimestamp(self.clock(), UTC)
        observation = Observation(key=key, job=job, pods=pods, reservation=None)
        verdict = ending.judge_completion(observation, now)
        if not verdict.is_complete:
            return "Settled" if verdict.settled_in is None else "Unsettled"
        by_uid = {each["metadata"]["uid"]: each for each in listed}
        record = Completion(
            attempt=job.admission.attempt,
            restart_generation=job.status.restart_generation,
            result=pod_result.read(by_uid[verdict.result_of.uid]) if verdict.result_of is not None else "",
            model=pod_result.read_model(by_uid[verdict.model_of.uid]) if verdict.model_of is not None else None,
        )
        if job.status.completed == record:
            return "Settled"
        self.lane.put(key, {"completed": record.manifest()}, job.metadata.resource_version)
        return "Complete"

    def _view(self, manifest: Manifest) -> PodView:
        """Return the view of a pod. A pod that this process has seen without its main container is no success: the node
        of the pod has lost the container.
        """
        pod = pod_view.trim(manifest)
        known = self.watches.pods.get(pod.namespace, pod.name)
        return replace(pod, phase="Failed") if known is not None and known.unreported else pod

    def _read(self, key: JobKey) -> Manifest | None:
        try:
            manifest = self.cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return None
        return manifest if manifest["metadata"]["uid"] == key.uid else None
