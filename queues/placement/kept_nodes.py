"""Which nodes are kept for a job that was overtaken: those that can hold its gang soonest.

One rule: pure. Nodes are chosen for a moment: the first one at which the gang finds nodes, if running jobs end when
they are expected to.

The problem: room that is kept as an amount may lie in fragments on all nodes, and then no job uses it, the large job
least of all. So nodes are kept, and jobs of others go to the other nodes. A job of two pods with 8 GPUs each, on four
nodes with 8 GPUs each:

    node   its job uses   and is expected to end at
    n1     4              60
    n2     4              100
    n3     8              80
    n4     2              1000

The gang finds nodes at 80, on n1 and n3. These two are kept; the 4 free GPUs of n2 and the 6 of n4 are not. If the gang
requires one domain, the kept nodes are of one domain.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crds.resources.amounts import Amounts
from queues.placement import domains, freed_room
from queues.placement.assignment import Assignment
from queues.placement.gangs import EVERY, Gang, NodeSet, Placed, merged
from queues.placement.node_room import bits, set_of
from queues.placement.places import ExpectedEnd, Places
from queues.placement.trial import fill

SOONER = 0.8
"""Other nodes are kept instead if they hold the gang in this part of the time that the kept ones still take."""


class KeptNodes(NamedTuple):
    """The nodes that can hold a gang soonest."""

    at: float
    """When they can, as far as it is known, in seconds since 1970."""
    nodes: NodeSet


def keep(places: Places, key: str, gang: Gang | None, now: float, patience: float) -> None:
    """Keep nodes for the gang of a waiting job, and only for it; None: for no job.

    The nodes are chosen when the job gets the room, once per `patience` in seconds after that, and when one of them
    takes no pods any more. For a gang that no nodes can hold, none are kept. Nodes that other jobs leave for this job
    are kept before any others.
    """
    if gang is None:
        places.kept, places.kept_for, places.others_wait = 0, None, False
        return
    is_same = places.kept_for == (key, gang)
    are_open = not places.kept & ~places.usable
    _hold_back(places, now, patience, is_same=is_same)
    if promised := _promised(places, key, now, patience):
        places.kept, places.kept_for, places.kept_since = promised, (key, gang), now
        return
    if is_same and are_open and 0 <= now - places.kept_since < patience:
        return
    before = places.kept if is_same and are_open else 0
    chosen = choose(places, gang, places.ends(now), now, before)
    places.kept = 0 if chosen is None else chosen.nodes
    places.kept_for, places.kept_since = (key, gang), now


def _promised(places: Places, key: str, now: float, seconds: float) -> NodeSet:
    """Return the nodes that were promised to a job within the last seconds; none if one of them takes no pods."""
    promised = places.promised
    if promised is None or promised.key != key or not 0 <= now - promised.at < seconds:
        return 0
    nodes = set_of({places.room.index(name) for name in promised.nodes})
    return nodes if not nodes & ~places.usable else 0


def _hold_back(places: Places, now: float, patience: float, *, is_same: bool) -> None:
    """Hold others back for one patience if the scheduler binds their pods to kept nodes, and then let them go for one.

    Otherwise the job might never begin. But its nodes may be busy for any time, whoever binds pods there: so others
    wait for half of the time at most.
    """
    if not is_same:
        places.others_wait, places.turn_until = False, 0.0
    elif now >= places.turn_until and (places.others_wait or places.was_broken):
        places.others_wait, places.turn_until = not places.others_wait, now + patience
    places.was_broken = False


def choose(
    places: Places, gang: Gang, ends: Sequence[ExpectedEnd], now: float, before: NodeSet = 0
) -> KeptNodes | None:
    """Return the nodes that hold a gang soonest; None if no nodes ever do.

    `ends` are in the order of time. The nodes `before`, which were kept for the gang until now, stay unless others hold
    the gang clearly sooner.
    """
    best = _soonest(places, gang, ends, now, EVERY)
    if best is None or not before or best.nodes == before:
        return best
    present = _soonest(places, gang, ends, now, before)
    if present is None or best.at - now < SOONER * (present.at - now):
        return best
    return present._replace(nodes=before)


def _soonest(places: Places, gang: Gang, ends: Sequence[ExpectedEnd], now: float, within: NodeSet) -> KeptNodes | None:
    """Return the first moment at which a gang finds nodes, and these nodes."""
    wanted, least = merged(gang.members), 0
    for each in wanted:
        moment = freed_room.first_moment(places, each, ends, within)
        if moment is None:
            return None
        least = max(least, moment.ended)
        if len(wanted) == 1 and not (gang.required or gang.preferred):
            return _kept(least, fill(sorted(moment.takes.items()), *each), ends, now)
    found = _halve(places, gang, ends, within, least)
    return None if found is None else _kept(*found, ends, now)


def _kept(ended: int, assigned: Iterable[Placed], ends: Sequence[ExpectedEnd], now: float) -> KeptNodes:
    return KeptNodes(max(now, ends[ended - 1].at) if ended else now, set_of({node for node, _, _ in assigned}))


def _halve(
    places: Places, gang: Gang, ends: Sequence[ExpectedEnd], within: NodeSet, least: int
) -> tuple[int, Assignment] | None:
    """Return after how many ends, `least` or more, a gang finds nodes of one domain, by halving the list of ends."""
    low, middle, high, found = least, least, len(ends), None
    ended = 0
    try:
        while low <= high:
            ended = _end(places, ends, ended, middle)
            domain = places.domain(gang, gang.members, within)
            if domain is not None:
                assigned = domains.assign(places.room, gang, gang.members, domain.nodes & within)
                found, high = (middle, assigned), middle - 1
            else:
                low = middle + 1
            middle = (low + high) // 2
    finally:
        _end(places, ends, ended, 0)
    return found


def _end(places: Places, ends: Sequence[ExpectedEnd], ended: int, wanted: int) -> int:
    """Free or take again the room of jobs, so that the first `wanted` of them have ended. Return that number."""
    low, high, times = (ended, wanted, -1) if ended < wanted else (wanted, ended, 1)
    for _, key in ends[low:high]:
        job = places.jobs.get(key)
        pods = (*job.bound.items(), *job.waiting.items()) if job is not None else ()
        for (node, demand), count in pods:
            places.room.use(node, demand, times * count)
    return wanted


def names_of(places: Places) -> list[str]:
    """Return the names of the kept nodes."""
    return sorted(places.room.names[node] for node in bits(places.kept))


def free_on(places: Places, names: Iterable[str]) -> dict[str, int]:
    """Return what is free of some resources on the kept nodes."""
    return _free(places, places.kept, names)


def idle(places: Places, most: Amounts) -> dict[str, int]:
    """Return what is idle for the job for which nodes are kept: what is free on these nodes, up to what the job asks
    for; on all nodes, if others may not go before it."""
    if places.others_wait:
        return _free(places, places.usable & ((1 << len(places.room.names)) - 1), most)
    return {name: min(most[name], free) for name, free in _free(places, places.kept, most).items()}


def _free(places: Places, nodes: NodeSet, names: Iterable[str]) -> dict[str, int]:
    found = dict.fromkeys(names, 0)
    for node in bits(nodes):
        free = places.room.free(node)
        for name in found:
            found[name] += max(0, free.get(name, 0))
    return found
