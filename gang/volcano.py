"""Volcano (scheduling.volcano.sh/v1beta1).

One rule: only the fields of a PodGroup's spec that are ours are ever written, by merge patch: its status has no
subresource, and Volcano writes it about once a second.

What is relied upon. A pod belongs to the PodGroup of its namespace that its annotation `scheduling.k8s.io/group-name`
names; without it Volcano makes a group of one. minTaskMember counts only where minMember is at least its sum. A group
is Pending until its queue is Open and has room for minResources; nothing of it is bound before, and pods made before
only stand in line (a cluster autoscaler, however, sees nothing until there are pods). minMember above what is bound
sends a running group back to Pending, so it is the least the job can do with, for life. A group that is over keeps its
minResources until it is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds.api_resources import GANG_QUEUES, POD_GROUPS, Resource
from crds.resources import quantities
from gang import backend
from gang.values import Binding, Gang, GroupView
from kube.api import Manifest

GROUP_NAME = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations on a pod: Volcano's scheduler reads the first, its GPU sharing the second."""
TASK = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"
SIZE = ("minMember", "minTaskMember", "minResources")
WAITS_FOR = {
    "NotEnoughResources": "it has no room for the gang",
    "NotEnoughTasks": "not all pods of the gang are there",
    "NotEnoughPodsOfTask": "not all pods of one of its tasks are there",
}


@dataclass(frozen=True, slots=True)
class Volcano:
    """Binds by PodGroups, and has queues of its own."""

    name: str = "volcano"
    scheduler: str = "volcano"
    together: bool = True
    resource: Resource = POD_GROUPS
    queues: Resource | None = GANG_QUEUES

    def create(self, gang: Gang) -> Manifest | None:
        """A PodGroup. A queue that is not named is left open: a namespace may have one of its own."""
        spec = _size(gang)
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.priority_class:
            spec["priorityClassName"] = gang.priority_class
        return backend.manifest(self.resource, gang, spec)

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """All that says how large it is, together: a minimum without its resources is let in too early or never."""
        return backend.difference(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Anything but Pending is let in: Inqueue, Running, Unknown (partly bound), Completed."""
        status = manifest.get("status") or {}
        pending = status.get("phase") in (None, "", "Pending")
        queue = (manifest.get("spec") or {}).get("queue") or DEFAULT_QUEUE
        return backend.view(
            self.resource,
            manifest,
            SIZE,
            phase="Pending" if pending else "Ready",
            message=_message(status) if pending else "",
            queue=queue,
        )

    def refusal(self, queue: str, found: Manifest | None) -> tuple[str, str] | None:
        """A queue that is not there, or not open."""
        remedy = "name another one in spec.schedulingPolicy.gangQueue"
        if found is None:
            return "GangQueueMissing", f"Volcano has no queue {queue}: create it, or {remedy}"
        state = (found.get("status") or {}).get("state") or "Open"  # Volcano has not looked at it yet
        if state == "Open":
            return None
        return "GangQueueClosed", f"Volcano's queue {queue} is {state}: open it, or {remedy}"

    def bind(self, gang: Gang, task_type: str) -> Binding:
        """By annotations and the scheduler's name."""
        return Binding(
            annotations={**dict.fromkeys(GROUP_NAME, gang.name), TASK: task_type},
            spec={"schedulerName": self.scheduler},
        )


def _size(gang: Gang) -> dict[str, Any]:
    return {
        "minMember": gang.size,
        "minTaskMember": dict(gang.minimum),
        "minResources": {name: quantities.text(name, amount) for name, amount in gang.resources.items()},
    }


def _message(status: Mapping[str, Any]) -> str:
    """What a Pending group waits for; Volcano's own words have numbers that move."""
    conditions = status.get("conditions") or ()
    against = (each for each in conditions if each.get("type") == "Unschedulable" and each.get("status") == "True")
    reason = next((str(each.get("reason") or "") for each in against), "")
    why = WAITS_FOR.get(reason, reason)
    return "Volcano has not let it in yet" + (f": {why}" if why else "")
