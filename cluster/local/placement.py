"""Which waiting pods are bound now, and why the others are not.

One rule: pure, and a group is bound whole or not at all: half a gang would hold room and wait for a half that never
fits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import groupby
from typing import Any

from cluster.local.localpod import LocalPod
from crds.amounts import NOTHING, Amounts, add
from crds.demand import HostPort

SCHEDULERS = ("default-scheduler", "volcano")
"""The schedulers this one stands in for; pods of others are left alone."""
UNSCHEDULABLE = "Unschedulable"


@dataclass(frozen=True, slots=True)
class Node:
    """The one node of the embedded cluster."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str]
    pods: int
    """How many pods it runs at once at most."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A pod that is bound to the node now."""

    pod: LocalPod


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod that cannot be bound now, and why, in a sentence without numbers that move."""

    pod: LocalPod
    reason: str
    message: str


Decision = Bind | Wait


@dataclass(frozen=True, slots=True)
class _Room:
    """What is taken of the node."""

    used: Amounts = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()
    pods: int = 0

    def with_pod(self, pod: LocalPod) -> "_Room":
        return _Room(add(self.used, pod.demand), (*self.ports, *pod.ports), self.pods + 1)


def place(pods: Iterable[LocalPod], node: Node) -> list[Decision]:
    """A decision for every pod that waits for this scheduler, given all pods there are.

    Members of groups that have begun come first (a replacement must not lose its room to newcomers), then groups by
    their oldest pod. A group that does not fit, or is not complete, does not hold up the ones behind it: whose turn it
    is was decided before the pods were made.
    """
    everyone = list(pods)
    begun = {pod.group for pod in everyone if pod.node}
    room = reduce(_Room.with_pod, (pod for pod in everyone if pod.node == node.name and not pod.finished), _Room())
    decisions: list[Decision] = []
    for members in _units([pod for pod in everyone if _waits(pod)], begun):
        refusal = _refusal(members, members[0].group in begun, room, node)
        if refusal is None:
            room = reduce(_Room.with_pod, members, room)
            decisions += [Bind(pod) for pod in members]
        else:
            decisions += [Wait(pod, *refusal) for pod in members]
    return decisions


def _waits(pod: LocalPod) -> bool:
    return not (pod.node or pod.finished or pod.deleting) and pod.scheduler in SCHEDULERS


def _units(waiting: Sequence[LocalPod], begun: set[str]) -> list[list[LocalPod]]:
    """What is bound together, in the order of its turn: whole groups, single members of groups that have begun."""

    def group(pod: LocalPod) -> str:
        return pod.group

    def age(pod: LocalPod) -> tuple[str, str, str]:
        return (pod.created, pod.namespace, pod.name)

    units: list[list[LocalPod]] = []
    for name, members in groupby(sorted(waiting, key=group), key=group):
        together = sorted(members, key=age)
        units += [[pod] for pod in together] if name in begun else [together]
    return sorted(units, key=lambda unit: (unit[0].group not in begun, age(unit[0])))


def _refusal(members: list[LocalPod], begun: bool, room: _Room, node: Node) -> tuple[str, str] | None:
    """Why these pods cannot be bound together now: a reason and a message."""
    if any(pod.spec.get("schedulingGates") for pod in members):
        return "SchedulingGated", "a scheduling gate is closed"
    constraint = next(filter(None, (_constraint(pod, node) for pod in members)), "")
    if constraint:
        return UNSCHEDULABLE, constraint
    size = members[0].group_size
    if not begun and len(members) < size:
        return UNSCHEDULABLE, f"the group has not all of its {size} pods yet"
    problem = _shortage(members, room, node)
    return (UNSCHEDULABLE, problem) if problem else None


def _shortage(members: list[LocalPod], room: _Room, node: Node) -> str:
    """What the node lacks for these pods; empty if they fit."""
    together = f" for the {len(members)} pods of the group together" if len(members) > 1 else ""
    demand = reduce(add, (pod.demand for pod in members), NOTHING)
    never = sorted(name for name, amount in demand.items() if amount > node.allocatable.get(name, 0))
    if never:
        return f"the whole node has less {', '.join(never)} than asked{together}"
    total = add(room.used, demand)
    short = sorted(name for name in demand if total[name] > node.allocatable.get(name, 0))
    if short:
        return f"insufficient {', '.join(short)}{together}"
    if room.pods + len(members) > node.pods:
        return f"too many pods{together}"
    return _port_conflict(members, room)


def _port_conflict(members: list[LocalPod], room: _Room) -> str:
    taken = list(room.ports)
    for pod in members:
        for port in sorted(pod.ports):
            if any(port.conflicts(other) for other in taken):
                return f"host port {port.port} is taken"
        taken += pod.ports
    return ""


def _constraint(pod: LocalPod, node: Node) -> str:
    """A wish of the pod that this node does not meet, or that is not known here."""
    for name, value in (pod.spec.get("nodeSelector") or {}).items():
        if node.labels.get(name) != value:
            return f"the node does not have the label {name}={value} that spec.nodeSelector asks for"
    affinity: Mapping[str, Any] = pod.spec.get("affinity") or {}
    for kind, rules in affinity.items():
        if not isinstance(rules, dict | None):
            return f"spec.affinity.{kind} must be a map"
        if (rules or {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
            return f"spec.affinity.{kind} requires something, which this scheduler does not know; prefer it instead"
    return pod.problem
