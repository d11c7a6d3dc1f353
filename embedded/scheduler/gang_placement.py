"""Decides which pods of a PodGroup are bound now.

One rule: pure, and the minimum of a PodGroup is bound as a whole or not at all. Pods beyond the minimum, and pods that
are created later, are bound as they fit.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedded.pod import LocalPod
from embedded.scheduler.decisions import Bind, Decision, Hold, Wait
from embedded.scheduler.node_capacity import GATED, UNSCHEDULABLE, Node, NodeCapacity, Refusal
from embedded.scheduler.podgroups import Gangs, PodGroup

NOT_OPEN, NOT_ENOUGH_RESOURCES = "QueueNotOpen", "NotEnoughResources"
NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK = "NotEnoughTasks", "NotEnoughPodsOfTask"


@dataclass(frozen=True, slots=True)
class PodGroupMembers:
    """The pods that name a PodGroup."""

    name: str
    """The name of the PodGroup."""
    group: PodGroup | None
    """The PodGroup; None if it does not exist."""
    waiting: Sequence[LocalPod]
    """The pods that are to be bound."""
    satisfied: Sequence[LocalPod]
    """The pods that have succeeded, or are bound and neither failed nor about to be deleted."""


def place(members: PodGroupMembers, capacity: NodeCapacity, gangs: Gangs) -> list[Decision]:
    """Return a decision for each waiting pod, and one for the PodGroup if its minimum cannot be bound now."""
    group = members.group
    if group is None:
        message = f"there is no PodGroup {members.name} in the pod's namespace"
        return [_wait(pod, message, passing=True) for pod in members.waiting]
    hold = None
    if not _is_enough(group, members.satisfied):
        hold = pending_hold(group, capacity.node, gangs) or _incomplete_hold(group, members)
    if hold is None:
        fitting, refusals = _fit(group, members, capacity)
        if _is_enough(group, (*members.satisfied, *fitting)):
            return [*map(Bind, fitting), *(Wait(pod, *refusal) for pod, refusal in refusals)]
        first = next((message for _, (_, message) in refusals), "")
        hold = Hold(group, NOT_ENOUGH_RESOURCES, f"the minimum of the group does not fit together: {first}")
    passing = hold.reason in (NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK)
    return [hold, *(_wait(pod, hold.message, passing=passing) for pod in members.waiting)]


def pending_hold(group: PodGroup, node: Node, gangs: Gangs) -> Hold | None:
    """Return what keeps a PodGroup in the phase Pending, if anything.

    The resources of other groups are not subtracted. A group that leaves Pending reserves nothing, so it cannot keep
    another group Pending; the capacity at the time of binding decides which group runs.
    """
    if not gangs.queues.get(group.queue, False):
        problem = "is not open" if group.queue in gangs.queues else "does not exist"
        return Hold(group, NOT_OPEN, f"the queue {group.queue} {problem}", pending=True)
    lacking = node.lacks(group.resources)
    if group.problem or lacking:
        message = group.problem or f"the whole node has less {', '.join(lacking)} than spec.minResources"
        return Hold(group, NOT_ENOUGH_RESOURCES, message, pending=True)
    return None


def _incomplete_hold(group: PodGroup, members: PodGroupMembers) -> Hold | None:
    """Return a hold if pods that the minimum needs do not exist yet."""
    missing, tasks = _missing(group, (*members.satisfied, *members.waiting))
    if missing:
        return Hold(group, NOT_ENOUGH_TASKS, f"not all of the group's {group.minimum} pods exist yet")
    if tasks:
        names = ", ".join(sorted(tasks))
        return Hold(group, NOT_ENOUGH_OF_TASK, f"not all of the group's pods of {names} exist yet")
    return None


def _missing(group: PodGroup, pods: Sequence[LocalPod]) -> tuple[int, Counter[str]]:
    """Return how many pods the minimum needs beyond these, in all and of each task."""
    counts = Counter(pod.task for pod in pods)
    return max(0, group.minimum - len(pods)), Counter(group.task_minimums) - counts


def _is_enough(group: PodGroup, pods: Sequence[LocalPod]) -> bool:
    missing, tasks = _missing(group, pods)
    return not missing and not tasks


def _fit(
    group: PodGroup, members: PodGroupMembers, capacity: NodeCapacity
) -> tuple[list[LocalPod], list[tuple[LocalPod, Refusal]]]:
    """Return the pods that fit together, and the others with the reason for each.

    Pods that the minimums of tasks need come first. Small pods come before large ones, so that as many as possible fit;
    among equal ones the oldest comes first.
    """
    _, lacking = _missing(group, members.satisfied)
    fitting: list[LocalPod] = []
    others: list[LocalPod] = []
    for pod in sorted(members.waiting, key=lambda pod: (_share(pod, capacity.node), pod.age)):
        if lacking[pod.task] > 0 and capacity.refusal([pod]) is None:
            lacking[pod.task] -= 1
            fitting.append(pod)
            capacity = capacity.with_pods([pod])
        else:
            others.append(pod)
    more, refusals = _fit_in_order(others, capacity)
    return fitting + more, refusals


def _fit_in_order(
    pods: Iterable[LocalPod], capacity: NodeCapacity
) -> tuple[list[LocalPod], list[tuple[LocalPod, Refusal]]]:
    """Return the pods that fit, one after the other, and the others with the reason for each."""
    fitting: list[LocalPod] = []
    refusals: list[tuple[LocalPod, Refusal]] = []
    for pod in pods:
        refusal = capacity.refusal([pod])
        if refusal is None:
            fitting.append(pod)
            capacity = capacity.with_pods([pod])
        else:
            refusals.append((pod, refusal))
    return fitting, refusals


def _share(pod: LocalPod, node: Node) -> float:
    """Return the largest part of any of the node's resources that a pod requests."""
    parts = (
        amount / node.allocatable[name] if node.allocatable.get(name) else math.inf
        for name, amount in pod.demand.items()
    )
    return max(parts, default=0.0)


def _wait(pod: LocalPod, message: str, *, passing: bool) -> Wait:
    return Wait(pod, *GATED) if pod.is_gated else Wait(pod, UNSCHEDULABLE, message, passing)
