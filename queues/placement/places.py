"""The places of jobs on nodes: what the picker asks of nodes, beside the sums of amounts.

One rule: a job has places as long as it has a reservation, or pods on nodes. The places follow the pods: where a pod is
bound, its place is. A place without a pod keeps its room free for the pod that comes.

The problem: a pool of 16 GPUs on two nodes with 4 free on each has 8 free. By the sum, a job of one pod with 8 GPUs has
room; its pod finds none, and what the job holds is lost to a job of two pods with 4 GPUs each, which could run at once.
So a gang is picked only if there is an assignment of all its pods to nodes (`queues.placement.assignment`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crds.resources.amounts import Amounts
from queues.placement import assignment
from queues.placement.gangs import EVERY, Gang, Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom

Demand = tuple[tuple[str, int], ...]
PodsOnNodes = Counter[tuple[int, Demand]]
"""By node and by what one pod asks for, the number of pods."""


@dataclass(slots=True)
class JobPlaces:
    """The places of one job."""

    bound: PodsOnNodes = field(default_factory=Counter)
    """Pods that are on nodes."""
    waiting: PodsOnNodes = field(default_factory=Counter)
    """Places that are kept for pods that are on no node yet."""
    has_started: bool = False
    """Whether all pods with which the job starts were on nodes at once."""


class Places:
    """The places of all jobs. Only one thread may use the object; others use a copy."""

    def __init__(self, room: NodeRoom) -> None:
        """`room` belongs to the caller, who counts in it what is used by others than these jobs."""
        self.room = room
        self.jobs: dict[str, JobPlaces] = {}
        """By the key of the job, as a text."""
        self.kept: NodeSet = 0
        """The nodes that are kept for one waiting job."""

    def copy(self) -> "Places":
        """Return a copy to make forecasts with."""
        copied = Places(self.room.copy())
        copied.kept = self.kept
        return copied

    # What the picker asks

    def fits(self, gang: Gang | None, units: int = 0, *, on_kept: bool = False) -> bool:
        """Return whether a gang, with a number of further workers, finds nodes; with `on_kept`, kept ones included. A
        gang of which nothing is known does."""
        if gang is None:
            return True
        return assignment.fits(self.room, gang.with_further(units), EVERY if on_kept else ~self.kept)

    def take(self, key: str, gang: Gang | None, units: int = 0) -> None:
        """Take places for a gang. Places on kept nodes are taken only if there are no others."""
        if gang is None:
            return
        job, members = self.jobs.setdefault(key, JobPlaces()), gang.with_further(units)
        found = assignment.assign(self.room, members, ~self.kept) or assignment.assign(self.room, members)
        for node, shape, count in found or ():
            self._change(job.waiting, node, shape.demand, count)

    def release(self, key: str) -> None:
        """Drop the places of a job for which there is no reservation any more, but for those of its pods on nodes."""
        job = self.jobs.get(key)
        if job is not None:
            for (node, demand), count in [*job.waiting.items()]:
                self._change(job.waiting, node, demand, -count)
            if not job.bound:
                del self.jobs[key]

    # What the nodes show

    def follow(self, key: str, gang: Gang | None, units: int, bound: PodsOnNodes, *, reserved: bool) -> None:
        """Note on which nodes the pods of a job are now. With a reservation, the pods of the gang that are on no node
        keep a place: where they were, if the job's pods come again, or where they were placed."""
        job = self.jobs.get(key) or JobPlaces()
        gained, lost = bound - job.bound, job.bound - bound
        for (node, demand), count in gained.items():
            self._change(job.bound, node, demand, count)
        for (node, demand), count in lost.items():
            self._change(job.bound, node, demand, -count)
        members = gang.with_further(units) if gang is not None and reserved else ()
        wanted = sum(count for _, count in members)
        present = bound.total()
        job.has_started |= wanted > 0 and present >= wanted
        is_over = gang is not None and job.has_started and not gang.lasting
        missing = 0 if is_over else max(0, wanted - present)
        self._give_up(job, gained, job.waiting.total() - missing)
        if missing > job.waiting.total():
            self._return(job, lost, missing - job.waiting.total())
            self._find(job, members, missing - job.waiting.total())
        if job.bound or job.waiting or reserved:
            self.jobs[key] = job
        else:
            self.jobs.pop(key, None)

    def _give_up(self, job: JobPlaces, gained: PodsOnNodes, surplus: int) -> None:
        """Give up places whose pods are on nodes now: those where such a pod is, then those of equal pods, then
        others."""
        if surplus <= 0:
            return
        demands = {demand for _, demand in gained}
        exact = [place for place in gained if place in job.waiting]
        alike = [place for place in job.waiting if place[1] in demands and place not in gained]
        for place in [*exact, *alike, *job.waiting]:
            count = min(surplus, job.waiting[place], gained[place] if place in exact else surplus)
            if count > 0:
                self._change(job.waiting, *place, -count)
                surplus -= count

    def _return(self, job: JobPlaces, lost: PodsOnNodes, missing: int) -> None:
        """Keep places where pods were that are gone."""
        for (node, demand), count in lost.items():
            kept = min(missing, count) if self.room.is_open(node) else 0
            if kept > 0:
                self._change(job.waiting, node, demand, kept)
                missing -= kept

    def _find(self, job: JobPlaces, members: Iterable[Members], missing: int) -> None:
        """Take places for pods that have none, as far as there are nodes for them."""
        for shape, count in members:
            placed = sum(number for (_, demand), number in (*job.bound.items(), *job.waiting.items()) if demand == shape.demand)
            lacking = min(missing, count - placed)
            number = min(lacking, self.room.total(shape)) if lacking > 0 else 0
            for node, _, pods in (assignment.assign(self.room, (Members(shape, number),)) or ()) if number > 0 else ():
                self._change(job.waiting, node, shape.demand, pods)
                missing -= pods

    def vacate(self, node: int) -> list[str]:
        """Drop the places without pods on a node that takes no pods any more, and return the jobs that had them."""
        jobs = [key for key, job in self.jobs.items() if any(place[0] == node for place in job.waiting)]
        for key in jobs:
            waiting = self.jobs[key].waiting
            for place in [place for place in waiting if place[0] == node]:
                self._change(waiting, *place, -waiting[place])
        return jobs

    def _change(self, places: PodsOnNodes, node: int, demand: Demand, count: int) -> None:
        self.room.use(node, demand, count)
        places[node, demand] += count
        if places[node, demand] <= 0:
            del places[node, demand]

    # Words

    def idle_on_kept(self, demand: Amounts) -> Amounts:
        """Return what is free of a demand on the kept nodes; empty if that is nothing."""
        idle: dict[str, int] = {}
        for node in nodes_of(self.kept):
            free = self.room.free(node)
            for name in demand:
                idle[name] = idle.get(name, 0) + max(0, free.get(name, 0))
        limited = {name: min(amount, idle.get(name, 0)) for name, amount in demand.items()}
        return {name: amount for name, amount in limited.items() if amount > 0}


def nodes_of(nodes: NodeSet) -> Iterable[int]:
    """Yield the indexes of the nodes in a finite set."""
    while nodes > 0:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
