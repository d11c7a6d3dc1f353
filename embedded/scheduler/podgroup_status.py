"""The status of a PodGroup from its pods, in the terms of Volcano's scheduler.

One rule: pure. The status before is an argument, so that a status without changes is not written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from embedded.pod import FAILED, SUCCEEDED, LocalPod
from embedded.scheduler.placement import Hold
from embedded.scheduler.podgroups import PodGroup
from embedded.status_conditions import condition, merge_conditions, well_formed

PENDING, INQUEUE, RUNNING, COMPLETED = "Pending", "Inqueue", "Running", "Completed"
_UNSCHEDULABLE = "Unschedulable"


def status(group: PodGroup, pods: Sequence[LocalPod], hold: Hold | None, now: float) -> Mapping[str, Any]:
    """Return the status of a group.

    `pods` are all pods that name the group, and `hold` is the reason for which its minimum cannot be bound, if there is
    one. A group in the phase Completed stays in this phase while its pods are deleted.
    """
    if group.status.get("phase") == COMPLETED and all(pod.is_finished for pod in pods):
        return group.status
    phases = [pod.phase for pod in pods]
    return {
        "phase": _phase(group, pods, hold),
        "running": phases.count("Running"),
        "succeeded": phases.count(SUCCEEDED),
        "failed": phases.count(FAILED),
        "conditions": _conditions(group, hold, now),
    }


def differs(status: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a status differs from the previous status. A missing field there counts as 0, as empty text or
    list.
    """
    return any((before.get(name) or type(value)()) != value for name, value in status.items())


def _phase(group: PodGroup, pods: Sequence[LocalPod], hold: Hold | None) -> str:
    bound = [pod for pod in pods if pod.node]
    if bound and len(bound) >= group.minimum:
        return COMPLETED if all(pod.is_finished for pod in bound) else RUNNING
    return PENDING if hold is not None and hold.pending else INQUEUE


def _conditions(group: PodGroup, hold: Hold | None, now: float) -> list[dict[str, Any]]:
    if hold is None:
        return []
    update = condition(_UNSCHEDULABLE, True, hold.reason, hold.message)
    before = [item for item in well_formed(group.status.get("conditions")) if item["type"] == _UNSCHEDULABLE]
    return merge_conditions(before, [update], now)
