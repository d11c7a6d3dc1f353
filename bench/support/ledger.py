"""What an outside observer knows of many jobs: when each was admitted and ended, and what was held at the same time.

One rule: pure but for one lock; moments are given. Events come in the order of the API server's versions, so that what
is held beyond a quota here was held beyond it there.
"""

import threading
from collections import Counter
from collections.abc import Mapping

from bench.support.baseline_scenario import ScenarioJob

HELD = ("Admitted", "Running")
FINAL = ("Succeeded", "Failed")


class Ledger:
    """Keeps count; called by a watch, read by others."""

    def __init__(self, jobs: Mapping[str, ScenarioJob], limit: int) -> None:
        self.admitted: dict[str, float] = {}
        """When each job was first seen to be admitted."""
        self.ended: dict[str, float] = {}
        self.phases: Counter[str] = Counter()
        self.sent_back = 0
        """Admissions that were taken back."""
        self.over = 0
        """The most cpu that a cohort was seen to hold beyond its quota."""
        self.failed = ""
        self._jobs = jobs
        self._limit = limit
        self._held: Counter[str] = Counter()
        self._lock = threading.Lock()

    def changed(self, name: str, before: str, after: str, now: float) -> bool:
        """A job went from one phase to another (empty: none yet); whether it is admitted now and was not."""
        with self._lock:
            self.phases[before] -= 1
            self.phases[after] += 1
            was, held = before in HELD, after in HELD
            if held or after in FINAL:
                self.admitted.setdefault(name, now)
            if after in FINAL:
                self.ended.setdefault(name, now)
            if after == "Failed":
                self.failed = name
            self.sent_back += was and not held and after not in FINAL
            self._hold(self._jobs[name], held - was)
            return held and not was

    def _hold(self, job: ScenarioJob, more: int) -> None:
        self._held[job.cohort] += more * job.kind.cpu
        self.over = max(self.over, self._held[job.cohort] - self._limit)

    def text(self) -> str:
        """For people who wait."""
        with self._lock:
            return " ".join(f"{phase or 'New'}={count}" for phase, count in sorted(self.phases.items()) if count > 0)
