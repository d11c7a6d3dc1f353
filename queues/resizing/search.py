"""The search for room for waiting jobs, one after the other, within the time of one plan.

One rule: cheap tests come first. A waiting job for which even all removable workers are not enough causes no search.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

from crds.keys import JobKey
from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.picking.queue_state import Candidate, QueueState
from queues.placement.places import WorkerPod
from queues.resizing.givers import Giver, Shares
from queues.resizing.node_trial import NodeTrial
from queues.resizing.room import Limit, Room
from queues.resizing.values import ElasticJob

W = TypeVar("W")
Part = Literal["idle", "paid"]
"""What a job gives: its idle growth, or further workers above its least."""
_Turn = tuple[float, int, Giver]


Givers = Mapping[str, Sequence[Giver]]
"""The jobs that can give, by queue."""


_SEARCHES = 64
_LOOKS = 2_000
"""The most searches in one plan, and the most looks at elastic jobs. The waiting jobs behind are served by the next
plans."""


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
        self._valid: dict[Giver, _Turn] = {}
        """The one turn of each job that counts; the others in the lines are out of date."""
        self.looked_at = 0
        """How many jobs were looked at. It bounds the time of a plan."""
        for giver in givers:
            if getattr(giver, part):
                turn = self._valid[giver] = _turn(giver)
                self._turns.setdefault(self._line(giver), []).append(turn)
                self.looked_at += 1
        for turns in self._turns.values():
            heapq.heapify(turns)
        self._orders = {line: self._order(line) for line in self._turns}
        """The one order of each line that counts."""
        self._lines = [(order, line) for line, order in self._orders.items()]
        heapq.heapify(self._lines)

    def next(self) -> Giver | None:
        """Remove and return the job that gives first; None if no job has anything to give."""
        while self._lines:
            order, line = self._lines[0]
            if self._orders.get(line) != order:
                heapq.heappop(self._lines)
            elif (present := self._order(line)) != order:
                self._orders[line] = present
                heapq.heapreplace(self._lines, (present, line))
            elif (giver := self._next_of(self._turns[line])) is not None:
                return giver
            else:
                heapq.heappop(self._lines)
                del self._orders[line]
        return None

    def add(self, giver: Giver) -> None:
        """Put a job back that `next` has removed, or that has more to give again."""
        line, turn = self._line(giver), _turn(giver)
        if giver not in self._valid or turn < self._valid[giver]:
            self._valid[giver] = turn
            heapq.heappush(self._turns[line], turn)
        order = self._order(line)
        if line not in self._orders or order < self._orders[line]:
            self._orders[line] = order
            heapq.heappush(self._lines, (order, line))

    def _next_of(self, turns: list[_Turn]) -> Giver | None:
        while turns:
            turn = heapq.heappop(turns)
            giver = turn[-1]
            if self._valid.get(giver) != turn:
                continue
            del self._valid[giver]
            if getattr(giver, self.part):
                if (present := _turn(giver)) == turn:
                    return giver
                self._valid[giver] = present
                heapq.heappush(turns, present)
        return None

    def _line(self, giver: Giver) -> str:
        """Return the name of the line in which a job gives: the line of its queue, if the queues have an order."""
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
        """Take steps of a tier until no amount is missing, and return whether no amount is missing.

        `counts` returns whether a queue's use of a resource adds to the usage of the limit.
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
        """Give back every step without which the waiting job fits as well, the last step first."""
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


class Waiting(NamedTuple):
    """A waiting job that may be given room."""

    queue: QueueState
    candidate: Candidate
    is_first: bool
    """Whether it is the first job of its queue."""
    may_take_paid: bool
    """Whether paid workers may make room for it in the pool: it holds the pool's reservation, or gets it next."""

    @property
    def demand(self) -> Amounts:
        """The least that the job takes."""
        return self.candidate.demand

    @property
    def key(self) -> JobKey:
        """The key of the job."""
        return self.candidate.waiting.entry.key


