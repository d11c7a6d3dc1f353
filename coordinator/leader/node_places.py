"""The places of jobs on nodes, as the watches and the store show them.

One rule: places are in memory alone. A new leader makes them anew: first from the pods that are on nodes, then for the
reservations in the order of admission. From then on they follow the changes. Jobs and nodes are looked at once more, a
few at a time, so that nothing lasts that was overlooked.

Free on a node is what it offers, less the pods that are on it, whoever made them, less the places of admitted jobs
whose pods are on no node yet. What cannot be judged here counts as fitting: affinity between pods, spread constraints,
the zones of volumes, claims on devices, and the rules of other schedulers.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from coordinator.cache import gang_shapes
from coordinator.cache.node_changes import Changed, SecondLooks, foreign_on
from coordinator.cache.node_views import NodeView
from coordinator.cache.views import JobView, PodView
from coordinator.cache.watches import Watches
from coordinator.leader.node_sets import NodeSets
from crds.keys import JobKey
from crds.node_requirements import binding_taints
from crds.resources.amounts import NOTHING, PODS, Amounts
from crds.torchjob import checks
from crds.torchjob.tasks import WORKER
from queues.placement import pod_nodes
from queues.placement.gangs import Gang, Members
from queues.placement.node_room import NodeRoom
from queues.placement.places import ExpectedEnd, Places, PodsOnNodes, WorkerPod
from queues.placement.typical_pods import Demand, TypicalPods, typical_of
from queues.values import Reservation

CURRENT_SECONDS = 30.0
"""How old the places of a leader may be. It refreshes them with each cycle, every few seconds at least."""
LOOK_SECONDS = 2.0
"""How old the places of a process that does not lead may be."""
TYPICAL_SECONDS = 60.0
"""How often it is looked which pods are typical. If others are, all nodes are judged anew."""
FIRST_SECONDS = 5.0
"""How often, while none are known: what is placed until then breaks up whole nodes, and is never moved."""
USUAL_SECONDS = 600.0
"""For how long a job without a deadline is expected to hold its room, if no job has ended yet."""
_SPARE_NAMES = 256
"""The places are made anew once more than twice as many nodes have an index as before, and these: nodes come and go."""


@dataclass(slots=True)
class NodePlaces:
    """Keeps the places of one process up to date. One thread refreshes and uses them; others take copies."""

    watches: Watches
    reservations: Callable[..., Mapping[JobKey, Reservation]]
    """A function that returns the reservations in the store, or those of some keys; it may raise QueueError."""
    elapsed: Callable[[], float]
    counts: bool = True
    """Whether the pool is made of nodes; if not, there are no places."""
    hints: bool = True
    """Whether workers learn where pods were placed (the setting `placement_hints`)."""
    places: Places | None = None
    """None: nothing is known."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _built: float = 0.0
    _refreshed: float = -math.inf
    _counted: float = -math.inf
    """When it was last looked which pods are typical."""
    _nodes: dict[str, NodeView] = field(default_factory=dict)
    """The nodes as they were last looked at."""
    _foreign: dict[int, dict[str, int]] = field(default_factory=dict)
    """By node, what foreign pods use there."""
    _sets: NodeSets = field(default_factory=NodeSets)
    _names: int = 0
    """How many nodes had an index when the places were made."""
    _second: SecondLooks = field(default_factory=lambda: SecondLooks(0.0))

    def refresh(self) -> bool:
        """Bring the places up to date. Return whether jobs must be read anew: some ask for other pods than before,
        or the nodes could hold other jobs."""
        if not self.counts:
            return False
        self._refreshed = self.elapsed()
        changed, places = self.watches.node_changes.take(), self.places
        with self._lock:
            if changed.everything:
                self._built = -math.inf  # until it was possible to make them anew
            are_many = places is not None and len(places.room.names) > 2 * self._names + _SPARE_NAMES
            if places is None or places.is_outdated or math.isinf(self._built) or are_many:
                self._rebuild()
                return True
            before, built = places.empty.version, self._built
            self._built = -math.inf  # if the store does not answer, the changes are not applied, and not told again
            self._apply(places, changed, self._second.take(self._refreshed, lambda: _everything(self.watches, places)))
            self._built = built
            if abs(self._refreshed - self._counted) >= (TYPICAL_SECONDS if places.gradient else FIRST_SECONDS):
                places.set_typical(self._typical())
        return changed.edited or places.empty.version != before

    def forget(self) -> None:
        """Make the places anew at the next refresh: a term begins, with reservations of its own, or has ended."""
        with self._lock:
            self.places = None
            self.watches.node_changes.stop()

    def copy(self) -> Places | None:
        """Return a copy for forecasts, for any thread; None if nothing is known, or if this process does not lead: then
        nothing was refreshed of late."""
        with self._lock:
            is_current = abs(self.elapsed() - self._refreshed) < CURRENT_SECONDS
            return self.places.copy() if self.places is not None and is_current else None

    def look(self) -> Places | None:
        """Return a copy for forecasts in a process that does not lead. The places are made anew if they are old."""
        with self._lock:
            if not self.counts:
                return None
            if self.places is None or abs(self.elapsed() - self._built) >= LOOK_SECONDS:
                self._rebuild()
            return self.places.copy() if self.places is not None else None

    def _apply(self, places: Places, changed: Changed, due: Changed) -> None:
        """Bring the places up to date: what has changed, and what is due to be looked at once more."""
        before = {name: self._nodes.get(name) for name in changed.nodes | due.nodes}
        for name in before:
            self._look_at(places, name)
        rules = [(_rules_of(node), _rules_of(self._nodes.get(name))) for name, node in before.items()]
        if any(old != new for old, new in rules):
            places.empty.forget_sets()
        closed = places.usable & ~self._sets.ready
        if any(old != new for old, new in rules) or places.usable != self._sets.ready:
            places.room.forget_sets()
            places.usable = self._sets.ready
        moved, version = places.vacate(closed) if closed else (), places.room.version
        held = self.reservations([*due.jobs]) if due.jobs else {}
        for key in due.jobs:
            self._look_again(places, key, held.get(key))
        for key in {*changed.jobs, *map(JobKey.parse, moved)} - due.jobs:
            self._follow(places, key)
        if places.room.version != version or changed.nodes or changed.jobs:
            for lacking in sorted(places.lacking):
                self._follow(places, JobKey.parse(lacking))

    def _rebuild(self) -> None:
        reserved = sorted(self.reservations().values(), key=lambda charge: (charge.epoch, charge.pick))
        before, self._sets = self.places, NodeSets()  # copies ask the sets of the places that they were made of
        self._nodes, self._foreign, self._built = {}, {}, -math.inf  # after an error, they are made anew at once
        sets = self._sets
        room, empty = NodeRoom(sets.allowed, sets.domains), NodeRoom(sets.ever_allowed, sets.domains)
        places = Places(room, empty, self.gang_of, self._ends, self.workers_of, gang_shapes.settle)
        places.names_nodes = self.hints
        places.set_typical(self._typical())
        for node in self.watches.nodes.values() if self.watches.nodes else ():
            self._look_at(places, node.name)
        places.usable = self._sets.ready
        for key in {pod.job for pod in self.watches.pods.values() if pod.job is not None and pod.node}:
            self._follow(places, key)
        for charge in reserved:
            known = before.jobs.get(str(charge.key)) if before is not None else None
            self._reserve(places, charge, has_started=known is not None and known.has_started)
        if before is not None:
            kept = (before.room.names[index] for index in range(len(before.room.names)) if before.kept >> index & 1)
            places.kept = sum(1 << places.room.index(name) for name in kept if name in self._nodes)
            places.kept_for, places.kept_since = before.kept_for, before.kept_since
            places.others_wait, places.turn_until = before.others_wait, before.turn_until
            places.promised = before.promised
        self._built = self.elapsed()
        self.places, self._names, self._second = places, len(places.room.names), SecondLooks(self._built)

    def _look_again(self, places: Places, key: JobKey, charge: Reservation | None) -> None:
        """Note the pods and the reservation of a job, whatever was overlooked of them."""
        known = places.jobs.get(str(key))
        is_reserved = known is not None and known.reserved
        if charge is None and is_reserved:
            places.release(str(key))
        self._follow(places, key, charge)
        if charge is not None and not is_reserved:
            self._reserve(places, charge, has_started=known is not None and known.has_started)

    def _reserve(self, places: Places, charge: Reservation, *, has_started: bool) -> None:
        """Note the reservation of a job whose pods on nodes are known."""
        places.take(str(charge.key), None)
        found, job = places.jobs[str(charge.key)], self.watches.job(charge.key)
        # A job that was sent back may begin with a later stage: its pods keep their places until they come.
        found.has_started = has_started or (job is not None and job.is_past_first and bool(found.bound))
        if job is not None and job.gang is not None:
            self._follow(places, charge.key, charge)

    def _typical(self) -> TypicalPods | None:
        self._counted = self.elapsed()
        return _typical_pods(job.gang for job in self.watches.jobs.values() if not job.finished)

    # Nodes

    def _look_at(self, places: Places, name: str) -> None:
        """Note what a node offers, and what foreign pods use of it."""
        node = self.watches.nodes.get("", name) if self.watches.nodes else None
        before = self._nodes.get(name)
        offered, offers = (NOTHING if each is None else each.allocatable for each in (before, node))
        if offers != offered or (before is None and node is not None):
            # Not for a node that nobody knows, though a pod is on it: then all waiting jobs would be read anew.
            places.room.index(name)
            for known in places.room.names[len(places.empty.names) :]:
                places.empty.index(known)  # both rooms have the same indexes
            for room in (places.room, places.empty):
                room.set_capacity(room.index(name), offers)
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        index = places.room.index(name)
        if node is not before:
            self._sets.note(index, node)
        used: dict[str, int] = {}
        for pod in self.watches.pods.indexed(foreign_on(name)):
            for resource, amount in pod.demand.items() if pod.occupies else ():
                used[resource] = used.get(resource, 0) + amount
        last = self._foreign.get(index, {})
        if used != last:
            places.room.use(index, used.items(), 1)
            places.room.use(index, last.items(), -1)
            self._foreign[index] = used

    # Jobs

    def gang_of(self, key: str, kind: str, demand: Amounts) -> Gang | None:
        """Return the gang of a waiting job (`queues.placement.places.GangOf`)."""
        job = self.watches.job(JobKey.parse(key))
        if job is None or job.gang is None:
            return None
        return gang_shapes.growth(job.gang, demand.get(PODS, 0)) if kind == "grow" else job.gang

    def workers_of(self, key: str) -> Sequence[WorkerPod]:
        """Return the workers on nodes that an elastic job may lose (`queues.placement.places.WorkersOf`)."""
        job = self.watches.job(JobKey.parse(key))
        return _workers_of(job, self.watches.job_pods(job.key)) if job is not None else ()

    def _follow(self, places: Places, key: JobKey, charge: Reservation | None = None) -> None:
        """Note on which nodes the pods of a job are. With a reservation, they are those that it is for; else those of
        the job's admission, unless a growth was picked that the admission may not have yet."""
        known = places.jobs.get(str(key))
        if charge is None and known is not None and known.is_growing:
            charge = self.reservations([key]).get(key)
        job = self.watches.job(key)
        gang, members = (job.gang if job is not None else None), None
        admission = job.admission if job is not None else None
        if job is not None and gang is not None and charge is not None:
            members = _members(job, _settled(gang, pod_nodes.domain(charge.nodes)), charge.size or None)
        elif job is not None and gang is not None and admission is not None:
            members = _members(job, gang, admission.workers)
        if known is not None and (charge is None or (admission and (admission.workers or 0) >= charge.size)):
            known.is_growing = False
        places.follow(str(key), _on_nodes(places, self.watches.job_pods(key)), gang, members)

    def _ends(self, now: float) -> Sequence[ExpectedEnd]:
        return _expected_ends([*self.watches.holders.values()], self.watches.ended.holds(), now)


