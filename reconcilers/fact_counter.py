"""Counts what happens to jobs, once for each fact.

One rule: a fact counts after the API server has taken its write. A write without an answer is looked up later.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Cluster
from kube.process.meter import Meter
from reconcilers import facts
from reconcilers.apply.apply import Application
from reconcilers.facts import Fact
from reconcilers.values import InvalidJob, Observation


class _OpenWrite(NamedTuple):
    """A write of a status that may have been taken."""

    job: TorchJob | InvalidJob
    """The job before it."""
    change: Mapping[str, Any]


class FactCounter:
    """The counts of one worker process; safe to share between threads."""

    def __init__(self, cluster: Cluster, meter: Meter, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._meter = meter
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[JobKey, _OpenWrite] = {}

    def note(self, observation: Observation, application: Application) -> None:
        """Count what a carried out plan has made true of a job."""
        job, now = observation.job, self._clock()
        if job is None:
            return
        written = application.written["status"] if application.written is not None else None
        if written is not None:
            self._count(facts.between(job, written, now))
        if application.pod is not None and not observation.pods and isinstance(job, TorchJob):
            self._count(facts.first_pods(job, written or job.status.manifest(), now))
        if application.unanswered is not None:
            with self._lock:
                self._open[observation.key] = _OpenWrite(job, application.unanswered)

    def settle(self, observation: Observation) -> None:
        """Count the writes without an answer that the API server has taken. Only they cost a request, and that of the
        observed job costs none."""
        for key in tuple(self._open):
            status = _status(observation.job) if key == observation.key else self._read(key)
            if status is None:
                continue
            with self._lock:
                write = self._open.pop(key, None)
            if write is not None and facts.is_taken(status, write.change):
                self._count(facts.between(write.job, status, self._clock()))

    def _read(self, key: JobKey) -> Mapping[str, Any] | None:
        """Return the status of a job; empty if the job is gone, and None if the API server does not answer."""
        try:
            found = self._cluster.get(TORCHJOBS, key.name, key.namespace)
        except errors.NotFound:
            return {}
        except errors.ClusterError:
            return None
        return found.get("status") or {} if found["metadata"].get("uid") == key.uid else {}

    def _count(self, found: Iterable[Fact]) -> None:
        for fact in found:
            if fact.metric.kind == "histogram":
                self._meter.observe(fact.metric, fact.value, *fact.labels)
            else:
                self._meter.count(fact.metric, *fact.labels, by=fact.value)


def _status(job: TorchJob | InvalidJob | None) -> Mapping[str, Any]:
    return {} if job is None else job.status.manifest()
