"""Which pods of a PodGroup are bound now.

One rule: pure, and a minimum is bound whole or not at all; what is beyond it, and what comes to it later, as it fits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedded.pod import LocalPod
from embedded.scheduler.decisions import Bind, Decision, Hold, Wait
from embedded.scheduler.node_capacity import GATED, UNSCHEDULABLE, Node, Room
from embedded.scheduler.podgroups import Gangs, PodGroup

NOT_OPEN, NOT_ENOUGH_RESOURCES = "QueueNotOpen", "NotEnoughResources"
NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK = "NotEnoughTasks", "NotEnoughPodsOfTask"


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods that name a PodGroup."""

    name: str
    """The PodGroup's."""
    group: PodGroup | None
    """None if there is no such PodGroup."""
    waiting: Sequence[LocalPod]
    """Those that are to be bound."""
    held: Sequence[LocalPod]
    """Those that have what they need: bound, neither failed nor about to go, or succeeded."""


def seat(gang: Gang, room: Room, gangs: Gangs) -> list[Decision]:
    """A decision for each of a gang's waiting pods, and one for the PodGroup if its minimum cannot be had now."""
    group = gang.group
    if group is None:
        missing = f"there is no PodGroup {gang.name} in the pod's namespace"
        return [_wait(pod, missing, passing=True) for pod in gang.waiting]
    hold = None if _enough(group, gang.held) else keeps_out(group, room.node, gangs) or _incomplete(group, gang)
    if hold is None:
        seated, refusals = _seated(group, gang, room)
        if _enough(group, (*gang.held, *seated)):
            return [*map(Bind, seated), *(Wait(pod, *refusal) for pod, refusal in refusals)]
        first = next((message for _, (_, message) in refusals), "")
        hold = Hold(group, NOT_ENOUGH_RESOURCES, f"the minimum of the group does not fit together: {first}")
    passing = hold.reason in (NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK)
    return [hold, *(_wait(pod, hold.message, passing=passing) for pod in gang.waiting)]


def keeps_out(group: PodGroup, node: Node, gangs: Gangs) -> Hold | None:
    """What keeps a PodGroup Pending.

    What other groups have, or were let in for, is not subtracted: letting a group in reserves nothing, so that none
    can keep another out, and what runs is decided by what fits when it is bound.
    """
    if not gangs.queues.get(group.queue, False):
        problem = "is not open" if group.queue in gangs.queues else "does not exist"
        return Hold(group, NOT_OPEN, f"the queue {group.queue} {problem}", kept_out=True)
    lacking = node.lacks(group.resources)
    if group.problem or lacking:
        message = group.problem or f"the whole node has less {', '.join(lacking)} than spec.minResources"
        return Hold(group, NOT_ENOUGH_RESOURCES, message, kept_out=True)
    return None


def _incomplete(group: PodGroup, gang: Gang) -> Hold | None:
    """Whether pods that the minimum needs do not even exist."""
    missing, tasks = _missing(group, (*gang.held, *gang.waiting))
    if missing:
        return Hold(group, NOT_ENOUGH_TASKS, f"not all of the group's {group.minimum} pods exist yet")
    if tasks:
        names = ", ".join(sorted(tasks))
        return Hold(group, NOT_ENOUGH_OF_TASK, f"not all of the group's pods of {names} exist yet")
    return None


def _missing(group: PodGroup, pods: Sequence[LocalPod]) -> tuple[int, Counter[str]]:
    """How many pods the minimum lacks beyond these, in all and of each task."""
    there = Counter(pod.task for pod in pods)
    return max(0, group.minimum - len(pods)), Counter(group.task_minimums) - there


def _enough(group: PodGroup, pods: Sequence[LocalPod]) -> bool:
    missing, tasks = _missing(group, pods)
    return not missing and not tasks


def _seated(group: PodGroup, gang: Gang, room: Room) -> tuple[list[LocalPod], list[tuple[LocalPod, tuple[str, str]]]]:
    """Pods that fit together, those that the tasks' minimums need before all others, and why the rest does not.

    Smallest first, the oldest of like ones: so most fit.
    """
    _, lacking = _missing(group, gang.held)
    chosen: list[LocalPod] = []
    others: list[LocalPod] = []
    for pod in sorted(gang.waiting, key=lambda pod: (_share(pod, room.node), pod.age)):
        if lacking[pod.task] > 0 and room.refusal([pod]) is None:
            lacking[pod.task] -= 1
            chosen.append(pod)
            room = room.with_pods([pod])
        else:
            others.append(pod)
    more, refusals = _fill(others, room)
    return chosen + more, refusals


def _fill(pods: Iterable[LocalPod], room: Room) -> tuple[list[LocalPod], list[tuple[LocalPod, tuple[str, str]]]]:
    """Those that fit, one after the other."""
    chosen: list[LocalPod] = []
    refusals: list[tuple[LocalPod, tuple[str, str]]] = []
    for pod in pods:
        refusal = room.refusal([pod])
        if refusal is None:
            chosen.append(pod)
            room = room.with_pods([pod])
        else:
            refusals.append((pod, refusal))
    return chosen, refusals


def _share(pod: LocalPod, node: Node) -> float:
    """The largest part of any of the node's resources that a pod asks for."""
    parts = (
        amount / node.allocatable[name] if node.allocatable.get(name) else math.inf
        for name, amount in pod.demand.items()
    )
    return max(parts, default=0.0)


def _wait(pod: LocalPod, message: str, *, passing: bool) -> Wait:
    return Wait(pod, *GATED) if pod.gated else Wait(pod, UNSCHEDULABLE, message, passing)
