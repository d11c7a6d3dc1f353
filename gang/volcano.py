"""Volcano (scheduling.volcano.sh/v1beta1): what the scheduler needs in groups and queues, and what it reports.

One rule: torchq writes only its own fields of a PodGroup's spec, by merge patch. The status has no subresource, and
Volcano writes it about once a second.

torchq relies on this behaviour of Volcano:

- A pod belongs to the PodGroup of its namespace that its annotation `scheduling.k8s.io/group-name` names. Without the
  annotation Volcano creates a group of one pod.
- minTaskMember counts only where minMember is at least its sum.
- A group is Pending until its queue is Open and has room for minResources. No pod of the group is bound before. Pods
  that were created earlier only wait; a cluster autoscaler, however, sees no demand until there are pods.
- If minMember exceeds the number of bound pods, a running group becomes Pending again. So minMember is the least that
  the job needs, for the group's whole life.
- Its actions preempt and reclaim, which an admin enables, take every pod without `volcano.sh/preemptable: "false"`,
  also below minMember. These actions read the annotation of the pod, then its label; gangpreempt and gangreclaim also
  read those of the group.
- A completed group keeps its minResources until it is deleted.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crds import timestamps
from crds.api_resources import GANG_QUEUES, POD_GROUPS, Resource
from crds.resources import quantities
from crds.resources.amounts import Amounts
from gang import backend
from gang.backend import Backend
from gang.values import Binding, Gang, GangQueue, GroupView
from kube.api import Manifest

GROUP_NAME = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""The annotations of a pod: Volcano's scheduler reads the first, its GPU sharing the second."""
TASK = "volcano.sh/task-spec"
QUEUE_NAME = "scheduling.volcano.sh/queue-name"
"""The annotation of a pod without a group that names a queue."""
DEFAULT_QUEUE = "default"
PREEMPTABLE = "volcano.sh/preemptable"
"""The annotation of pods and groups that says whether their resources may be given to others."""
SIZE = ("minMember", "minTaskMember", "minResources")
NOT_LET_IN = "Volcano has not let the group in yet"
ORIGIN = "rigin reason is"
"""What stands before the cause in the message of a condition, which begins with counts."""
WAITS_FOR = {
    "NotEnoughResources": "it has no room for the gang",
    "NotEnoughTasks": "not all pods of the gang exist",
    "NotEnoughPodsOfTask": "not all pods of one of its tasks exist",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Volcano(Backend):
    """Binds pods by PodGroups, and has queues of its own."""

    name: str = "volcano"
    scheduler: str = "volcano"
    check: str = "check that Volcano's scheduler runs (schedulerName volcano)"
    is_fixed: bool = False
    resource: Resource = POD_GROUPS
    queues: Resource | None = GANG_QUEUES
    preemptable: str = ""
    """Whether the pods may be preempted, for the annotation; empty: the templates say it."""

    def size(self, gang: Gang, /) -> dict[str, Any]:
        """Return all sizes together: a group whose minimum and resources do not match would be let in too early or
        never."""
        return {
            "minMember": gang.size,
            "minTaskMember": dict(gang.minimum),
            "minResources": {name: quantities.format_amount(name, amount) for name, amount in gang.resources.items()},
        }

    def create(self, gang: Gang, /) -> Manifest | None:
        """Return a PodGroup. Without a named queue the field stays unset: a namespace may have a default queue of its
        own."""
        spec = self.size(gang)
        if gang.queue:
            spec["queue"] = gang.queue
        if gang.priority_class:
            spec["priorityClassName"] = gang.priority_class
        made = backend.manifest(self.resource, gang, spec)
        annotated = {"annotations": self._notes} if self._notes else {}
        return {**made, "metadata": {**made["metadata"], **annotated}}

    @property
    def _notes(self) -> dict[str, str]:
        return {PREEMPTABLE: self.preemptable} if self.preemptable else {}

    def trim(self, manifest: Manifest, /) -> GroupView:
        """Return the view of a PodGroup. Every phase but Pending is let in: Inqueue, Running, Unknown (partly bound),
        Completed."""
        status = manifest.get("status") or {}
        pending, cause = status.get("phase") in (None, "", "Pending"), _cause(status)
        queue = (manifest.get("spec") or {}).get("queue") or DEFAULT_QUEUE
        return backend.view(
            self.resource,
            manifest,
            SIZE,
            phase="Pending" if pending else "Ready",
            message=_message(cause) if pending else "",
            explained=bool(cause),
            seen=bool(status.get("phase") or status.get("conditions")),
            queue=queue,
        )

    def refusal(self, queue: str, manifest: Manifest | None, /) -> tuple[str, str] | None:
        """Return the refusal of a queue that does not exist or is not open."""
        remedy = "name another one in spec.schedulingPolicy.gangQueue"
        if manifest is None:
            return "GangQueueMissing", f"Volcano has no queue {queue}: create it, or {remedy}"
        state = (manifest.get("status") or {}).get("state") or "Open"  # Volcano has not processed a new queue yet
        if state == "Open":
            return None
        return "GangQueueClosed", f"Volcano's queue {queue} is {state}: open it, or {remedy}"

    def bind(self, gang: Gang, task_type: str, /) -> Binding:
        """Return the annotations, and the scheduler's name."""
        return Binding(
            annotations={**dict.fromkeys(GROUP_NAME, gang.name), TASK: task_type, **self._notes},
            spec={"schedulerName": self.scheduler},
        )

    def bind_alone(self, queue: str, /) -> Binding:
        """Return the scheduler's name, and the queue of the group that Volcano creates for a pod without one."""
        named = {QUEUE_NAME: queue} if queue else {}
        return Binding(annotations={**named, **self._notes}, spec={"schedulerName": self.scheduler})


def read_queue(manifest: Manifest) -> GangQueue:
    """Return the view of a queue. An amount that is no quantity limits nothing."""
    name, spec, status = manifest["metadata"]["name"], manifest.get("spec") or {}, manifest.get("status") or {}
    refusal = Volcano().refusal(name, manifest)
    return GangQueue(
        name=name,
        parent=str(spec.get("parent") or ""),
        refusal=refusal[1] if refusal is not None else "",
        capability=_amounts(spec.get("capability")),
        guarantee=_amounts((spec.get("guarantee") or {}).get("resource")),
        allocated=_amounts(status.get("allocated")),
    )


def _amounts(listed: Any) -> Amounts:
    """Return a resource list in canonical names and units, without values that are not quantities."""
    found = {}
    for key, quantity in listed.items() if isinstance(listed, dict) else ():
        name = quantities.canonical(key)
        with contextlib.suppress(ValueError):
            found[name] = quantities.parse_capped(name, quantity)
    return found


def _message(cause: str) -> str:
    return NOT_LET_IN + (f": {cause}" if cause else "")


def _cause(status: Mapping[str, Any]) -> str:
    """Return the reason that keeps a group from its nodes, by its conditions.

    Volcano never takes a condition back: Volcano adds the opposite condition, so the newer condition holds.
    """
    found = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    against, bound = found.get("Unschedulable") or {}, found.get("Scheduled") or {}
    if against.get("status") != "True" or _time(bound) > _time(against):
        return ""
    reason = str(against.get("reason") or "")
    origin = str(against.get("message") or "").partition(ORIGIN)[2]
    return ": ".join(filter(None, (WAITS_FOR.get(reason, reason), origin.strip(" :."))))


def _time(condition: Mapping[str, Any]) -> float:
    return timestamps.seconds_or_none(condition.get("lastTransitionTime")) or 0.0
