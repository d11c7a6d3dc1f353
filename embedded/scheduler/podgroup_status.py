"""A PodGroup's status from what became of its pods, in the words of Volcano's scheduler.

One rule: pure. The status before goes in, so that what says nothing new is not written.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from embedded.node.status import pod_status
from embedded.pod import FAILED, SUCCEEDED, LocalPod
from embedded.scheduler.decisions import Hold
from embedded.scheduler.podgroups import PodGroup

PENDING, INQUEUE, RUNNING, COMPLETED = "Pending", "Inqueue", "Running", "Completed"
_UNSCHEDULABLE = "Unschedulable"


def status(group: PodGroup, pods: Sequence[LocalPod], hold: Hold | None, now: float) -> Mapping[str, Any]:
    """The status of a group, given all the pods that name it and what keeps its minimum from being bound, if anything.

    A group that is completed stays so while its pods are cleared away.
    """
    if group.status.get("phase") == COMPLETED and all(pod.finished for pod in pods):
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
    """Whether anything in a status is new; what was never written counts as none."""
    return any((before.get(name) or type(value)()) != value for name, value in status.items())


def _phase(group: PodGroup, pods: Sequence[LocalPod], hold: Hold | None) -> str:
    bound = [pod for pod in pods if pod.node]
    if bound and len(bound) >= group.minimum:
        return COMPLETED if all(pod.finished for pod in bound) else RUNNING
    return PENDING if hold is not None and hold.kept_out else INQUEUE


def _conditions(group: PodGroup, hold: Hold | None, now: float) -> list[dict[str, Any]]:
    if hold is None:
        return []
    wanted = pod_status.condition(_UNSCHEDULABLE, True, hold.reason, hold.message)
    before = [each for each in pod_status.sound(group.status.get("conditions")) if each["type"] == _UNSCHEDULABLE]
    return pod_status.merge_conditions(before, [wanted], now)
