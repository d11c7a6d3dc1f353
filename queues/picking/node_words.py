"""The words about a job whose pods find no nodes.

One rule: the numbers come from the assignment that also decides whether the job goes.
"""

from collections.abc import Sequence

from crds.resources import quantities
from crds.resources.amounts import PODS
from queues.placement import assignment, domains, kept_nodes
from queues.placement.gangs import Gang, Members, NodeSet, Shape
from queues.placement.places import Places
from queues.values import Entry

MOST_NAMES = 8
"""The most kept nodes that are named."""


def gang_of(places: Places | None, entry: Entry) -> Gang | None:
    """Return the gang of a waiting job; None if it is not known, or if nodes do not matter."""
    return None if places is None else places.gang_of(str(entry.key), entry.kind, entry.demand)


def describe(places: Places | None, entry: Entry) -> str:
    """Return how many of a job's pods find a node, what is free of what they ask for, and which nodes are kept for the
    job."""
    gang = gang_of(places, entry)
    if places is None or gang is None:
        return ""
    within = -1 if places.kept_for == (str(entry.key), gang) else ~places.kept
    parts = [_domains(places, gang, within)] if gang.required else _nodes_found(places, gang, within)
    if places.kept_for == (str(entry.key), gang) and places.kept:
        names = kept_nodes.names_of(places)
        parts.append(f"kept for it: {', '.join(names[:MOST_NAMES])}{' and others' if len(names) > MOST_NAMES else ''}")
    return "; ".join(parts)


def never_held(gang: Gang | None) -> str:
    """Return the sentence about a job that the nodes could never hold."""
    if gang is not None and gang.required:
        return f"no {gang.required} could hold all pods of the job even if its nodes were empty"
    return "the nodes could not hold all pods of the job even if they were empty"


def held_nowhere(gang: Gang | None) -> str:
    """Return the sentence about a job that finds no nodes now."""
    if gang is not None and gang.required:
        return f"no {gang.required} has room for all pods of the job"
    return "the pods of the job find no nodes with room for all of them"


def shared(members: Sequence[Members], label: str, found: Sequence[tuple[int, str]], values: int) -> str:
    """Return how many of the pods that must share a domain find room in which one (`domains.count_placed`), of a number
    of domains."""
    pods, (name, amount) = sum(count for _, count in members), _main(members[0].shape)
    each = f" ({quantities.format_amount(name, amount)} {name} each)" if len(members) == 1 else ""
    rooms = [f"{value} {'has room ' if not at else ''}for {placed}" for at, (placed, value) in enumerate(found)]
    more = f" (the most of {values})" if values > len(rooms) else ""
    named = f"{', '.join(rooms)}{more}" if rooms else "no node has this label"
    return f"its {pods} {'pod' if pods == 1 else 'pods'}{each} must share one {label}; {named}"


def _domains(places: Places, gang: Gang, within: NodeSet) -> str:
    found = domains.count_placed(places.room, gang.required, gang.members, within)
    words = shared(gang.members, gang.required, found, len(places.room.domains(gang.required)))
    holds = found and found[0][0] == sum(count for _, count in gang.members)
    return f"{words}; a later stage of the job could not run there" if holds and gang.later else words


def _nodes_found(places: Places, gang: Gang, within: NodeSet) -> list[str]:
    """Return how many of a job's pods find a node, and what is free of what they ask for."""
    placed = assignment.count_placed(places.room, gang.members, within)
    wanted = sum(pods for _, pods in gang.members)
    scarce = _scarcest(places, gang.members, within)
    name, amount = _main(scarce)
    free = [room for node in _nodes(places, scarce, within) if (room := places.room.free(node).get(name, 0)) > 0]
    each = f"{quantities.format_amount(name, amount)} {name} each" if len(gang.members) == 1 else "all of them together"
    parts = [f"{placed} of its {wanted} pods ({each}) find a node"]
    if free:
        total, most = (quantities.format_amount(name, number) for number in (sum(free), max(free)))
        parts.append(f"{total} {name} free on {len(free)} nodes that its pods may use, at most {most} on one")
    else:
        parts.append(f"no {name} is free on the {len(_nodes(places, scarce, within))} nodes that its pods may use")
    return parts


def _scarcest(places: Places, members: tuple[Members, ...], within: NodeSet) -> Shape:
    """Return the shape of which the smallest part finds nodes."""
    return min(members, key=lambda one: places.room.total(one.shape, within) / one[1]).shape


def _main(shape: Shape) -> tuple[str, int]:
    """Return the resource to name, with the amount for one pod: a device, else CPUs, else any."""
    demand = dict(shape.demand)
    devices = sorted(name for name in demand if "/" in name)
    names = [*devices, "cpu", *(name for name in sorted(demand) if name != PODS), PODS]
    name = next(name for name in names if name in demand)
    return name, demand[name]


def _nodes(places: Places, shape: Shape, within: NodeSet) -> list[int]:
    allowed = places.room.allowed(shape.where) & within
    return [node for node in range(len(places.room.names)) if allowed >> node & 1]
