"""The search for workers that make room for one waiting job.

One rule: all or nothing. If all that may go is not enough for the job, nobody gives anything; and no step is taken
without which the job fits as well.

The search knows no reason why a job may be asked: its caller names the jobs, tier after tier. A job whose least is 0
gives everything, and one whose step is its size gives all or nothing.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeVar

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.resizing.givers import Giver
from queues.resizing.room import Room

W = TypeVar("W")
Part = Literal["idle", "paid"]
"""What a job gives: its idle growth, or further workers above its least."""
_Turn = tuple[float, float, int, Giver]


class Tier(NamedTuple):
    """Jobs that may be asked next, and for what."""

    givers: Iterable[Giver]
    part: Part
    may: Callable[[str], bool] = lambda _: True
    """Whether a queue may be asked for one more step."""
    first: Callable[[str], float] = lambda _: 0.0
    """The order of the queues, the greatest first. It does not rise while the queue gives."""


class Victims:
    """The steps that were taken so far for one waiting job."""

    def __init__(self, room: Room, key: JobKey) -> None:
        """`key` is the waiting job, which gives nothing to itself."""
        self._room = room
        self._key = key
        self._steps: list[tuple[Giver, Part]] = []
        self.looked_at = 0
        """How many jobs were looked at. It bounds the time of a plan."""

    @property
    def givers(self) -> list[Giver]:
        """The jobs that give, in the order in which they were asked."""
        return list(dict.fromkeys(giver for giver, _ in self._steps))

    def take(self, tier: Tier, lacking: Callable[[], Amounts], counts: Callable[[str, str], bool]) -> bool:
        """Take steps of a tier until nothing lacks any more, and return whether that is so.

        The most fulfilled job gives first. `counts` returns whether a queue's use of a resource counts for the limit.
        """
        able = (giver for giver in tier.givers if getattr(giver, tier.part) and giver.job.key != self._key)
        lack, turns = lacking(), [self._turn(tier, giver) for giver in able]
        self.looked_at += len(turns)
        heapq.heapify(turns)
        while lack and turns:
            turn = heapq.heappop(turns)
            giver, queue = turn[-1], turn[-1].job.queue
            helps = any(giver.job.unit.get(name, 0) > 0 and counts(queue, name) for name in lack)
            if not helps or not tier.may(queue):
                continue
            if (present := self._turn(tier, giver)) != turn:
                heapq.heappush(turns, present)
                continue
            self._give(giver, tier.part, 1)
            self._steps.append((giver, tier.part))
            if getattr(giver, tier.part):
                heapq.heappush(turns, self._turn(tier, giver))
            lack = lacking()
        return not lack

    def undo(self) -> None:
        """Give all steps back."""
        for giver, part in self._steps:
            self._give(giver, part, -1)
        self._steps.clear()

    def spare(self, fits: Callable[[W], bool], waiting: W) -> None:
        """Give back every step without which the waiting job fits as well, the last one first."""
        for index in range(len(self._steps) - 1, -1, -1):
            giver, part = self._steps[index]
            self._give(giver, part, -1)
            if fits(waiting):
                del self._steps[index]
            else:
                self._give(giver, part, 1)

    def _give(self, giver: Giver, part: Part, times: int) -> None:
        workers, job = times * giver.job.step, giver.job
        giver.workers -= workers
        self._room.charge(job.queue, job.unit, -workers)
        if part == "idle":
            giver.idle -= workers
            self._room.charge_idle(job.queue, job.unit, -workers)
        else:
            giver.paid -= workers

    @staticmethod
    def _turn(tier: Tier, giver: Giver) -> _Turn:
        return -tier.first(giver.job.queue), -giver.fulfilment, -giver.rank, giver
