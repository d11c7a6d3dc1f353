"""Decides in which domain a gang runs. A domain is all nodes with one value of a label, such as one rack.

    required    one domain holds all pods of the gang: of those that do, the fullest. Else the gang waits
    preferred   as few domains as can be, the last one as full as can be. A preference never makes a gang wait

The fullest domain is the one with the least room beyond the gang, so that whole domains stay free for the gangs that
need them. Alike pods are decided exactly, for both. For different pods, the search in each domain is that of
`queues.placement.assignment`, and the fewest domains are found within a number of tries.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from queues.placement import assignment
from queues.placement.assignment import Assignment
from queues.placement.gangs import EVERY, Gang, Members, NodeSet, merged
from queues.placement.gradient import Gradient
from queues.placement.node_room import NodeRoom, bits

NAMED = 3
"""The most domains that are named to people."""
_SETS = 512
"""The most sets of domains that are looked at for different pods."""
_TRIES = 32
"""The most sets of domains that are searched, of those that have the amounts."""


class Domain(NamedTuple):
    """The domain of a gang."""

    value: str
    """The value of the label; empty if the gang requires no domain."""
    nodes: NodeSet


ANYWHERE = Domain("", EVERY)


def choose(
    room: NodeRoom, empty: NodeRoom, gang: Gang, members: tuple[Members, ...], within: NodeSet = EVERY
) -> Domain | None:
    """Return the domain in which nodes of a set hold all of the members, which belong to a gang; None if none does.

    `empty` is the room without pods: it has to hold the later stages of the gang in the same domain.
    """
    if not gang.required:
        return ANYWHERE if assignment.fits(room, members, within) else None
    question = gang.required, gang.later, members, within
    return room.answer(question, lambda: _choose(room, empty, gang, merged(members), within))


def assign(
    room: NodeRoom,
    gang: Gang,
    members: tuple[Members, ...],
    within: NodeSet,
    own: NodeSet = 0,
    gradient: Gradient | None = None,
) -> Assignment:
    """Return nodes of a set for all of the members (`assignment.place`); none if none were found. `within` is in the
    gang's domain.

    A gang with a preference gets them in few domains, if it can in those of the nodes that it has already (`own`).
    """
    chosen = _fewest(room, gang.preferred, merged(members), within, own) if gang.preferred else None
    return assignment.place(room, gradient, members, within if chosen is None else chosen) or ()


def possible(
    room: NodeRoom, empty: NodeRoom, gang: Gang, members: tuple[Members, ...], within: NodeSet
) -> list[NodeSet]:
    """Return the nodes of the domains that could hold a gang if they were empty, those with most room first. For a gang
    that requires no domain, these are all nodes of the set together."""
    if not gang.required:
        return [within]
    wanted = merged(members)
    found = [
        within & room.domains(gang.required).get(value, 0)
        for value, nodes in empty.domains(gang.required).items()
        if all(assignment.fits(empty, stage, nodes) for stage in (members, *gang.later))
    ]
    return sorted(found, key=lambda nodes: -_room_for(room, wanted, nodes))


def count_placed(room: NodeRoom, label: str, members: tuple[Members, ...], within: NodeSet) -> list[tuple[int, str]]:
    """Return how many of the members find a node in the domains of a label that have most room, with their values, the
    most first. There may be a thousand domains, and only NAMED are searched."""
    wanted = merged(members)
    ranked = sorted(
        ((_room_for(room, wanted, within & nodes), value, nodes) for value, nodes in room.domains(label).items()),
        key=lambda each: (-each[0], each[1]),
    )
    counts = ((assignment.count_placed(room, members, within & nodes), value) for _, value, nodes in ranked[:NAMED])
    return sorted(counts, key=lambda found: (-found[0], found[1]))


def _choose(
    room: NodeRoom, empty: NodeRoom, gang: Gang, members: tuple[Members, ...], within: NodeSet
) -> Domain | None:
    later = empty.domains(gang.required)
    for _, value, nodes in _candidates(room, gang.required, members, within):
        holds_later = all(assignment.fits(empty, stage, later.get(value, 0)) for stage in gang.later)
        if holds_later and assignment.fits(room, members, nodes):
            return Domain(value, nodes)
    return None


def _candidates(
    room: NodeRoom, label: str, members: tuple[Members, ...], within: NodeSet
) -> list[tuple[float, str, NodeSet]]:
    """Return the domains that have the amounts for all members, the fullest first: their room as a multiple of what the
    members need, their values, and their nodes."""
    if _room_for(room, members, within) < 1:
        return []
    found = [
        (_room_for(room, members, within & nodes), value, within & nodes)
        for value, nodes in room.domains(label).items()
    ]
    return sorted(each for each in found if each[0] >= 1 and _have_amounts(room, members, each[2]))


def _room_for(room: NodeRoom, members: tuple[Members, ...], within: NodeSet) -> float:
    """Return how many times the members alone find nodes in a set, by the kind of pods that does so least."""
    return min((room.total(shape, within) / count for shape, count in members), default=1.0)


def _have_amounts(room: NodeRoom, members: tuple[Members, ...], within: NodeSet) -> bool:
    """Return whether the nodes of a set have the amounts that different pods ask for together: the search for nodes
    that have too little takes long, and is in vain."""
    if len(members) == 1:
        return True
    wanted: dict[str, int] = {}
    allowed = 0
    for shape, count in members:
        allowed |= room.allowed(shape.where)
        for name, amount in shape.demand:
            wanted[name] = wanted.get(name, 0) + amount * count
    for node in bits(within & allowed):
        free = room.free(node)
        wanted = {name: left for name, amount in wanted.items() if (left := amount - max(0, free.get(name, 0))) > 0}
        if not wanted:
            return True
    return not wanted


def _fewest(room: NodeRoom, label: str, members: tuple[Members, ...], within: NodeSet, own: NodeSet) -> NodeSet | None:
    """Return the nodes of the fewest domains that hold the members; None if the nodes with the label do not, or if none
    were found within the tries."""
    domains = [inside for nodes in room.domains(label).values() if (inside := within & nodes)]
    present = _union(nodes & within for nodes in room.domains(label).values() if nodes & own)
    if present and assignment.fits(room, members, present):
        return present
    ranked = sorted(domains, key=lambda nodes: _room_for(room, members, nodes))
    if not ranked or _room_for(room, members, _union(ranked)) < 1:
        return None
    return _fill(room, members, ranked) if len(members) == 1 else _search(room, members, ranked)


def _fill(room: NodeRoom, members: tuple[Members, ...], ranked: Sequence[NodeSet]) -> NodeSet:
    """Return the domains for alike pods: the largest ones, and at last the fullest one that holds the rest."""
    shape, left = members[0]
    totals, largest = [room.total(shape, nodes) for nodes in ranked], len(ranked) - 1
    chosen: NodeSet = 0
    while totals[largest] < left:
        chosen, left, largest = chosen | ranked[largest], left - totals[largest], largest - 1
    return chosen | ranked[bisect_left(totals, left, 0, largest)] if left > 0 else chosen


def _search(room: NodeRoom, members: tuple[Members, ...], ranked: Sequence[NodeSet]) -> NodeSet | None:
    """Return the domains for different pods: of each number of domains some sets are tried, then the largest ones."""
    sets = (_union(chosen) for number in range(1, len(ranked)) for chosen in combinations(ranked, number))
    amounts = (
        nodes
        for nodes in islice(sets, _SETS)
        if _room_for(room, members, nodes) >= 1 and _have_amounts(room, members, nodes)
    )
    tried = next((nodes for nodes in islice(amounts, _TRIES) if assignment.fits(room, members, nodes)), None)
    if tried is not None:
        return tried
    large = [*_unions(ranked[::-1])]
    first = bisect_left(large, True, key=lambda nodes: assignment.fits(room, members, nodes))
    return large[first] if first < len(large) else None


def _unions(domains: Sequence[NodeSet]) -> Iterator[NodeSet]:
    """Yield the nodes of the first domain, of the first two, and so on."""
    nodes = 0
    for domain in domains:
        nodes |= domain
        yield nodes


def _union(domains: "Sequence[NodeSet] | Iterator[NodeSet]") -> NodeSet:
    nodes = 0
    for domain in domains:
        nodes |= domain
    return nodes
