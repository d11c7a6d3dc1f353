"""What the node has, what is taken of it, and whether a pod may have of the rest.

One rule: pure; a refusal is a reason and a sentence without numbers that move.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from crds.resources.amounts import NOTHING, Amounts, add
from crds.torchjob.demand import HostPort
from embedded import affinity
from embedded.pod import LocalPod

Refusal = tuple[str, str]
"""A reason and a message."""

UNSCHEDULABLE = "Unschedulable"
GATED: Refusal = ("SchedulingGated", "a scheduling gate is closed")


@dataclass(frozen=True, slots=True)
class Node:
    """The one node of the embedded cluster."""

    name: str
    allocatable: Amounts
    labels: Mapping[str, str]

    def lacks(self, demand: Amounts) -> list[str]:
        """The resources of which the whole node has less than asked."""
        return sorted(name for name, amount in demand.items() if amount > self.allocatable.get(name, 0))


@dataclass(frozen=True, slots=True)
class Room:
    """What is taken of the node."""

    node: Node
    used: Amounts = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()

    def with_pods(self, pods: Iterable[LocalPod]) -> "Room":
        """What is taken with these pods as well."""
        return reduce(Room._with, pods, self)

    def refusal(self, members: Sequence[LocalPod]) -> Refusal | None:
        """Why these pods cannot be bound together now."""
        return self.objection(members) or self.shortage(members)

    def objection(self, members: Sequence[LocalPod]) -> Refusal | None:
        """Why these pods cannot be bound here, whatever is free."""
        if any(pod.gated for pod in members):
            return GATED
        problem = next(filter(None, map(self._mismatch, members)), "")
        return (UNSCHEDULABLE, problem) if problem else None

    def shortage(self, members: Sequence[LocalPod]) -> Refusal | None:
        """What the node lacks for these pods together."""
        problem = self._lack(members)
        return (UNSCHEDULABLE, problem) if problem else None

    def _with(self, pod: LocalPod) -> "Room":
        return Room(self.node, add(self.used, pod.demand), (*self.ports, *pod.ports))

    def _mismatch(self, pod: LocalPod) -> str:
        """A wish of the pod that this node does not meet, or that is not known here."""
        return affinity.objection(pod.spec, self.node.name, self.node.labels) or pod.problem

    def _lack(self, members: Sequence[LocalPod]) -> str:
        together = f" for the {len(members)} pods of the group together" if len(members) > 1 else ""
        demand = reduce(add, (pod.demand for pod in members), NOTHING)
        never = self.node.lacks(demand)
        if never:
            return f"the whole node has less {', '.join(never)} than asked{together}"
        total = add(self.used, demand)
        short = sorted(name for name in demand if total[name] > self.node.allocatable.get(name, 0))
        if short:
            return f"insufficient {', '.join(short)}{together}"
        return self._port_conflict(members)

    def _port_conflict(self, members: Sequence[LocalPod]) -> str:
        taken = list(self.ports)
        for pod in members:
            for port in sorted(pod.ports):
                if any(port.conflicts(other) for other in taken):
                    return f"host port {port.port} is taken"
            taken += pod.ports
        return ""
