"""Counts of many jobs as an outside observer sees them: admissions, ends, and the usage of the admitted jobs.

One rule: pure, except for one lock; the caller passes the times. Events arrive in the order of the API server's
versions. So if usage exceeds a quota here, it has exceeded the quota in the API server, too.
"""

import threading
from collections import Counter
from collections.abc import Mapping

from bench.errors import BenchError
from bench.support.baseline.scenario import ScenarioJob

HELD = ("Admitted", "Running")
FINAL = ("Succeeded", "Failed")


class JobLedger:
    """The counts of jobs; a watch updates them, and other threads read them."""

    def __init__(self, jobs: Mapping[str, ScenarioJob] | None = None, limit: int = 0) -> None:
        """`jobs` are the jobs of cohorts, and `limit` the quota of each cohort."""
        self.admitted: dict[str, float] = {}
        """The time at which each job was first seen as admitted."""
        self.ended: dict[str, float] = {}
        self.phases: Counter[str] = Counter()
        self.sent_back = 0
        """The number of revoked admissions."""
        self.over = 0
        """The most CPU by which a cohort exceeded its quota."""
        self.failed = ""
        self._jobs = jobs
        self._limit = limit
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def record(self, name: str, before: str, after: str, now: float) -> bool:
        """Record the change of a job's phase (empty before the first phase); return whether it was just admitted."""
        with self._lock:
            self.phases[before] -= 1
            self.phases[after] += 1
            was, is_held = before in HELD, after in HELD
            if is_held or after in FINAL:
                self.admitted.setdefault(name, now)
            if after in FINAL:
                self.ended.setdefault(name, now)
            if after == "Failed":
                self.failed = name
            self.sent_back += was and not is_held and after not in FINAL
            if self._jobs:
                job = self._jobs[name]
                self._held[job.cohort] += (is_held - was) * job.kind.cpu
                self.over = max(self.over, self._held[job.cohort] - self._limit)
            return is_held and not was

    def has_ended(self, jobs: int) -> bool:
        """Return whether this number of jobs has ended. Raises BenchError if a job has failed."""
        if self.failed:
            raise BenchError(f"job {self.failed} failed")
        return len(self.ended) >= jobs

    def text(self) -> str:
        """Return the number of jobs in each phase as text."""
        with self._lock:
            return " ".join(f"{phase or 'New'}={count}" for phase, count in sorted(self.phases.items()) if count > 0)
