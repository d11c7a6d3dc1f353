"""Giving back: the waiting jobs that get room, and the elastic jobs that make it.

One rule: no job gives room for a waiting job that would not fit even if all workers that may be removed were removed.

Who may be asked is in `queues.resizing.search`. The job with the pool's reservation is served first, then those for
which workers are on their way out, then the queues that are furthest behind their shares. A job that is served counts
as running for the jobs behind it. When the first job of a queue is served, the jobs behind it follow; if the first job
is not served and may be passed, the jobs of its queue that may pass it follow.

A plan makes a limited number of searches. So queues take turns over several plans: those that no plan has looked at yet
in this turn go before the others. A turn is over once each queue was looked at.

Room that comes back belongs to its job: in the pool by the reservation, in quota and cohort by a claim (`Plan.claims`).
Workers that are on their way out count as gone, so that one waiting job never makes other jobs give room twice.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from crds.keys import JobKey
from crds.resources import amounts
from queues.picking.picker import Picker
from queues.picking.queue_state import Candidate, QueueState, Shape, shape
from queues.placement.gangs import Gang
from queues.placement.places import PromisedNodes
from queues.resizing import givers
from queues.resizing.givers import Giver, Shares
from queues.resizing.node_trial import NodeTrial
from queues.resizing.room import Limit, Room
from queues.resizing.search import Search, Waiting
from queues.resizing.values import ElasticJob, Resize, digest

_SHAPES = 4
"""The most different demands of one queue that are considered in one plan."""


@dataclass
class GivingBack:
    """The waiting jobs of one plan."""

    _picker: Picker
    _queues: Mapping[str, QueueState]
    _jobs: Sequence[ElasticJob]
    _room: Room
    """It has in the end what is left if everything goes as planned."""
    _shares: Shares
    _now: float
    _seen: frozenset[str] = frozenset()
    """The queues at which earlier plans have looked in this turn."""
    _looked: set[str] = field(default_factory=set)
    _able: Sequence[QueueState] = ()
    _asked: dict[Giver, Waiting] = field(default_factory=dict)
    claims: dict[str, JobKey] = field(default_factory=dict)
    hasten: dict[str, JobKey] = field(default_factory=dict)
    promised: PromisedNodes | None = None
    """The nodes of the job that has the pool's reservation, or gets it next."""
    patient_until: float = -math.inf
    """When the last first job that lacks the pool has waited for as long as its patience lasts."""

    def __post_init__(self) -> None:
        self._present = Room(self._picker, self._queues, ())  # what is used now, by workers on their way out, too

    @cached_property
    def _nodes(self) -> NodeTrial:
        return NodeTrial(self._picker, self._jobs)

    def serve(self) -> None:
        """Find room for the largest possible number of waiting jobs."""
        waiting = [queue for queue in self._queues.values() if queue.first is not None and queue.spec.open]
        givers_by_queue = givers.by_queue(self._jobs, self._shares) if waiting else {}
        if not givers_by_queue and not any(job.leaving for job in self._jobs if waiting):
            return
        self._search = Search(self._room, self._nodes, givers_by_queue, self._shares)
        self._able = self._in_order(waiting)
        lines = [self._line(queue) for queue in self._able]
        while lines:
            lines = [line for line in lines if not self._search.is_tired and next(line, False)]
        self._spare()

    @property
    def seen(self) -> frozenset[str]:
        """The queues that were looked at in this turn; empty if the turn is over."""
        seen = self._seen | self._looked
        return seen if any(queue.spec.name not in seen for queue in self._able) else frozenset()

    @property
    def resizes(self) -> tuple[Resize, ...]:
        """The jobs that are asked, each for all that it gives."""
        given = ((giver, waiting) for giver, waiting in self._asked.items() if giver.asked)
        return tuple(_resize(giver, waiting, self._nodes.victims(giver.job.key)) for giver, waiting in given)

    def needed(self) -> frozenset[JobKey]:
        """Return the jobs whose workers on their way out a waiting job needs. Call it after `serve`."""
        return frozenset(job.key for job in self._jobs if job.leaving_for is not None and not self._takes_back(job))

    def _takes_back(self, job: ElasticJob) -> bool:
        """Return whether the job's leaving workers could stay; if so, count them as used."""
        fits = self._room.fits(self._queues[job.queue], amounts.scale(job.unit, job.leaving))
        stays = fits and self._nodes.return_workers(job.key, job.leaving)
        if stays:
            self._room.charge(job.queue, job.unit, job.leaving)
        return stays

    def _spare(self) -> None:
        """Let jobs keep room that is not needed because other jobs gave more than the waiting job took."""
        for giver in reversed(self._asked):
            step = amounts.scale(giver.job.unit, giver.job.step)
            while giver.asked and self._room.fits(self._queues[giver.job.queue], step):
                if not self._nodes.return_workers(giver.job.key, giver.job.step):
                    break
                self._room.give(giver.job, -giver.job.step, idle=False)
                giver.workers += giver.job.step

    def _in_order(self, waiting: Iterable[QueueState]) -> Sequence[QueueState]:
        """Return the queues some of whose jobs may get room, in the order in which they are served."""
        holder = self._picker.reservation_holder
        leaving = {job.leaving_for for job in self._jobs if job.leaving and job.leaving_for}

        def order(queue: QueueState) -> tuple[bool, bool, bool, float, str]:
            name, first = queue.spec.name, queue.first
            expected = bool(leaving) and first is not None and digest(first.waiting.entry.key) in leaving
            return name != holder, not expected, name in self._seen, -self._picker.behind(name), name

        able = (queue for queue in waiting if self._may_take_paid(queue) or self._search.may_serve(queue))
        return sorted(able, key=order)

    def _may_take_paid(self, queue: QueueState) -> bool:
        """Return whether the first job of a queue holds the pool's reservation, or gets it next.

        No job overtakes a waiting job if all other queues are content, so that it would never get the reservation by
        itself. The patience of the waiting job ends as well once it has waited for the least patience: this room need
        not wait for any job's end.
        """
        holder, first = self._picker.reservation_holder, queue.first
        if holder or self.hasten or first is None or not queue.reservable:
            return queue.spec.name == holder
        if self._lacks_now(queue, first) != "pool" or self._picker.reservation.is_barred(queue):
            return False
        ends = first.waiting.entry.submitted + self._picker.rules.least_patience
        self.patient_until = max(self.patient_until, ends)
        return ends <= self._now

    def _line(self, queue: QueueState) -> Iterator[bool]:
        """Serve the jobs of a queue in order, and yield after each."""
        self._looked.add(queue.spec.name)
        failed: set[tuple[Shape, Gang | None]] = set()
        first, may_take_paid = queue.first, self._may_take_paid(queue)
        holder = self._picker.reservation_holder == queue.spec.name
        for candidate in queue.runnable():
            is_first = first is not None and candidate.position == first.position
            kind = (shape(candidate.demand), candidate.waiting.gang) if failed else None
            if kind in failed:
                continue
            if not self._serve(Waiting(queue, candidate, is_first, is_first and may_take_paid)):
                failed.add((shape(candidate.demand), candidate.waiting.gang))
                if holder or len(failed) > _SHAPES or queue.spec.strict:
                    return
            yield True

    def _serve(self, waiting: Waiting) -> bool:
        """Return whether a job gets room. If so, the room is charged."""
        served = self._room.fits(waiting.queue, waiting.demand) and self._nodes.fits(waiting.queue, waiting.candidate)
        if not served and (asked := self._search.find(waiting)):
            served = True
            for giver in asked:
                self._asked.setdefault(giver, waiting)
        if served:
            self._protect(waiting, self._nodes.take(waiting.candidate))
            self._room.satisfy(waiting.queue, waiting.candidate)
            self._room.charge(waiting.queue.spec.name, waiting.demand)
            self._search.charge(waiting.demand)
        elif waiting.may_take_paid and self._picker.reservation_holder:
            self._room.reserve(waiting.demand)
        return served

    def _protect(self, waiting: Waiting, nodes: tuple[str, ...]) -> None:
        """Keep the room of a first job that has to wait for workers to end, and the nodes on which it is."""
        limit = self._lacks_now(waiting.queue, waiting.candidate) if waiting.is_first else None
        name, holder = waiting.queue.spec.name, self._picker.reservation_holder
        if limit in ("quota", "cohort"):
            self.claims[name] = waiting.key
        elif limit == "pool" and not holder and not self.hasten:
            self.hasten[name] = waiting.key
        if limit == "pool" and nodes and name in (holder, *self.hasten):
            self.promised = PromisedNodes(str(waiting.key), nodes, self._now)

    def _lacks_now(self, queue: QueueState, candidate: Candidate) -> Limit | None:
        """Return the first limit that lacks room for a job now, with the workers that are on their way out. Nodes are
        of the pool."""
        limit = self._present.lacks(queue, candidate.demand)
        if limit is None:
            on_kept = queue.spec.name == self._picker.reservation_holder
            limit = None if self._picker.pool.finds_nodes(candidate, on_kept=on_kept) else "pool"
        return limit


def _resize(giver: Giver, waiting: Waiting, victims: tuple[str, ...]) -> Resize:
    key, queue = waiting.key, waiting.queue.spec.name
    # The message is in the status of the giver, whose owner may not know the jobs of other teams.
    is_own = key.namespace == giver.job.key.namespace
    receiver = f"{key.namespace}/{key.name} of queue {queue}" if is_own else "a job of another team"
    message = f"gives {giver.given} workers back to {receiver}"
    return Resize(giver.job.key, giver.workers, "GiveBack", key, queue, message, victims[: giver.given])
