"""The node's resources, the part of them that is used, and whether further pods fit.

One rule: pure. A refusal is a reason and a sentence without numbers that change often.
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
        """Return the resources of which the whole node has less than the demand."""
        return sorted(name for name, amount in demand.items() if amount > self.allocatable.get(name, 0))


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """The node, and the part of it that pods use."""

    node: Node
    used: Amounts = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()

    def with_pods(self, pods: Iterable[LocalPod]) -> "NodeCapacity":
        """Return the capacity with these pods on the node as well."""
        added = list(pods)
        used = reduce(add, (pod.demand for pod in added), self.used)
        return NodeCapacity(self.node, used, (*self.ports, *(port for pod in added for port in pod.ports)))

    def refusal(self, members: Sequence[LocalPod]) -> Refusal | None:
        """Return why these pods cannot be bound together now; None if the pods can be bound."""
        return self.mismatch(members) or self.shortage(members)

    def mismatch(self, members: Sequence[LocalPod]) -> Refusal | None:
        """Return why these pods could not be bound even to an empty node; None if they could."""
        if any(pod.is_gated for pod in members):
            return GATED
        for pod in members:
            problem = affinity.objection(pod.spec, self.node.name, self.node.labels) or pod.problem
            if problem:  # a requirement that the node does not meet, or that the scheduler cannot read
                return UNSCHEDULABLE, problem
        return None

    def shortage(self, members: Sequence[LocalPod]) -> Refusal | None:
        """Return which resources or ports the node lacks for these pods together; None if the node has all of these."""
        problem = self._missing_resources(members) or self._port_conflict(members)
        return (UNSCHEDULABLE, problem) if problem else None

    def _missing_resources(self, members: Sequence[LocalPod]) -> str:
        together = f" for the {len(members)} pods of the group together" if len(members) > 1 else ""
        demand = reduce(add, (pod.demand for pod in members), NOTHING)
        never = self.node.lacks(demand)
        if never:
            return f"the whole node has less {', '.join(never)} than requested{together}"
        total = add(self.used, demand)
        short = sorted(name for name in demand if total[name] > self.node.allocatable.get(name, 0))
        return f"insufficient {', '.join(short)}{together}" if short else ""

    def _port_conflict(self, members: Sequence[LocalPod]) -> str:
        ports = list(self.ports)
        for pod in members:
            for port in sorted(pod.ports):
                if any(port.conflicts(other) for other in ports):
                    return f"host port {port.port} is taken"
            ports += pod.ports
        return ""
