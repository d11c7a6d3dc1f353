"""The outcome of a wait for a job.

One rule: a job that was cancelled or deleted ends every wait, whatever it was waited for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import orjson

from crds.keys import JobKey
from crds.torchjob.conditions import FINISHED
from kube.api import Manifest

Goal = Literal["Finished", "Admitted", "Running", "Suspended"]
Outcome = Literal["Succeeded", "Failed", "Cancelled", "Deleted", "Admitted", "Running", "Suspended"]

CANCELLED = "Cancelled"
"""The reason of the condition Failed of a job that its user cancelled."""
PHASES: Mapping[Goal, tuple[str, ...]] = MappingProxyType(
    {"Finished": (), "Admitted": ("Admitted", "Running"), "Running": ("Running",), "Suspended": ("Suspended",)}
)
"""The phases that reach each goal. The end of a job ends every wait."""
_GOOD: Mapping[Goal, tuple[Outcome, ...]] = MappingProxyType(
    {
        "Finished": ("Succeeded",),
        "Admitted": ("Succeeded", "Admitted"),
        "Running": ("Succeeded", "Running"),
        "Suspended": ("Suspended",),
    }
)


@dataclass(frozen=True, slots=True)
class JobEnding:
    """The end of a wait for one job."""

    key: JobKey
    outcome: Outcome
    message: str = ""
    """The message of the condition that says so, for people."""
    result: Any = None
    """The JSON value that rank 0 gave as the result of the job; None without one."""
    reason: str = ""
    """The reason of that condition, for programs."""
    exit_code: int | None = None
    """The exit code of the pod that failed, 0 of a job that has succeeded; None without one."""

    def reaches(self, goal: Goal) -> bool:
        """Return whether the job has reached the awaited state. A job that has succeeded has run."""
        return self.outcome in _GOOD[goal]


def judge(key: JobKey, item: Manifest | None, goal: Goal) -> JobEnding | None:
    """Return how a wait ends with this state of the job; None if the wait continues."""
    if item is None:
        return JobEnding(key, "Deleted", "the job was deleted")
    phase = (item.get("status") or {}).get("phase") or ""
    message = str(true_condition(item, phase).get("message") or "")
    if phase in FINISHED:
        outcome: Outcome = "Succeeded" if phase == "Succeeded" else "Cancelled" if is_cancelled(item) else "Failed"
        return JobEnding(key, outcome, message, result_of(item), *cause_of(item))
    if "deletionTimestamp" in item["metadata"]:
        return JobEnding(key, "Deleted", "the job is being deleted")
    if phase in PHASES[goal]:
        return JobEnding(key, goal if goal != "Finished" else "Succeeded", message)
    return None


def is_finished(item: Manifest) -> bool:
    """Return whether the job has ended."""
    return (item.get("status") or {}).get("phase") in FINISHED


def is_cancelled(item: Manifest) -> bool:
    """Return whether the job has ended because its user cancelled it."""
    return true_condition(item, "Failed").get("reason") == CANCELLED


def cause_of(item: Manifest) -> tuple[str, int | None]:
    """Return the reason of the end of a finished job, and its exit code; None without an exit code."""
    status = item.get("status") or {}
    phase, code = str(status.get("phase") or ""), status.get("exitCode")
    return str(true_condition(item, phase).get("reason") or ""), 0 if phase == "Succeeded" else code


def result_of(item: Manifest) -> Any:
    """Return the result that rank 0 wrote; None without a result, or if the result is not JSON."""
    try:
        return orjson.loads((item.get("status") or {}).get("result") or "null")
    except orjson.JSONDecodeError:
        return None


def true_condition(item: Manifest, kind: str) -> dict[str, Any]:
    """Return the condition of this type that a job has now; empty if the job has no such condition."""
    conditions = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if (each["type"], each["status"]) == (kind, "True")), {})
