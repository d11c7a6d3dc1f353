"""Decides which waiting pods are bound now, and why the others are not.

One rule: pure, and a group is bound as a whole or not at all. A part of a group would occupy resources and wait for a
part that may never fit. For a PodGroup the rule applies to its minimum.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedded.pod import FAILED, INVALID_SPEC_ERRORS, SUCCEEDED, LocalPod
from embedded.scheduler import gang_placement
from embedded.scheduler.decisions import Bind, Decision, Wait
from embedded.scheduler.gang_placement import PodGroupMembers
from embedded.scheduler.node_capacity import UNSCHEDULABLE, Node, NodeCapacity
from embedded.scheduler.podgroups import NO_GANGS, Gangs

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


def _place_unit(unit: _Team | PodGroupMembers, capacity: NodeCapacity, gangs: Gangs) -> Sequence[Decision]:
    """Return the decisions about one group. A group whose spec cannot be read waits, and delays no other group."""
    try:
        if isinstance(unit, PodGroupMembers):
            return gang_placement.place(unit, capacity, gangs)
        return _place_team(unit, capacity)
    except INVALID_SPEC_ERRORS as error:
        return [Wait(pod, UNSCHEDULABLE, f"what the pod asks for cannot be read: {error}") for pod in unit.waiting]


def _order(unit: _Team | PodGroupMembers) -> tuple[bool, tuple[str, str, str]]:
    begun = bool(unit.satisfied) if isinstance(unit, PodGroupMembers) else unit.begun
    return not begun, min((pod.age for pod in unit.waiting), default=("", "", ""))


def _waits(pod: LocalPod) -> bool:
    return not (pod.node or pod.is_finished or pod.is_deleting) and pod.scheduler in SCHEDULERS


def _is_satisfied(pod: LocalPod) -> bool:
    """Return whether a pod is bound and goes on, or has succeeded."""
    return pod.phase == SUCCEEDED or bool(pod.node and pod.phase != FAILED and not pod.is_deleting)


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
            if _is_satisfied(pod):
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
