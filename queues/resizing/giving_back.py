"""Giving back: the waiting jobs that get room, and the elastic jobs that make it.

One rule: nobody gives for a job that does not fit once all that may go is gone.

Who may be asked is in `queues.resizing.table`. The job with the pool's reservation is served first, then those for
which workers are on their way out, then the queues that are furthest behind their shares. A job that is served counts
as running for those behind it. When the first job of a queue is served, the jobs behind it follow; if it is not, and
may be passed, the others of its queue follow that may pass it.

Room that comes back belongs to its job: in the pool by the reservation, in quota and cohort by a claim (`Plan.claims`).
Workers that are on their way out count as gone, so that one waiting job never makes others give twice.
"""

from collections.abc import Iterator, Mapping, Sequence

from crds.keys import JobKey
from queues.picking.known_entries import Shape, shape
from queues.picking.picker import Picker
from queues.picking.queue_state import QueueState
from queues.resizing import givers
from queues.resizing.givers import Giver
from queues.resizing.room import Room
from queues.resizing.shares import Shares
from queues.resizing.table import Table, TableRow, Waiting
from queues.resizing.values import ElasticJob, Resize
from queues.resizing.victims import Victims

_LOOKS = 4_000
"""The most looks at elastic jobs in one plan. The waiting jobs behind are served by the next plans."""
_SHAPES = 4
"""The most different demands of one queue that are considered in one plan."""


class GivingBack:
    """The waiting jobs of one plan."""

    def __init__(
        self, picker: Picker, queues: Mapping[str, QueueState], jobs: Sequence[ElasticJob], room: Room, shares: Shares
    ) -> None:
        """`room` changes: it has in the end what is left if everything goes as planned."""
        self._picker = picker
        self._queues = queues
        self._jobs = jobs
        self._room = room
        self._present = Room(picker, queues, ())
        """What is used now, by workers on their way out, too."""
        self._givers = givers.by_queue(jobs, shares)
        self._table = Table(room, self._givers, shares)
        self._looks = _LOOKS
        self._asked: dict[Giver, Waiting] = {}
        self.claims: dict[str, JobKey] = {}
        self.hasten: dict[str, JobKey] = {}

    def serve(self) -> None:
        """Find room for as many waiting jobs as possible."""
        if not self._givers and not any(job.leaving for job in self._jobs):
            return
        lines = [self._line(queue) for queue in self._in_order()]
        while lines:
            lines = [line for line in lines if next(line, False)]

    @property
    def resizes(self) -> tuple[Resize, ...]:
        """The jobs that are asked, each for all that it gives."""
        return tuple(_resize(giver, waiting) for giver, waiting in self._asked.items() if giver.given)

    def needed(self) -> frozenset[JobKey]:
        """Return the jobs whose workers on their way out a waiting job needs. Call it after `serve`."""
        return frozenset(job.key for job in self._jobs if job.leaving_for is not None and not self._takes_back(job))

    def _takes_back(self, job: ElasticJob) -> bool:
        """Return whether the job's leaving workers could stay; if so, count them as used."""
        queue, unit = self._queues[job.queue], {name: amount * job.leaving for name, amount in job.unit.items()}
        if self._room.lacks(queue, unit):
            return False
        self._room.charge(job.queue, job.unit, job.leaving)
        return True

    def _in_order(self) -> Sequence[QueueState]:
        holder = self._picker.reservation_holder
        leaving = {str(job.leaving_for) for job in self._jobs if job.leaving and job.leaving_for is not None}

        def order(queue: QueueState) -> tuple[bool, bool, float, str]:
            name, first = queue.spec.name, queue.first
            expected = first is not None and first.waiting.ticket[0] in leaving
            return name != holder, not expected, -self._picker.behind(name), name

        waiting = [queue for queue in self._queues.values() if queue.first is not None and queue.spec.open]
        return sorted(waiting, key=order)

    def _line(self, queue: QueueState) -> Iterator[bool]:
        """Serve the jobs of a queue in order, and yield after each."""
        failed: set[Shape] = set()
        first, holder = queue.first, self._picker.reservation_holder == queue.spec.name
        for candidate in queue.runnable():
            is_first = first is not None and candidate.position == first.position
            if failed and shape(candidate.demand) in failed:
                continue
            if not self._serve(Waiting(queue, candidate, is_first, is_first and holder)):
                failed.add(shape(candidate.demand))
                if holder or len(failed) > _SHAPES or not self._picker.allows_passing(queue):
                    return
            yield True

    def _serve(self, waiting: Waiting) -> bool:
        """Return whether a job gets room. If so, the room is charged."""
        served = self._fits(waiting) or self._find_room(waiting)
        if served:
            self._protect(waiting)
            self._charge(waiting)
        elif waiting.has_reservation:
            self._room.reserve(waiting.demand)
        return served

    def _fits(self, waiting: Waiting) -> bool:
        return self._room.lacks(waiting.queue, waiting.demand) is None

    def _fits_within(self, waiting: Waiting) -> bool:
        """Return whether a job fits, and borrows nothing."""
        return self._fits(waiting) and self._covers(waiting)

    def _find_room(self, waiting: Waiting) -> bool:
        for rows in self._table.attempts(waiting) if self._looks > 0 else ():
            victims = Victims(self._room, waiting.key)
            enough = all(self._ask(victims, waiting, row) for row in rows)
            self._looks -= victims.looked_at
            if enough:
                victims.spare(self._fits_within if rows[0].within_quota else self._fits, waiting)
                for giver in victims.givers:
                    self._asked.setdefault(giver, waiting)
                return True
            victims.undo()
        return False

    def _covers(self, waiting: Waiting) -> bool:
        return self._room.covers(waiting.queue, waiting.demand)

    def _ask(self, victims: Victims, waiting: Waiting, row: TableRow) -> bool:
        """Ask the tiers of a row, and return whether its limit lacks nothing any more."""

        def lacking() -> Mapping[str, int]:
            if row.within_quota:
                return self._room.beyond_quota(waiting.queue, waiting.demand)
            return self._room.lacking(row.limit, waiting.queue, waiting.demand)

        def counts(queue: str, name: str) -> bool:
            return self._room.counts(row.limit, queue, name)

        return not lacking() or any(victims.take(tier, lacking, counts) for tier in row.tiers)

    def _charge(self, waiting: Waiting) -> None:
        if waiting.queue.spec.cohort and self._covers(waiting):
            self._room.satisfy(waiting.queue, waiting.demand)
        self._room.charge(waiting.queue.spec.name, waiting.demand)

    def _protect(self, waiting: Waiting) -> None:
        """Keep the room of a first job that has to wait for workers to end."""
        limit = self._present.lacks(waiting.queue, waiting.demand) if waiting.is_first else None
        name = waiting.queue.spec.name
        if limit in ("quota", "cohort"):
            self.claims[name] = waiting.key
        elif limit == "pool" and not self._picker.reservation_holder and not self.hasten:
            self.hasten[name] = waiting.key


def _resize(giver: Giver, waiting: Waiting) -> Resize:
    key, queue = waiting.key, waiting.queue.spec.name
    message = f"gives {giver.given} workers back to {key.namespace}/{key.name} of queue {queue}"
    return Resize(giver.job.key, giver.workers, "GiveBack", key, queue, message)
