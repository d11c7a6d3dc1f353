"""What a wait for a job came to.

One rule: pure. A job that was cancelled or deleted ends every wait, whatever it was waited for.
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

    def reaches(self, goal: Goal) -> bool:
        """Return whether this is what was waited for. A job that has succeeded has run."""
        return self.outcome in _GOOD[goal]


def judge(key: JobKey, item: Manifest | None, goal: Goal) -> JobEnding | None:
    """Return how a wait ends with this state of the job; None if the wait goes on."""
    if item is None:
        return JobEnding(key, "Deleted", "the job was deleted")
    status = item.get("status") or {}
    phase = status.get("phase") or ""
    if phase == "Succeeded":
        return JobEnding(key, "Succeeded", _message(status, phase), result_of(item))
    if phase == "Failed":
        return JobEnding(key, "Cancelled" if is_cancelled(item) else "Failed", _message(status, phase), result_of(item))
    if "deletionTimestamp" in item["metadata"]:
        return JobEnding(key, "Deleted", "the job is being deleted")
    if phase in PHASES[goal]:
        return JobEnding(key, goal if goal != "Finished" else "Succeeded", _message(status, phase))
    return None


def is_finished(item: Manifest) -> bool:
    """Return whether the job has ended."""
    return (item.get("status") or {}).get("phase") in FINISHED


def is_cancelled(item: Manifest) -> bool:
    """Return whether the job has ended because its user cancelled it."""
    return _condition(item.get("status") or {}, "Failed").get("reason") == CANCELLED


def result_of(item: Manifest) -> Any:
    """Return the result that rank 0 wrote; None without one, or if it is not JSON."""
    try:
        return orjson.loads((item.get("status") or {}).get("result") or "null")
    except orjson.JSONDecodeError:
        return None


def _message(status: Mapping[str, Any], phase: str) -> str:
    return str(_condition(status, phase).get("message") or "")


def _condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return next((each for each in conditions if (each["type"], each["status"]) == (kind, "True")), {})
