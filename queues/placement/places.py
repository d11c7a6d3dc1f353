"""The places of jobs on nodes: what the picker asks of nodes, beside the sums of amounts.

One rule: a job has places as long as it has a reservation, or pods on nodes. The places follow the pods: where a pod is
bound, its place is. A place without a pod keeps room free for the pod that comes.

The problem: a pool of 16 GPUs on two nodes with 4 free on each has 8 free. By the sum, a job of one pod with 8 GPUs has
room; its pod finds none, and what the job holds is lost to a job of two pods with 4 GPUs each, which could run at once.
So a gang is picked only if there is an assignment of all its pods to nodes (`queues.placement.assignment`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crds.resources.amounts import Amounts
from queues.placement import assignment, domains, pod_nodes
from queues.placement.assignment import Assignment
from queues.placement.gangs import EVERY, Gang, Members, NodeSet, Shape, merged
from queues.placement.gradient import Gradient
from queues.placement.node_room import NodeRoom, set_of
from queues.placement.typical_pods import TypicalPods

Demand = tuple[tuple[str, int], ...]
PodsOnNodes = Counter[tuple[int, Demand]]
"""By node and by what one pod asks for, the number of pods."""
NO_PODS: PodsOnNodes = Counter()
"""The pods of a job that has none on nodes. Nobody changes it."""


GangOf = Callable[[str, str, Amounts], Gang | None]
"""Returns the gang of a waiting job, given its key as a text, the kind of its entry, and its demand; None if it is not
known."""
Settle = Callable[[Shape, str], Shape]
"""Returns a shape that may run in one domain alone (`queues.placement.pod_nodes.domain_of`)."""


class WorkerPod(NamedTuple):
    """A pod of a worker that its job may lose."""

    name: str
    node: str
    """The name of the node that it is bound to."""
    demand: Demand


WorkersOf = Callable[[str], Sequence[WorkerPod]]
"""Returns the workers on nodes that an elastic job may lose, given its key as a text: those first that are on their way
out, then in the order in which the job loses them by itself."""


class PromisedNodes(NamedTuple):
    """The nodes from which other jobs lose workers for a waiting job."""

    key: str
    """The key of the waiting job, as a text."""
    nodes: tuple[str, ...]
    """The names of all nodes on which its pods find room then."""
    at: float
    """When they were promised, in seconds since 1970."""


class ExpectedEnd(NamedTuple):
    """When a job is expected to have ended."""

    at: float
    """In seconds since 1970."""
    key: str


@dataclass(slots=True)
class JobPlaces:
    """The places of one job."""

    reserved: bool = False
    """Whether the job has a reservation: pods of it that are on no node keep a place."""
    members: tuple[Members, ...] = ()
    """The pods that the job starts with, and its further workers."""
    lasting: bool = True
    """Whether a pod that ends keeps its place for the next pod (`Gang.lasting`)."""
    bound: PodsOnNodes = field(default_factory=lambda: NO_PODS)
    """Pods that are on nodes."""
    waiting: dict[tuple[int, Demand], int] = field(default_factory=dict)
    """Places that are kept for pods that are on no node yet."""
    has_started: bool = False
    """Whether all members were on nodes at once."""
    is_growing: bool = False
    """Whether it was given further members, which the caller of `Places.follow` may not know yet."""

    def places(self) -> int:
        """Return the number of places without pods."""
        return sum(self.waiting.values())

    def missing(self) -> int:
        """Return how many members are on no node, and keep a place."""
        wanted = sum(count for _, count in self.members) if self.reserved else 0
        present = self.bound.total()
        self.has_started |= 0 < wanted <= present
        return 0 if self.has_started and not self.lasting else max(0, wanted - present)


class Places:
    """The places of all jobs. Only one thread may use the object; others use a copy."""

    def __init__(
        self,
        room: NodeRoom,
        empty: NodeRoom,
        gang_of: GangOf,
        ends: Callable[[float], Sequence[ExpectedEnd]] = lambda _: (),
        workers_of: WorkersOf = lambda _: (),
        settle: Settle = lambda shape, _: shape,
    ) -> None:
        """`room` and `empty` belong to the caller, who counts in `room` what is used by others than these jobs. `empty`
        has all nodes, also those that take no pods now, without anything that uses them.

        `ends` returns, at a time, when jobs are expected to have ended, in the order of time."""
        self.room = room
        self.empty = empty
        self.gang_of = gang_of
        self.ends = ends
        self.workers_of = workers_of
        self.settle = settle
        self.jobs: dict[str, JobPlaces] = {}  # by the key of the job, as a text
        self.lacking: set[str] = set()
        """The jobs that have fewer places than pods that keep one. They are to be followed once room is free."""
        self.unbound: set[str] = set()  # the jobs that have places without pods
        self.usable: NodeSet = EVERY  # the nodes that take new pods
        self.kept: NodeSet = 0
        """The nodes that are kept for one waiting job (`queues.placement.kept_nodes`)."""
        self.kept_for: tuple[str, Gang] | None = None
        """The job for which they are kept, and its gang; None: for no job."""
        self.kept_since = 0.0  # when they were chosen, in seconds since 1970
        self.promised: PromisedNodes | None = None
        """What the newest plan of resizes frees for the job that has, or is about to get, the kept nodes."""
        self.was_broken = False
        """Whether, of late, the scheduler has bound a pod of another job to a kept node, though the pod had a place
        elsewhere."""
        self.others_wait = False
        """Whether only pods may go, before the job for which nodes are kept, that can run on none of these."""
        self.turn_until = 0.0  # until when others wait; if they do not, until when they may go in any case
        self.names_nodes = False  # whether `take` returns the nodes
        self.gradient: Gradient | None = None
        self.is_outdated = False
        """Whether it is not known which of the picked jobs have a reservation."""

    def copy(self) -> "Places":
        """Return a copy to make forecasts with. It knows no ends of jobs, so that it keeps the same nodes."""
        rooms = self.room.copy(), self.empty.copy()
        copied = Places(*rooms, self.gang_of, workers_of=self.workers_of, settle=self.settle)
        copied.set_typical(self.gradient.typical if self.gradient is not None else None)
        copied.usable = self.usable
        copied.kept, copied.kept_for, copied.kept_since = self.kept, self.kept_for, self.kept_since
        copied.others_wait, copied.turn_until, copied.promised = self.others_wait, self.turn_until, self.promised
        return copied

    # What the picker asks

    def fits(self, gang: Gang | None, units: int = 0, *, on_kept: bool = False) -> bool:
        """Return whether a gang, with a number of further workers, finds nodes; with `on_kept`, kept ones included. A
        gang of which nothing is known does."""
        if gang is None:
            return True
        if gang.alike is not None and not (units or self.kept):
            shape, count = gang.alike
            return self.room.total(shape) >= count
        members = gang.with_further(units)
        if self.others_wait and not on_kept and any(self.room.allowed(one.where) & self.kept for one, _ in members):
            return False
        return self.domain(gang, members, EVERY if on_kept else ~self.kept) is not None

    def domain(self, gang: Gang, members: tuple[Members, ...], within: NodeSet = EVERY) -> domains.Domain | None:
        """Return the domain in which nodes of a set hold members of a gang; None if none does."""
        return domains.choose(self.room, self.empty, gang, members, within)

    def could_hold(self, gang: Gang | None) -> bool:
        """Return whether the nodes could hold a gang if they were empty, and all took pods."""
        return gang is None or domains.choose(self.empty, self.empty, gang, gang.members) is not None

    def take(self, key: str, gang: Gang | None, units: int = 0) -> str:
        """Take places for a gang, or for further members of it. Places on kept nodes are taken only if there are no
        others. Return the gang's domain, and the nodes if `names_nodes`, as a text (`queues.placement.pod_nodes`)."""
        known = self.jobs.get(key)
        if known is None and gang is not None and gang.alike is not None and not (units or self.kept or self.gradient):
            node = self.room.place_in_row(*gang.alike)
            if node is not None:
                return _note_row(self, key, gang, node)
        job = self.jobs[key] = JobPlaces() if known is None else known
        job.reserved = True
        if gang is None:
            return ""
        wanted, domain, nodes, own = gang.with_further(units), "", EVERY, 0
        if gang.required:
            chosen = self.domain(gang, wanted, ~self.kept) or self.domain(gang, wanted) or domains.ANYWHERE
            domain, nodes = pod_nodes.domain_of(gang.required, chosen.value), chosen.nodes
        if gang.preferred:
            own = set_of(node for node, _ in (*job.bound, *job.waiting))
        others = self.choose(wanted, nodes & ~self.kept, gang, own)
        found = self.choose(wanted, nodes, gang, own) if self.kept and not others else others
        settled = {one: self.settle(one, domain) for one, _ in wanted} if domain else {}
        members = tuple(Members(settled[one], count) for one, count in wanted) if settled else wanted
        job.is_growing = bool(job.members)
        job.members, job.lasting = merged(job.members + members), gang.lasting
        for node, shape, count in found or ():
            self._change(job.waiting, node, shape.demand, count)
        if known is None and found:
            self.unbound.add(key)  # each pick comes here
        else:
            self._note_lack(key, job)
        named = [(node, settled.get(one, one), pods) for node, one, pods in found or () if self.names_nodes]
        return pod_nodes.write(named, [shape for shape, _ in job.members], self.room.names, domain)

    def choose(
        self, members: tuple[Members, ...], within: NodeSet = EVERY, gang: Gang | None = None, own: NodeSet = 0
    ) -> Assignment | None:
        """Return nodes of a set for pods that come; None if none were found. The pods of a gang with a preference get
        few domains, if they can those of the nodes that the gang has already (`own`)."""
        if gang is not None and gang.preferred:
            return domains.assign(self.room, gang, members, within, own, self.gradient) or None
        return assignment.place(self.room, self.gradient, members, within)

    def set_typical(self, typical: TypicalPods | None) -> None:
        """Choose nodes from now on so that few fragments are left for these pods; None: the fullest nodes."""
        if self.gradient is None or self.gradient.typical != typical:
            self.gradient = Gradient(self.room, typical) if typical is not None else None

    def release(self, key: str) -> None:
        """Drop the places of a job for which there is no reservation any more, but for those of its pods on nodes."""
        job = self.jobs.get(key)
        if job is not None:
            job.reserved, job.members, job.is_growing = False, (), False
            self._give_up(job, NO_PODS, job.places())
            self._note_lack(key, job)
            self._forget_if_empty(key, job)

    # What the nodes show

    def follow(self, key: str, bound: PodsOnNodes, gang: Gang | None, members: tuple[Members, ...] | None) -> None:
        """Note on which nodes the pods of a job are now, and its members; None: they are those that were picked.

        Members that are on no node keep a place: where they were, if the job's pods come again, or where they were
        placed."""
        job = self.jobs.setdefault(key, JobPlaces())
        if members is not None and gang is not None:
            job.members, job.lasting = members, gang.lasting
        gained, lost = bound - job.bound, job.bound - bound
        for place, count in gained.items():
            self.was_broken |= _breaks_kept(self, key, job, place[0])
            self.room.use(*place, count)
        for place, count in lost.items():
            self.room.use(*place, -count)
        job.bound = bound
        missing = job.missing()
        self._give_up(job, gained, job.places() - missing)
        if missing > job.places():
            self._return(job, lost, missing - job.places())
            self._find(job, missing - job.places())
        self._note_lack(key, job)
        self._forget_if_empty(key, job)

    def vacate(self, nodes: NodeSet) -> list[str]:
        """Drop the places without pods on nodes that take no pods any more, and return the jobs that had them."""
        found = []
        for key in self.unbound:
            job = self.jobs[key]
            for place in [place for place in job.waiting if nodes >> place[0] & 1]:
                self._change(job.waiting, *place, -job.waiting[place])
                found.append(key)
        return list(dict.fromkeys(found))

    def _give_up(self, job: JobPlaces, gained: PodsOnNodes, surplus: int) -> None:
        """Give up places whose pods are on nodes now: those where such a pod is, then those of equal pods, then
        others."""
        if surplus <= 0:
            return
        demands = {demand for _, demand in gained}
        limits = [(place, count) for place, count in gained.items() if place in job.waiting]
        limits += [item for item in job.waiting.items() if item[0][1] in demands and item[0] not in gained]
        limits += job.waiting.items()
        for place, most in limits:
            count = min(surplus, most, job.waiting.get(place, 0))
            if count > 0:
                self._change(job.waiting, *place, -count)
                surplus -= count

    def _return(self, job: JobPlaces, lost: PodsOnNodes, missing: int) -> None:
        """Keep places where pods were that are gone, if their nodes still take pods."""
        for (node, demand), count in lost.items():
            kept = min(missing, count) if self.usable >> node & 1 else 0
            if kept > 0:
                self._change(job.waiting, node, demand, kept)
                missing -= kept

    def _find(self, job: JobPlaces, missing: int) -> None:
        """Take places for members that have none, as far as there are nodes for them."""
        for shape, count in job.members:
            found = (*job.bound.items(), *job.waiting.items())
            placed = sum(pods for (_, demand), pods in found if demand == shape.demand)
            for within in (~self.kept, EVERY):  # kept nodes only if there are no others
                number = min(missing, count - placed, self.room.total(shape, within))
                lacking = (Members(shape, number),) if number > 0 else ()
                for node, _, pods in self.choose(lacking, within) or ():
                    self._change(job.waiting, node, shape.demand, pods)
                    missing, placed = missing - pods, placed + pods

    def _change(self, places: dict[tuple[int, Demand], int], node: int, demand: Demand, count: int) -> None:
        self.room.use(node, demand, count)
        place = node, demand
        pods = places.get(place, 0) + count
        if pods > 0:
            places[place] = pods
        else:
            places.pop(place, None)

    def _note_lack(self, key: str, job: JobPlaces) -> None:
        for is_one, keys in ((job.waiting, self.unbound), (job.missing() > job.places(), self.lacking)):
            (keys.add if is_one else keys.discard)(key)

    def _forget_if_empty(self, key: str, job: JobPlaces) -> None:
        if not job.reserved and not job.bound:
            self.jobs.pop(key, None)


def _note_row(places: Places, key: str, gang: Gang, node: int) -> str:
    """Note that the node of a row is the place of all pods of a job that had none, and return its text."""
    shape, count = gang.members[0]
    places.jobs[key] = JobPlaces(True, gang.members, gang.lasting, NO_PODS, {(node, shape.demand): count})
    places.unbound.add(key)
    return pod_nodes.write_alike(places.room.names[node], count) if places.names_nodes else ""


def _breaks_kept(places: Places, key: str, job: JobPlaces, node: int) -> bool:
    """Return whether a pod came to a node that is kept for another job, though its job has places elsewhere."""
    is_kept = places.kept >> node & 1 and places.kept_for is not None and places.kept_for[0] != key
    return bool(is_kept and job.waiting and not any(place[0] == node for place in job.waiting))
