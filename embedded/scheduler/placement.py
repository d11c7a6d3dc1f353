"""Decides which waiting pods are bound now, and why the other pods are not.

One rule: pure, and a group is bound as a whole or not at all. A part of a group would occupy resources and wait for a
part that may never fit. For a PodGroup the rule applies to its minimum: pods beyond it, and pods that are created
later, are bound as they fit. Every decision not to bind has a reason.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedded.pod import FAILED, INVALID_SPEC_ERRORS, SUCCEEDED, LocalPod
from embedded.scheduler.node_capacity import GATED, UNSCHEDULABLE, Node, NodeCapacity, Refusal
from embedded.scheduler.podgroups import NO_GANGS, Gangs, PodGroup


@dataclass(frozen=True, slots=True)
class Bind:
    """A pod that is bound to the node now."""

    pod: LocalPod


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod that cannot be bound now, with a reason and a sentence. The sentence has no numbers that change often."""

    pod: LocalPod
    reason: str
    message: str
    passing: bool = False
    """Whether the pod waits for objects that may be about to be created: its PodGroup, or other pods of its group."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A PodGroup whose minimum cannot be bound now, with a reason and a sentence without numbers that change often."""

    group: PodGroup
    reason: str
    message: str
    pending: bool = False
    """Whether the cause is neither the free capacity nor missing pods, so that the group's phase is Pending."""


Decision = Bind | Wait | Hold


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


def _place_group(members: PodGroupMembers, capacity: NodeCapacity, gangs: Gangs) -> list[Decision]:
    """Return a decision for each waiting pod, and one for the PodGroup if its minimum cannot be bound now."""
    group = members.group
    if group is None:
        message = f"there is no PodGroup {members.name} in the pod's namespace"
        return [_wait(pod, message, passing=True) for pod in members.waiting]
    hold = None
    if not _is_enough(group, members.satisfied):
        hold = _pending_hold(group, capacity.node, gangs) or _incomplete_hold(group, members)
    if hold is None:
        fitting, refusals = _fit(group, members, capacity)
        if _is_enough(group, (*members.satisfied, *fitting)):
            return [*map(Bind, fitting), *(Wait(pod, *refusal) for pod, refusal in refusals)]
        first = next((message for _, (_, message) in refusals), "")
        hold = Hold(group, NOT_ENOUGH_RESOURCES, f"the minimum of the group does not fit together: {first}")
    passing = hold.reason in (NOT_ENOUGH_TASKS, NOT_ENOUGH_OF_TASK)
    return [hold, *(_wait(pod, hold.message, passing=passing) for pod in members.waiting)]


