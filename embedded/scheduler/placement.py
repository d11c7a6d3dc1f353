"""Which waiting pods are bound now, and why the others are not.

One rule: pure, and a group is bound whole or not at all: half a gang would hold room and wait for a half that never
fits. Of a PodGroup this is said of its minimum.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from embedded.pod import FAILED, NONSENSE, SUCCEEDED, LocalPod
from embedded.scheduler import gang_placement
from embedded.scheduler.decisions import Bind, Decision, Wait
from embedded.scheduler.gang_placement import Gang
from embedded.scheduler.node_capacity import UNSCHEDULABLE, Node, Room
from embedded.scheduler.podgroups import NO_GANGS, Gangs

SCHEDULERS = ("default-scheduler", "volcano")
"""The schedulers this one stands in for; pods of others are left alone."""


@dataclass(frozen=True, slots=True)
class _Team:
    """Pods that are bound together: a whole group, or one member of a group that has begun."""

    waiting: Sequence[LocalPod]
    begun: bool


def place(pods: Iterable[LocalPod], node: Node, gangs: Gangs = NO_GANGS) -> list[Decision]:
    """A decision for every pod that waits for this scheduler, given all pods there are, and for every PodGroup held up.

    Members of groups that have begun come first (a replacement must not lose its room to newcomers), then groups by
    their oldest pod. A group that does not fit, or is not complete, does not hold up the ones behind it: whose turn it
    is was decided before the pods were made.
    """
    everyone = list(pods)
    room = Room(node).with_pods(pod for pod in everyone if pod.node == node.name and not pod.finished)
    decisions: list[Decision] = []
    units: list[_Team | Gang] = [*_teams(everyone), *_gangs(everyone, gangs)]
    for unit in sorted(units, key=_turn):
        found = _seated(unit, room, gangs)
        room = room.with_pods(each.pod for each in found if isinstance(each, Bind))
        decisions += found
    return decisions


def _seated(unit: _Team | Gang, room: Room, gangs: Gangs) -> Sequence[Decision]:
    """The decisions about one group; one that makes no sense waits, and nobody else waits for it."""
    try:
        return gang_placement.seat(unit, room, gangs) if isinstance(unit, Gang) else _together(unit, room)
    except NONSENSE as error:
        return [Wait(pod, UNSCHEDULABLE, f"what the pod asks for cannot be read: {error}") for pod in unit.waiting]


def _turn(unit: _Team | Gang) -> tuple[bool, tuple[str, str, str]]:
    begun = bool(unit.held) if isinstance(unit, Gang) else unit.begun
    return not begun, min((pod.age for pod in unit.waiting), default=("", "", ""))


def _waits(pod: LocalPod) -> bool:
    return not (pod.node or pod.finished or pod.deleting) and pod.scheduler in SCHEDULERS


def _holds(pod: LocalPod) -> bool:
    """Whether a pod has what it needs of the cluster, and keeps it."""
    return pod.phase == SUCCEEDED or bool(pod.node and pod.phase != FAILED and not pod.deleting)


def _teams(everyone: Sequence[LocalPod]) -> list[_Team]:
    """The pods that name no PodGroup: whole groups, single members of groups that have begun."""
    begun = {pod.group for pod in everyone if pod.node}
    waiting: dict[str, list[LocalPod]] = defaultdict(list)
    for pod in everyone:
        if not pod.pod_group and _waits(pod):
            waiting[pod.group].append(pod)
    whole = [_Team(members, begun=False) for name, members in waiting.items() if name not in begun]
    single = [_Team([pod], begun=True) for name in waiting.keys() & begun for pod in waiting[name]]
    return whole + single


def _gangs(everyone: Sequence[LocalPod], gangs: Gangs) -> list[Gang]:
    """The pods of PodGroups; and PodGroups that have none."""
    waiting: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
    held: dict[tuple[str, str], list[LocalPod]] = defaultdict(list)
    for pod in everyone:
        if pod.pod_group:
            key = (pod.namespace, pod.pod_group)
            if _holds(pod):
                held[key].append(pod)
            elif _waits(pod):
                waiting[key].append(pod)
    return [
        Gang(key[1], gangs.groups.get(key), waiting.get(key, ()), held.get(key, ()))
        for key in waiting.keys() | gangs.groups.keys()
    ]


def _together(team: _Team, room: Room) -> list[Decision]:
    """All of a team, or none."""
    members = sorted(team.waiting, key=lambda pod: pod.age)
    size = members[0].group_size
    incomplete = not team.begun and len(members) < size
    refusal = room.objection(members)
    if refusal is None and incomplete:
        message = f"the group has not all of its {size} pods yet"
        return [Wait(pod, UNSCHEDULABLE, message, passing=True) for pod in members]
    refusal = refusal or room.shortage(members)
    return [Bind(pod) if refusal is None else Wait(pod, *refusal) for pod in members]