def _expected_ends(
    holders: Iterable[JobView], holds: Collection[tuple[float, Amounts]], now: float
) -> Sequence[ExpectedEnd]:
    """Return when the jobs that hold room are expected to have ended: at their deadlines, else once they have held
    their room for as long as the jobs that ended last, in the mean; the oldest first."""
    usual = sum(seconds for seconds, _ in holds) / len(holds) if holds else USUAL_SECONDS
    ends = []
    for job in holders:
        limit = job.room_duration
        if limit is not None and limit.since is not None:
            at = limit.since + limit.seconds
        else:
            admitted = job.admission.admitted_at if job.admission is not None else None
            at = usual + (admitted.timestamp() if admitted is not None else job.submitted)
        ends.append((at, job.submitted, str(job.key)))
    ends.sort()
    late = [end for end in ends if end[0] <= now]
    expected = ends[len(late) :]
    # A job that is late may end at any moment: all of them are expected within the usual time, the oldest first.
    spread = [now + usual * (number + 1) / (len(late) + 1) for number in range(len(late))]
    moments = [(at, key) for at, (_, _, key) in zip(spread, late, strict=True)]
    return [ExpectedEnd(*end) for end in sorted([*moments, *((at, key) for at, _, key in expected)])]


def _everything(watches: Watches, places: Places) -> tuple[int, Iterator[JobKey | str]]:
    """Return all jobs and nodes that places may be about, and how many there are at most."""
    pods, known, holders = watches.pods.values(), [*places.jobs], [*watches.holders.values()]
    nodes = [*places.room.names, *(node.name for node in (watches.nodes.values() if watches.nodes else ()))]
    jobs = chain(
        (pod.job for pod in pods if pod.job is not None and pod.node),
        map(JobKey.parse, known),
        (job.key for job in holders),
    )
    return len(pods) + len(known) + len(holders) + len(nodes), chain(jobs, nodes)