class TableRow(NamedTuple):
    """The jobs that may be asked because of one limit."""

    limit: Limit
    tiers: Iterable[Tier]
    within_quota: bool = False
    """Whether the room must be found in the own quota of the job's queue, so that nothing is borrowed."""


class Table:
    """The rows for each waiting job."""

    def __init__(self, room: Room, givers: Givers, shares: Shares) -> None:
        """The result belongs to the caller, who may change it."""
        self._room = room
        self._givers = givers
        self._shares = shares

    @cached_property
    def _idle_of_all(self) -> Tier:
        return Tier(self._all(), "idle", first=self._shares.above)

    def attempts(self, waiting: Waiting) -> Iterator[Sequence[TableRow]]:
        """Yield the rows to try, one after the other, until the job fits."""
        claims = waiting.is_first and self._room.covers(waiting.queue, waiting.demand)
        pool = TableRow("pool", self._pool(waiting))
        yield TableRow("quota", self._quota(waiting)), TableRow("cohort", self._cohort(waiting, claims=claims)), pool
        if waiting.is_first and waiting.queue.spec.cohort and not claims:
            own = TableRow("quota", [self._idle_of(waiting)], within_quota=True)
            yield own, TableRow("cohort", self._cohort(waiting, claims=True)), pool

    def _quota(self, waiting: Waiting) -> Iterator[Tier]:
        yield self._idle_of(waiting)
        if waiting.is_first:
            priority = waiting.candidate.waiting.entry.priority
            yield Tier([giver for giver in self._of(waiting) if giver.job.priority < priority], "paid")

    def _cohort(self, waiting: Waiting, *, claims: bool) -> Iterator[Tier]:
        cohort = self._room.cohort(waiting.queue)
        members = [] if cohort is None else [giver for name in cohort.queues for giver in self._givers.get(name, ())]
        yield Tier(members, "idle", self._room.borrows)
        yield Tier(members, "idle")
        if claims:
            yield Tier(members, "paid", self._room.borrows)

    def _pool(self, waiting: Waiting) -> Iterator[Tier]:
        yield self._idle_of_all
        if waiting.may_take_paid and self._shares.paid_above(waiting.queue.spec.name) <= 0:
            yield Tier(self._all(), "paid", lambda queue: self._shares.paid_above(queue) > 0, self._shares.paid_above)

    def _all(self) -> Iterator[Giver]:
        return chain.from_iterable(self._givers.values())

    def _idle_of(self, waiting: Waiting) -> Tier:
        return Tier(self._of(waiting), "idle")

    def _of(self, waiting: Waiting) -> Sequence[Giver]:
        return self._givers.get(waiting.queue.spec.name, ())


