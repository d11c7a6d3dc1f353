"""The search for workers that make room for one waiting job.

One rule: all or nothing. If all that may go is not enough for the job, nobody gives anything; and no step is taken
without which the job fits as well.

The search knows no reason why a job may be asked: its caller names the jobs, tier after tier. A job whose least is 0
gives everything, and one whose step is its size gives all or nothing.
"""

import heapq
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues.resizing.givers import Giver
from queues.resizing.room import Room
from queues.resizing.values import ElasticJob

W = TypeVar("W")
Part = Literal["idle", "paid"]
"""What a job gives: its idle growth, or further workers above its least."""
_Turn = tuple[float, int, Giver]


class Tier:
    """Jobs that may be asked next, and for what. The most fulfilled job gives first.

    One tier can serve the searches for several waiting jobs.
    """

    def __init__(
        self,
        givers: Iterable[Giver],
        part: Part,
        may: Callable[[str], bool] = lambda _: True,
        first: Callable[[str], float] | None = None,
    ) -> None:
        """`may` returns whether a queue may be asked for one more step. `first` is the order of the queues, the
        greatest first; it falls while the queue gives, and changes by nothing else. None: they are asked alike.
        """
        self.part: Part = part
        self.may = may
        self._first = first
        self._turns: dict[str, list[_Turn]] = {}
        self.looked_at = 0
        """How many jobs were looked at. It bounds the time of a plan."""
        for giver in givers:
            if getattr(giver, part):
                self._turns.setdefault(self._line(giver), []).append(_turn(giver))
                self.looked_at += 1
        for turns in self._turns.values():
            heapq.heapify(turns)
        self._lines = [(self._order(line), line) for line in self._turns]
        heapq.heapify(self._lines)

    def next(self) -> Giver | None:
        """Remove and return the job that gives first; None if no job has anything to give."""
        while self._lines:
            order, line = heapq.heappop(self._lines)
            if (present := self._order(line)) != order:
                heapq.heappush(self._lines, (present, line))
            elif (giver := self._next_of(self._turns[line])) is not None:
                heapq.heappush(self._lines, (order, line))
                return giver
        return None

    def add(self, giver: Giver) -> None:
        """Put a job back that `next` has removed, or that has more to give again."""
        line = self._line(giver)
        heapq.heappush(self._turns[line], _turn(giver))
        heapq.heappush(self._lines, (self._order(line), line))

    def _next_of(self, turns: list[_Turn]) -> Giver | None:
        while turns:
            turn = heapq.heappop(turns)
            giver = turn[-1]
            if getattr(giver, self.part):
                if (present := _turn(giver)) == turn:
                    return giver
                heapq.heappush(turns, present)
        return None

    def _line(self, giver: Giver) -> str:
        """Return the name of the line in which a job gives: that of its queue, if the queues have an order."""
        return "" if self._first is None else giver.job.queue

    def _order(self, line: str) -> float:
        return 0.0 if self._first is None else -self._first(line)


def _turn(giver: Giver) -> _Turn:
    return -giver.fulfilment, -giver.rank, giver


class Victims:
    """The steps that were taken so far for one waiting job."""

    def __init__(self, room: Room, key: JobKey) -> None:
        """`key` is the waiting job, which gives nothing to itself."""
        self._room = room
        self._key = key
        self._steps: list[tuple[Giver, Tier]] = []

    @property
    def givers(self) -> list[Giver]:
        """The jobs that give, in the order in which they were asked."""
        return list(dict.fromkeys(giver for giver, _ in self._steps))

    @property
    def paid(self) -> list[tuple[ElasticJob, int]]:
        """The workers that are no idle growth, step by step."""
        return [(giver.job, giver.job.step) for giver, tier in self._steps if tier.part == "paid"]

    def take(self, tier: Tier, lacking: Callable[[], Amounts], counts: Callable[[str, str], bool]) -> bool:
        """Take steps of a tier until nothing lacks any more, and return whether that is so.

        `counts` returns whether a queue's use of a resource counts for the limit.
        """
        lack, aside = lacking(), []
        while lack and (giver := tier.next()) is not None:
            job = giver.job
            helps = any(job.unit.get(name, 0) > 0 and counts(job.queue, name) for name in lack)
            if not helps or job.key == self._key or not tier.may(job.queue):
                aside.append(giver)
                continue
            self._give(giver, tier.part, 1)
            self._steps.append((giver, tier))
            tier.add(giver)
            lack = lacking()
        for giver in aside:
            tier.add(giver)
        return not lack

    def undo(self) -> None:
        """Give all steps back."""
        while self._steps:
            self._give_back(len(self._steps) - 1)

    def spare(self, fits: Callable[[W], bool], waiting: W) -> None:
        """Give back every step without which the waiting job fits as well, the last one first."""
        if len(self._steps) == 1:
            return  # the job did not fit before it
        for index in range(len(self._steps) - 1, -1, -1):
            giver, tier = self._steps[index]
            self._give(giver, tier.part, -1)
            fitting = fits(waiting)
            self._give(giver, tier.part, 1)
            if fitting:
                self._give_back(index)

    def _give_back(self, index: int) -> None:
        giver, tier = self._steps.pop(index)
        self._give(giver, tier.part, -1)
        tier.add(giver)

    def _give(self, giver: Giver, part: Part, times: int) -> None:
        workers = times * giver.job.step
        giver.workers -= workers
        if part == "idle":
            giver.idle -= workers
        else:
            giver.paid -= workers
        self._room.give(giver.job, workers, idle=part == "idle")