def _workers_of(job: JobView, pods: Iterable[PodView]) -> Sequence[WorkerPod]:
    """Return the workers on nodes that a job may lose. The first worker is none of them: the others may connect to
    it."""
    if job.autoscaling is None:
        return ()
    before = checks.pod_name(job.key.name, WORKER, 0)[:-1]
    found = {
        int(index): WorkerPod(pod.name, pod.node, tuple(sorted(pod.demand.items())))
        for pod in pods
        if pod.occupies and pod.node and (index := pod.name.removeprefix(before)).isdecimal()
    }
    leaving = {name: place for place, name in enumerate(job.autoscaling.victims)}
    order = sorted(found.items(), key=lambda one: (leaving.get(one[1].name, math.inf), -one[0]))
    return [pod for index, pod in order if index]


def _members(job: JobView, gang: Gang, workers: int | None) -> tuple[Members, ...]:
    """Return the pods of a job with a number of workers; None: the job's workers are not counted."""
    return gang.with_further(max(0, (workers or 0) - job.workers.least) if job.workers is not None else 0)


def _on_nodes(places: Places, pods: Iterable[PodView]) -> PodsOnNodes:
    return Counter(
        (places.room.index(pod.node), tuple(sorted(pod.demand.items()))) for pod in pods if pod.occupies and pod.node
    )


def _settled(gang: Gang, domain: str) -> Gang:
    """Return the gang of a job that was picked for a domain, also before the domain is in its status."""
    return gang.settled(lambda shape: gang_shapes.settle(shape, domain)) if gang.required and domain else gang


def _typical_pods(gangs: Iterable[Gang | None]) -> TypicalPods | None:
    """Return the typical pods: those of the gangs of all jobs that wait or run, each of which counts once."""
    pods = Counter[Demand]()
    for gang, jobs in Counter(gangs).items():
        for shape, count in gang.members if gang is not None else ():
            pods[shape.demand] += count * jobs
    return typical_of(pods)


def _rules_of(node: NodeView | None) -> object:
    """Return what decides which pods may run on a node that takes pods, apart from its room."""
    return None if node is None else (node.labels, binding_taints(node.taints))
