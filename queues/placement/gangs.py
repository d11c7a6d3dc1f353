"""What is placed on nodes: the pods of a job that start together, by their shapes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

NodeSet = int
"""A set of nodes: bit i stands for the node with index i."""

EVERY: NodeSet = -1
"""The set of all nodes, also of those that are added later."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Alike pods: what one of them asks for, and where it may run."""

    demand: tuple[tuple[str, int], ...]
    """The amounts that are above 0, by resource name and sorted by it, one of `pods` included."""
    where: str = ""
    """The place condition, as a text that the owner of a room turns into a set of nodes."""
    _hash: int = field(init=False, repr=False, compare=False)
    """The hash. Each pick asks for it several times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.demand, self.where)))

    def __hash__(self) -> int:
        return self._hash


Placed = tuple[int, Shape, int]
"""Alike pods on a node: the index of the node, the shape, and how many pods."""


class Members(NamedTuple):
    """A number of alike pods."""

    shape: Shape
    count: int  # type: ignore[assignment]  # nobody counts in members as in a tuple


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Gang:
    """The pods of a job that start together, and how the job may grow. Gangs are equal if they are the same object:
    their owner keeps one object for equal gangs."""

    members: tuple[Members, ...]
    """The pods that start together, with the least number of workers."""
    further: Shape | None = None
    """One further worker of an elastic job; None: the job does not grow."""
    lasting: bool = True
    """Whether pods that have ended keep their places, as in a job of one stage."""
    required: str = ""
    """The label of which all nodes of the gang have one value (`queues.placement.domains`); empty: none. A gang whose
    shapes name that value already has no such label."""
    preferred: str = ""
    """The label of which the nodes of the gang have as few values as can be; empty: none."""
    later: tuple[tuple[Members, ...], ...] = ()
    """The pods of each later stage, which has to find nodes with the same value, too. Empty without `required`."""
    alike: Members | None = field(init=False, repr=False)
    """All pods, if they are alike and need no domain, as those of most gangs; else None. Only their number counts."""

    def __post_init__(self) -> None:
        is_alike = len(self.members) == 1 and self.members[0].count > 0 and not (self.required or self.preferred)
        object.__setattr__(self, "alike", self.members[0] if is_alike else None)

    def with_further(self, units: int) -> tuple[Members, ...]:
        """Return the members with a number of further workers."""
        if self.further is None or not units:
            return self.members
        return merged((*self.members, Members(self.further, units)))

    def settled(self, settle: Callable[[Shape], Shape]) -> "Gang":
        """Return the gang once it has its domain; `settle` returns a shape that may run in this domain alone."""
        members = tuple(Members(settle(shape), count) for shape, count in self.members)
        further = settle(self.further) if self.further is not None else None
        return Gang(members, further, self.lasting, preferred=self.preferred)


def merged(members: tuple[Members, ...]) -> tuple[Members, ...]:
    """Return the members with each shape once, in the order of the first of each."""
    if len(members) == 1 and members[0].count:
        return members
    counts: dict[Shape, int] = {}
    for shape, count in members:
        counts[shape] = counts.get(shape, 0) + count
    return tuple(Members(shape, count) for shape, count in counts.items() if count)
