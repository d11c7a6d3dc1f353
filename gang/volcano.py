"""Volcano (scheduling.volcano.sh/v1beta1).

One rule: torchq writes only its own fields of a PodGroup's spec, by merge patch. The status has no subresource, and
Volcano writes it about once a second.

torchq relies on this behaviour of Volcano:

- A pod belongs to the PodGroup of its namespace that its annotation `scheduling.k8s.io/group-name` names. Without the
  annotation Volcano creates a group of one pod.
- minTaskMember counts only where minMember is at least its sum.
- A group is Pending until its queue is Open and has room for minResources. None of its pods is bound before. Pods that
  were created earlier only wait; a cluster autoscaler, however, sees no demand until there are pods.
- If minMember exceeds the number of bound pods, a running group becomes Pending again. So minMember is the least that
  the job needs, for the group's whole life.
- A completed group keeps its minResources until it is deleted.
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
"""The annotations of a pod: Volcano's scheduler reads the first, its GPU sharing the second."""
TASK = "volcano.sh/task-spec"
DEFAULT_QUEUE = "default"
SIZE = ("minMember", "minTaskMember", "minResources")
WAITS_FOR = {
    "NotEnoughResources": "it has no room for the gang",
    "NotEnoughTasks": "not all pods of the gang exist",
    "NotEnoughPodsOfTask": "not all pods of one of its tasks exist",
}


@dataclass(frozen=True, slots=True)
class Volcano:
    """Binds pods by PodGroups, and has queues of its own."""

    name: str = "volcano"
    scheduler: str = "volcano"
    together: bool = True
    resource: Resource = POD_GROUPS
    queues: Resource | None = GANG_QUEUES

    def create(self, gang: Gang) -> Manifest | None:
        """Return a PodGroup. Without a named queue the field stays unset: a namespace may have a default queue of its
        own."""
        spec = _size(gang)
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.priority_class:
            spec["priorityClassName"] = gang.priority_class
        return backend.manifest(self.resource, gang, spec)

    def resize(self, gang: Gang, group: GroupView) -> Mapping[str, Any] | None:
        """Return a patch of all sizes together: a group whose minimum and resources do not match would be let in too
        early or never."""
        return backend.spec_patch(_size(gang), group.spec)

    def trim(self, manifest: Manifest) -> GroupView:
        """Return the view of a PodGroup. Every phase but Pending is let in: Inqueue, Running, Unknown (partly bound),
        Completed."""
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

    def refusal(self, queue: str, manifest: Manifest | None) -> tuple[str, str] | None:
        """Return the refusal of a queue that does not exist or is not open."""
        remedy = "name another one in spec.schedulingPolicy.gangQueue"
        if manifest is None:
            return "GangQueueMissing", f"Volcano has no queue {queue}: create it, or {remedy}"
        state = (manifest.get("status") or {}).get("state") or "Open"  # Volcano has not processed a new queue yet
        if state == "Open":
            return None
        return "GangQueueClosed", f"Volcano's queue {queue} is {state}: open it, or {remedy}"

    def bind(self, gang: Gang, task_type: str) -> Binding:
        """Return the annotations, and the scheduler's name."""
        return Binding(
            annotations={**dict.fromkeys(GROUP_NAME, gang.name), TASK: task_type},
            spec={"schedulerName": self.scheduler},
        )


def _size(gang: Gang) -> dict[str, Any]:
    return {
        "minMember": gang.size,
        "minTaskMember": dict(gang.minimum),
        "minResources": {name: quantities.format_amount(name, amount) for name, amount in gang.resources.items()},
    }


def _message(status: Mapping[str, Any]) -> str:
    """Return what a Pending group waits for; Volcano's own message has numbers that change."""
    conditions = status.get("conditions") or ()
    against = (
        condition
        for condition in conditions
        if condition.get("type") == "Unschedulable" and condition.get("status") == "True"
    )
    reason = next((str(condition.get("reason") or "") for condition in against), "")
    why = WAITS_FOR.get(reason, reason)
    return "Volcano has not let the group in yet" + (f": {why}" if why else "")
