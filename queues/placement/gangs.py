"""What a gang asks of nodes: shapes of pods, how many of each, and where they may run.

One rule: numbers and names only. A place condition is a text whose meaning the owner of the nodes knows.
"""

from dataclasses import dataclass
from typing import NamedTuple

NodeSet = int
"""A set of nodes: bit i stands for the node with index i. A negative number is all nodes but some."""
EVERY: NodeSet = -1
"""The set of all nodes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Pods that are alike: what one of them asks for, and where it may run."""

    demand: tuple[tuple[str, int], ...]
    """The amounts, sorted by name, each above 0; `pods`: 1 included."""
    where: str = ""
    """The place condition, which the owner of the nodes turns into a set of nodes."""


class Members(NamedTuple):
    """The pods of one shape in a gang."""

    shape: Shape
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """The pods of a job that start together. Equal gangs are one object."""

    members: tuple[Members, ...]
    """The pods with the least number of workers."""
    further: Shape | None = None
    """The shape of one further worker; None: there are no further workers."""
    lasting: bool = True
    """Whether a pod that ends keeps its place for the next pod of its job: the job has one stage."""

    def with_further(self, units: int) -> tuple[Members, ...]:
        """Return the members with a number of further workers."""
        if not units or self.further is None:
            return self.members
        counts = dict(self.members)
        counts[self.further] = counts.get(self.further, 0) + units
        return tuple(Members(shape, count) for shape, count in counts.items())
