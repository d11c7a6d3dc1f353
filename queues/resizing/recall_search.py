"""The jobs whose room is taken back: their scheduler does not bind them, and a waiting job could use the room.

One rule: pure, and no job gives room for a waiting job that would not fit, on nodes too, even if all room that may be
given were given. Waiting jobs that their scheduler has refused, too, are ignored: two of them would take turns without
end.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import Amounts
from queues.picking.picker import Picker
from queues.picking.queue_state import Candidate, QueueState, Shape, shape
from queues.placement.gangs import Gang
from queues.resizing.node_trial import NodeTrial
from queues.resizing.room import Room

_SHAPES = 4
"""The most different demands of one queue for which no room is found that are considered."""
_HOLDERS = 256
"""The most jobs that may be asked. The others have their turn when these are gone."""


class HeldRoom(NamedTuple):
    """The room of an admitted job."""

    key: JobKey
    queue: str
    charge: Amounts


def find(
    picker: Picker, holders: Sequence[HeldRoom], leaving: Sequence[HeldRoom], refused: Collection[JobKey], now: float
) -> tuple[JobKey, ...]:
    """Return which holders give their room to waiting jobs now; the first holders where several could.

    The room of `leaving` jobs counts as free. `refused` are waiting jobs to which no job gives room.
    """
    queues = picker.queues(now)
    search = _Search(picker, Room(picker, queues, ()), NodeTrial(picker), list(holders[:_HOLDERS]))
    for held in leaving:
        search.free(held)
    nobody = {str(key) for key in (*refused, *(held.key for held in (*holders, *leaving)))}
    waiting = (queue for queue in queues.values() if queue.first is not None and queue.spec.open)
    holder = picker.reservation_holder
    for queue in sorted(waiting, key=lambda queue: (queue.spec.name != holder, -picker.behind(queue.spec.name))):
        search.serve(queue, nobody)
    return tuple(held.key for held in search.given)


@dataclass(slots=True)
class _Search:
    """The room while jobs give it back for the waiting jobs one after the other."""

    _picker: Picker
    _room: Room
    _nodes: NodeTrial
    _able: list[HeldRoom]
    given: list[HeldRoom] = field(default_factory=list)

    def serve(self, queue: QueueState, nobody: Collection[str]) -> None:
        """Find room for the jobs of a queue in order, as far as a job may pass another job. `nobody` are left out."""
        failed: set[tuple[Shape, Gang | None]] = set()
        holds_reservation = queue.spec.name == self._picker.reservation_holder
        for candidate in queue.runnable():
            kind = shape(candidate.demand), candidate.waiting.gang
            if candidate.waiting.ticket[0] in nobody or kind in failed:
                continue
            if self._serve(queue, candidate):
                continue
            failed.add(kind)
            if holds_reservation:
                self._room.reserve(candidate.demand)
            if holds_reservation or len(failed) >= _SHAPES or queue.spec.strict:
                return

    def _serve(self, queue: QueueState, candidate: Candidate) -> bool:
        """Return whether a job fits, perhaps once others have given their room. If the job fits, it is charged."""
        asked: list[HeldRoom] = []
        able = iter(self._able)
        while not self._fits(queue, candidate):
            held = next(able, None)
            if held is None:
                for each in asked:
                    self.free(each, -1)
                return False
            self.free(held)
            asked.append(held)
        given = [held for held in asked if not self._is_spared(held, queue, candidate)]
        self.given += given
        self._able = [held for held in self._able if held not in given]
        self._room.satisfy(queue, candidate)
        self._room.charge(queue.spec.name, candidate.demand)
        self._nodes.take(candidate)
        return True

    def _fits(self, queue: QueueState, candidate: Candidate) -> bool:
        return self._room.fits(queue, candidate.demand) and self._nodes.fits(queue, candidate)

    def _is_spared(self, held: HeldRoom, queue: QueueState, candidate: Candidate) -> bool:
        """Return whether a job fits without the room of a holder that was asked; if so, the holder keeps it."""
        self.free(held, -1)
        if self._fits(queue, candidate):
            return True
        self.free(held)
        return False

    def free(self, held: HeldRoom, times: int = 1) -> None:
        """Count the room of a holder as free, or as used if `times` is below 0."""
        if held.queue in self._room.queues:
            self._room.charge(held.queue, held.charge, -times)
        else:  # its queue is gone
            self._room.reserve(amounts.scale(held.charge, -times))
        self._nodes.free_job(held.key, times)