class Search:
    """The searches of one plan."""

    def __init__(self, room: Room, nodes: NodeTrial, givers: Givers, shares: Shares) -> None:
        """The result belongs to the caller, and changes with each search that finds room, as do `nodes`."""
        self._room = room
        self._nodes = nodes
        self._chosen: Mapping[Giver, Sequence[WorkerPod]] = {}
        """The workers that leave because of their nodes, in the present search."""
        self._givers = givers
        self._cohorts = {room.queues[name].spec.cohort for name in givers}
        self._table = Table(room, givers, shares)
        self._searches, self._looks = _SEARCHES, _LOOKS
        self._least_used = self._without_idle()
        """What the pool uses once all idle growth is gone that can go."""

    @property
    def is_tired(self) -> bool:
        """Whether this plan has searched enough."""
        return self._searches <= 0 or self._looks <= 0

    def charge(self, demand: Amounts) -> None:
        """Note that a waiting job has got room."""
        amounts.increase(self._least_used, demand)

    def may_serve(self, queue: QueueState) -> bool:
        """Return whether some waiting job of a queue may find room in the pool."""
        return not queue.uniform or (queue.first is not None and self._may_fit(queue.first.demand))

    def find(self, waiting: Waiting) -> Sequence[Giver]:
        """Return the jobs that give room to a job that lacks room; none if all workers that may be removed are not
        enough.
        """
        if self.is_tired or not (waiting.may_take_paid or self._may_fit(waiting.demand)):
            return ()
        # The first limit that the job lacks says whether any job may be asked.
        limit, spec = self._room.lacks(waiting.queue, waiting.demand), waiting.queue.spec
        if limit is None and self._nodes.counts(waiting.candidate):
            limit = "pool"  # it lacks nodes
        if not (limit == "pool" or (spec.name in self._givers if limit == "quota" else spec.cohort in self._cohorts)):
            return ()
        self._searches -= 1
        for rows in self._table.attempts(waiting):
            victims, self._chosen = Victims(self._room, waiting.key), {}
            if all(self._ask(victims, waiting, row) for row in rows):
                victims.spare(self._fits_within if rows[0].within_quota else self._fits, waiting)
                for job, workers in victims.paid:
                    amounts.increase(self._least_used, job.unit, -workers)
                for giver in victims.givers if self._nodes.known else ():
                    self._nodes.give(giver, self._chosen.get(giver, ()))
                return victims.givers
            victims.undo()
        return ()

    def _ask(self, victims: Victims, waiting: Waiting, row: TableRow) -> bool:
        """Ask the tiers of a row, and return whether its limit lacks nothing any more."""

        def lacking() -> Amounts:
            if row.within_quota:
                return self._room.beyond_quota(waiting.queue, waiting.demand)
            return self._room.lacking(row.limit, waiting.queue, waiting.demand)

        def counts(queue: str, name: str) -> bool:
            return self._room.counts(row.limit, queue, name)

        if row.limit == "pool" and self._nodes.counts(waiting.candidate):
            return self._ask_for_nodes(victims, waiting, row)
        if not lacking():
            return True
        for tier in row.tiers:
            self._looks, tier.looked_at = self._looks - tier.looked_at, 0
            if victims.take(tier, lacking, counts):
                return True
        return False

    def _ask_for_nodes(self, victims: Victims, waiting: Waiting, row: TableRow) -> bool:
        """Ask the tiers of a row for all that they may give, and choose the workers without which the pods of the job
        find nodes. What is not needed is spared later."""

        def is_done() -> bool:
            most = {giver: giver.given - self._nodes.gone(giver.job.key) for giver in victims.givers}
            chosen = self._nodes.choose(waiting.queue, waiting.candidate, most)
            self._chosen = chosen or {}
            return chosen is not None and not self._room.lacking("pool", waiting.queue, waiting.demand)

        def wanted() -> Amounts:
            self._looks -= 2  # a worker on trial takes twice the time
            return waiting.demand if self._looks > 0 else NOTHING

        if is_done():
            return True
        for tier in row.tiers:
            self._looks, tier.looked_at = self._looks - tier.looked_at, 0
            victims.take(tier, wanted, lambda *_: True)
            if is_done():
                return True
        return False

    def _fits(self, waiting: Waiting) -> bool:
        gives = (giver.given - self._nodes.gone(giver.job.key) >= len(pods) for giver, pods in self._chosen.items())
        return self._room.fits(waiting.queue, waiting.demand) and all(gives)

    def _fits_within(self, waiting: Waiting) -> bool:
        """Return whether a job fits, and borrows nothing."""
        return self._fits(waiting) and self._room.covers(waiting.queue, waiting.demand)

    def _may_fit(self, demand: Amounts) -> bool:
        return amounts.fits(demand, self._least_used, self._room.capacity)

    def _without_idle(self) -> dict[str, int]:
        used = dict(self._room.pool_used)
        for givers in self._givers.values():
            for giver in givers:
                if giver.idle:
                    amounts.increase(used, giver.job.unit, -giver.idle)
        return used
