"""The watch over the steps of all jobs whose health is watched, and the parts of their statuses about steps.

One rule: the watch only reads reports and puts statuses, in its own thread; the workers decide what follows from a
hang. Everything that the watch remembers is lost with the leadership, and the time begins anew
(`coordinator.health.step_watch`).

A status is put with the resourceVersion of the job that was judged, so that a job that has changed since is judged
again. The hang of an earlier run is no hang: whoever writes the next run removes it.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from coordinator.cache.views import JobView
from coordinator.cache.watches import Watches
from coordinator.health import hang_verdict, step_watch
from coordinator.health.hang_verdict import HangVerdict
from coordinator.health.rounds import Rounds
from coordinator.health.step_watch import Look, StepWatch
from coordinator.reports.report_store import ReportReader
from coordinator.reports.report_values import JobReports
from coordinator.status_lane import JobLane
from crds.keys import JobKey
from crds.torchjob.status import MOST_AT_ONCE, Hang
from queues.errors import QueueError
from queues.store import QueueReader

log = logging.getLogger(__name__)


@dataclass(slots=True)
class HangWatch(Rounds):
    """The watched jobs of one leader. Only one thread uses this object."""

    loop, subject, seconds = "health", "the health of jobs", 5.0
    lane: JobLane
    watches: Watches
    store: QueueReader
    reports: ReportReader
    is_open: Callable[[], bool] = lambda: True
    """Returns whether reports can arrive."""
    clock: Callable[[], float] = time.time
    elapsed: Callable[[], float] = time.monotonic
    _last: Look | None = None
    _watched: dict[JobKey, StepWatch] = field(default_factory=dict)

    def forget(self) -> None:
        """Forget everything, because another process may lead."""
        self._last, self._watched = None, {}

    def look(self) -> None:
        """Look at the reports of all watched jobs once. A job that causes an error is skipped."""
        jobs = {job.key: job for job in self._jobs()}
        found = self._read(list(jobs)) if jobs and self.is_open() else None
        if found is None:
            self._last = None
            return
        look, reports = found
        continues, self._last = look.continues(self._last), look
        known, self._watched = self._watched, {}
        for key, job in jobs.items():
            try:
                watch = self._watch(job, known.get(key), reports.get(key), look.at, continues)
                changes = self._judge(job, watch, look.at)
            except Exception as error:
                self.watches.skip(key, error)
                continue
            self.lane.discard(key, "reported", "hang")
            if changes:
                self.lane.put(key, changes, job.version)

    def _jobs(self) -> Iterator[JobView]:
        """Yield the jobs that may make steps now."""
        for job in self.watches.jobs.values():
            if job.health is not None and job.health.may_step:
                yield job

    def _read(self, keys: list[JobKey]) -> tuple[Look, dict[JobKey, JobReports]] | None:
        """Return the reports of jobs; None if they cannot be read. The epoch is read last: if it is the epoch of the
        previous look, Redis was not flushed until the reports were read."""
        try:
            reports = self.reports.read(keys)
            return Look(self.elapsed(), self.store.epoch()), reports
        except QueueError as error:
            log.debug("health: %s", error)
            return None

    def _watch(
        self, job: JobView, before: StepWatch | None, reports: JobReports | None, now: float, continues: bool
    ) -> StepWatch:
        assert job.health is not None
        health = job.health
        running = [pod.name for pod in self.watches.job_pods(job.key) if pod.running and pod.attempt == job.attempt]
        told = reports.pods if reports is not None else {}
        return step_watch.look(before, health.run, running, told, health.reported, now, continues=continues)

    def _judge(self, job: JobView, watch: StepWatch, now: float) -> dict[str, Any]:
        """Judge a job, and return the fields of its status that do not have the finding yet."""
        assert job.health is not None
        health, verdict = job.health, hang_verdict.judge(watch, job.health.rules, now)
        self._watched[job.key] = replace(watch, hung=verdict is not None)
        changes: dict[str, Any] = {}
        known = health.reported if health.reported is not None and health.reported.run == watch.run else None
        if known != watch.reported:
            changes["reported"] = watch.reported.manifest() if watch.reported is not None else None
        if health.hang is None and verdict is not None:
            changes["hang"] = self._hang(watch, verdict).manifest()
        elif health.hang is not None and hang_verdict.is_over(watch, health.hang, verdict):
            changes["hang"] = None
        return changes

    def _hang(self, watch: StepWatch, verdict: HangVerdict) -> Hang:
        since = datetime.fromtimestamp(self.clock() - verdict.seconds, UTC)
        behind, silent = verdict.behind[:MOST_AT_ONCE], verdict.silent[:MOST_AT_ONCE]
        return Hang(since=since, run=watch.run, behind=behind, silent=silent, blamed=verdict.blamed)