def _pending_hold(group: PodGroup, node: Node, gangs: Gangs) -> Hold | None:
    """Return the reason that keeps a PodGroup in the phase Pending, if there is a reason.

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
    """Return how many pods the minimum needs beyond the given pods, in total and of each task."""
    counts = Counter(pod.task for pod in pods)
    return max(0, group.minimum - len(pods)), Counter(group.task_minimums) - counts


def _is_enough(group: PodGroup, pods: Sequence[LocalPod]) -> bool:
    missing, tasks = _missing(group, pods)
    return not missing and not tasks


def _fit(
    group: PodGroup, members: PodGroupMembers, capacity: NodeCapacity
) -> tuple[list[LocalPod], list[tuple[LocalPod, Refusal]]]:
    """Return the pods that fit together, and the other pods with the reason for each.

    Pods that the minimums of tasks need come first. Small pods come before large ones, so that the largest number of
    pods fits; among pods of equal size the oldest comes first.
    """
    _, lacking = _missing(group, members.satisfied)
    fitting: list[LocalPod] = []
    others: list[LocalPod] = []
    refusals: list[tuple[LocalPod, Refusal]] = []
    for pod in sorted(members.waiting, key=lambda pod: (_share(pod, capacity.node), pod.age)):
        if lacking[pod.task] > 0 and capacity.refusal([pod]) is None:
            lacking[pod.task] -= 1
            fitting.append(pod)
            capacity = capacity.with_pods([pod])
        else:
            others.append(pod)
    for pod in others:
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


SCHEDULERS = ("default-scheduler", "volcano")
"""The names of the schedulers that this one replaces. It ignores the pods of others."""


@dataclass(frozen=True, slots=True)
class _Team:
    """Pods that are bound together: a whole group, or one pod of a group that has bound pods."""

    waiting: Sequence[LocalPod]
    begun: bool
    """Whether the group has bound pods."""


def place(pods: Iterable[LocalPod], node: Node, gangs: Gangs = NO_GANGS) -> list[Decision]:
    """Return a decision for every pod that waits for this scheduler, and for every PodGroup that is held back.

    `pods` are all pods of the cluster. Groups that have bound pods come first, since a replacement must not lose its
    place to a new group. The other groups follow by their oldest pod. A group that does not fit or is not complete
    does not delay the groups behind it: the queues decided the order before the pods were created.
    """
    pods = list(pods)
    capacity = NodeCapacity(node).with_pods(pod for pod in pods if pod.node == node.name and not pod.is_finished)
    decisions: list[Decision] = []
    units: list[_Team | PodGroupMembers] = [*_teams(pods), *_pod_groups(pods, gangs)]
    for unit in sorted(units, key=_order):
        unit_decisions = _place_unit(unit, capacity, gangs)
        capacity = capacity.with_pods(decision.pod for decision in unit_decisions if isinstance(decision, Bind))
        decisions += unit_decisions
    return decisions


def _place_unit(unit: _Team | PodGroupMembers, capacity: NodeCapacity, gangs: Gangs) -> list[Decision]:
    """Return the decisions about one group. A group whose spec cannot be read waits, and delays no other group."""
    try:
        if isinstance(unit, PodGroupMembers):
            return _place_group(unit, capacity, gangs)
        return _place_team(unit, capacity)
    except INVALID_SPEC_ERRORS as error:
        return [Wait(pod, UNSCHEDULABLE, f"what the pod asks for cannot be read: {error}") for pod in unit.waiting]


def _order(unit: _Team | PodGroupMembers) -> tuple[bool, tuple[str, str, str]]:
    begun = bool(unit.satisfied) if isinstance(unit, PodGroupMembers) else unit.begun
    return not begun, min((pod.age for pod in unit.waiting), default=("", "", ""))


def _waits(pod: LocalPod) -> bool:
    return not (pod.node or pod.is_finished or pod.is_deleting) and pod.scheduler in SCHEDULERS


def _teams(pods: Sequence[LocalPod]) -> list[_Team]:
    """Return the waiting pods that name no PodGroup: whole groups, and single pods of groups that have bound pods."""
    begun = {pod.group for pod in pods if pod.node}
    waiting: dict[str, list[LocalPod]] = defaultdict(list)
    for pod in pods:
        if not pod.pod_group and _waits(pod):
            waiting[pod.group].append(pod)
    whole = [_Team(members, begun=False) for name, members in waiting.items() if name not in begun]
    single = [_Team([pod], begun=True) for name in waiting.keys() & begun for pod in waiting[name]]
    return whole + single


def _pod_groups(pods: Sequence[LocalPod], gangs: Gangs) -> list[PodGroupMembers]:
    """Return the pods of each PodGroup, also of a PodGroup that has no pods."""
    waiting: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
    satisfied: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
    for pod in pods:
        if pod.pod_group:
            key = (pod.namespace, pod.pod_group)
            if pod.phase == SUCCEEDED or (pod.node and pod.phase != FAILED and not pod.is_deleting):
                satisfied[key].append(pod)
            elif _waits(pod):
                waiting[key].append(pod)
    return [
        PodGroupMembers(key[1], gangs.groups.get(key), waiting.get(key, ()), satisfied.get(key, ()))
        for key in waiting.keys() | gangs.groups.keys()
    ]


def _place_team(team: _Team, capacity: NodeCapacity) -> list[Decision]:
    """Bind all pods of a team, or none."""
    members = sorted(team.waiting, key=lambda pod: pod.age)
    size = members[0].group_size
    incomplete = not team.begun and len(members) < size
    refusal = capacity.mismatch(members)
    if refusal is None and incomplete:
        message = f"the group has not all of its {size} pods yet"
        return [Wait(pod, UNSCHEDULABLE, message, passing=True) for pod in members]
    refusal = refusal or capacity.shortage(members)
    return [Bind(pod) if refusal is None else Wait(pod, *refusal) for pod in members]
