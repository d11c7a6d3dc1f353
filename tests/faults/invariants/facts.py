"""The counters of workers beside what the watch of the API server has shown.

One rule: whatever goes wrong, no fact is counted twice. If no process dies and every answer arrives, no fact is
missing.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson

from crds.api_resources import TORCHJOBS
from embedded.apiserver.kinds.catalog import storage
from embedded.apiserver.storage.journal import Change
from tests.doubles.recording_meter import RecordingMeter

JOBS = storage(TORCHJOBS)
ENDS = ("Succeeded", "Failed")


class FactWatch:
    """The facts of all jobs, and the facts that workers have counted."""

    def __init__(self) -> None:
        self.meter = RecordingMeter()
        self._happened: Counter[str] = Counter()

    def hear(self, resource: str, change: Change) -> None:
        """Record a change that the API server shows in its watches."""
        if resource != JOBS or change.before is None or change.kind == "DELETED":
            return
        before, after = (_status(each.raw) for each in (change.before, change.object))
        old, new = (each.get("admission") or {} for each in (before, after))
        if new and new["attempt"] != old.get("attempt"):
            self._happened["torchq_admissions_total"] += 1
        if after.get("phase") in ENDS and before.get("phase") not in ENDS:
            self._happened["torchq_jobs_finished_total"] += 1
        if old and not new and after.get("phase") == "Queued":
            self._happened["torchq_jobs_sent_back_total"] += 1
        for field in ("restartCount", "disruptions"):
            self._happened["torchq_job_restarts_total"] += max(0, after.get(field, 0) - before.get(field, 0))

    def doubled(self) -> Iterator[str]:
        """Yield the metrics that count more than has happened."""
        for name, count in self._counted().items():
            if count > self._happened[name]:
                yield f"{name} counts {count}, and {self._happened[name]} were seen"

    def missing(self) -> Iterator[str]:
        """Yield the metrics that count less than has happened."""
        counted = self._counted()
        for name, count in self._happened.items():
            if count > counted[name]:
                yield f"{name} counts {counted[name]}, and {count} were seen"

    def _counted(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for (name, *_), count in self.meter.counts.items():
            found[name] += count
        return Counter({name: count for name, count in found.items() if name.startswith("torchq_")})


def _status(raw: bytes) -> dict[str, Any]:
    status: dict[str, Any] = orjson.loads(raw).get("status") or {}
    return status
