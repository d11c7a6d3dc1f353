"""One queue's jobs during a round of picks: which is first, and which of those behind it may be asked instead.

One rule: a job that can never run, because it is larger than its queue, its cohort or the pool could ever give, is
passed over and counted nowhere.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from crds.resources import amounts
from crds.resources.amounts import NOTHING, Amounts
from queues.rules import Patience
from queues.values import Behind, Overtaken, QueueView, Waiting

Shape = frozenset[tuple[str, int]]
"""A demand as a value: equal demands have equal shapes."""

Fate = Literal["waits", "impossible", "unknown", "withdrawn"]
"""Of a job for which the pool's room was kept: it is its queue's first job, asks for the same, and quota, cohort and
what its own queue uses let it go; it is larger than what there can ever be; none of the queue's jobs is known; it has
left its place, asks for something else, or quota, cohort or what its own queue uses do not let it go any more."""


@dataclass(slots=True)
class Candidate:
    """A known job that could run some day."""

    waiting: Waiting
    demand: Amounts
    at: int
    """Its position among the known jobs; the first possible one of a queue has the least."""


class Lane:
    """A queue's working copy."""

    __slots__ = (
        "_at",
        "_hopeless",
        "_places",
        "_shown",
        "_taken",
        "asked",
        "asks",
        "beyond",
        "ceiling",
        "claims",
        "first",
        "known",
        "left",
        "offers",
        "overtaken",
        "spec",
        "uniform",
        "used",
    )

    def __init__(self, view: QueueView, ceiling: Amounts) -> None:
        """`ceiling` is the most that any job of the queue can ever have."""
        self.spec = view.spec
        self.used = dict(view.usage)
        """What the queue uses of what quota or pool limit; of the rest, what it used before anything was picked."""
        self.overtaken = view.overtaken
        self.offers: tuple[Candidate, ...] = ()
        """The jobs that quota and cohort let go now; the queue contends while there are any."""
        self.claims = False
        """Whether the pool's room may be kept for the first job: it leads, and would fit beside what its own queue
        uses. The owner decides when that is free again, so that room could be kept in vain for ever."""
        self.asks: Amounts | None = None
        """What its first job asks for, if the ledger was told that it contends with that and with no other."""
        self.asked: int | None = None
        """How many jobs were known and left when more of them were asked for, if nothing has come of that yet."""
        self.ceiling = ceiling
        self._know(view.heads, view.waiting - len(view.heads))

    def _know(self, jobs: Sequence[Waiting], beyond: int) -> None:
        self.known = jobs
        self.beyond = beyond
        """How many jobs wait behind the known ones."""
        self.left = self._shown = len(jobs)
        """How many of the known jobs are not picked."""
        self.uniform = _alike(jobs)
        """Whether all known jobs ask for the same."""
        self._at = 0
        self._hopeless: list[Waiting] = []
        """The known jobs before the first possible one."""
        self._taken: set[int] = set()
        """Which behind the first one are picked."""
        self._places: dict[Shape, deque[int]] | None = None
        self.first = self._find()
        """The first known job that could ever run."""

    def learn(self, view: QueueView | Behind) -> None:
        """More jobs behind those that are known, some of which may be picked since they were asked for; if they are not
        what follows, nothing is known any more."""
        expected, self.asked = self.left if self.asked is None else self.asked, None
        if view.after == expected:
            picked = expected - self.left
            possible = self.known[self._at :]
            if self._taken:
                possible = [job for at, job in enumerate(possible, self._at) if at not in self._taken]
            known = [*self._hopeless, *possible, *view.heads]
            self._know(known, view.waiting - picked - len(known))
        else:
            self._know((), view.waiting)

    def distinct(self) -> Iterator[Candidate]:
        """The first possible job of each distinct demand, in order."""
        if self._places is None:
            self._places = self._by_shape()
        for places in self._places.values():
            while places and (places[0] < self._at or places[0] in self._taken):
                places.popleft()
        for at in sorted(places[0] for places in self._places.values() if places):
            yield Candidate(self.known[at], self.known[at].demand, at)

    def let_go(self, lets: "Lets", bypasses: int, *, scarce: bool) -> tuple[Candidate, ...]:
        """The jobs that quota and cohort let go now, in order. The first one alone where nothing may pass it, or where
        nothing can: all ask for the same, or it fits, and there is no pool that might lack room (`scarce`)."""
        first = self.first
        if first is None or not self.spec.open:
            return ()
        fits = not self.spec.quota or lets(self, first.demand)
        if self.uniform or (fits and not scarce) or not self.lets_pass(bypasses):
            return (first,) if fits else ()
        free = (each for each in self.distinct() if lets(self, each.demand))
        if not self.bound:
            return tuple(free)
        # What passes the job for which room is kept must leave what it needs: the room would be idle in vain.
        return tuple(each for each in free if each.at == first.at or self.leaves(lets, first.demand, each.demand))

    def leaves(self, lets: "Lets", needed: Amounts, demand: Amounts) -> bool:
        """Whether quota, cohort and the room beside what the queue uses hold both."""
        return lets(self, amounts.add(needed, demand)) and self.fits_alone(beside=demand)

    def possible(self) -> Iterator[Candidate]:
        """The possible jobs that are known and not picked, in order."""
        for at in range(self._at, len(self.known)):
            job = self.known[at]
            if at not in self._taken and amounts.fits(job.demand, NOTHING, self.ceiling):
                yield Candidate(job, job.demand, at)

    def take(self, candidate: Candidate) -> None:
        """The job is picked."""
        self.left -= 1
        if self.ceiling:
            charge_limited(self.used, candidate.demand, self.ceiling)
        if candidate.at == self._at:
            self._at += 1
            self.first = self._find()
        else:
            self._taken.add(candidate.at)

    @property
    def leads(self) -> bool:
        """Whether the queue's first possible job is the one it contends with."""
        return bool(self.offers) and self.first is not None and self.offers[0].at == self.first.at

    def fits_alone(self, beside: Amounts = NOTHING) -> bool:
        """Whether the first job would find room if no other queue used anything; also with so much more in use."""
        if self.first is None:
            return False
        demand = amounts.add(self.first.demand, beside) if beside else self.first.demand
        return amounts.fits(demand, self.used, self.ceiling)

    def may_claim(self, demand: Amounts) -> bool:
        """Whether room may be kept for a job: it would fit beside what its own queue uses, and needs no quota of other
        queues. Those may take back what they lend at any moment, so room for a job that borrows is kept in vain."""
        if not amounts.fits(demand, self.used, self.ceiling):
            return False
        return not self.spec.cohort or amounts.fits(demand, self.used, self.spec.quota)

    @property
    def passed(self) -> Overtaken | None:
        """How the first job was overtaken so far; what happened to jobs before it does not count."""
        known = self.overtaken
        if known is None or self.first is None:
            return None
        key = self.first.waiting.entry.key
        return known if known.key is key or known.key == key else None

    def lets_pass(self, times: int) -> bool:
        """Whether other jobs may pass the first one, if so many may."""
        return not self.spec.strict and (self.passed.times if self.passed else 0) < times

    def overtake(self, now: float) -> Overtaken:
        """Another job goes before the first one, whose turn it is."""
        known = self.passed
        if self.first is None:
            raise ValueError(f"queue {self.spec.name} has no job that could be overtaken")
        key = self.first.waiting.entry.key
        if known is None:
            self.overtaken = Overtaken(key=key, times=1, since=now)
        else:
            self.overtaken = Overtaken(key=key, times=known.times + 1, since=known.since, kept=known.kept)
        return self.overtaken

    def keep(self) -> Overtaken:
        """Room is kept for the first job, which was overtaken, from now on."""
        known = self.passed
        if self.first is None or known is None:
            raise ValueError(f"queue {self.spec.name} has no job that was overtaken")
        self.overtaken = replace(known, kept=self.first.demand)
        return self.overtaken

    @property
    def bound(self) -> bool:
        """Whether room is or was kept for the first job."""
        known = self.passed
        return known is not None and known.kept is not None

    @property
    def fate(self) -> Fate:
        """What has become of the job for which room is kept, while nothing else is picked."""
        known, first = self.overtaken, self.first
        if known is None or known.kept is None:
            return "withdrawn"
        if first is not None and first.waiting.entry.key == known.key:
            waits = first.demand == known.kept and (self.leads or not self.spec.open)
            return "waits" if waits else "withdrawn"
        if any(job.entry.key == known.key and job.demand == known.kept for job in self._hopeless):
            return "impossible"
        return "unknown" if first is None and self.beyond and not self.left else "withdrawn"

    def waits_since(self, now: float, patience: Patience) -> float | None:
        """Since when the first job was overtaken, once its patience for the pool has ended; None before, and while it
        waits for something else."""
        known = self.passed
        return known.since if known and self.claims and patience.ends(known, now) else None

    @property
    def dry(self) -> bool:
        """Whether the next job is one that is not known, because all known ones are picked."""
        return self.beyond > 0 and (not self.left or self.left < self._shown) and self.first is None

    @property
    def blind(self) -> bool:
        """Whether only jobs are known that can never run, and others wait behind them."""
        return self.beyond > 0 and self.first is None and 0 < self.left == self._shown

    @property
    def shallow(self) -> bool:
        """Whether others wait behind the known jobs: if none of the known ones can go, one of those might."""
        return self.beyond > 0 and self.spec.open

    @property
    def low(self) -> bool:
        """Whether it is time to learn of more jobs: half of those that were known are gone, or none of them can go."""
        if not self.beyond:
            return False
        if self.left == self._shown:
            return self.first is None
        return not self.offers or 2 * self.left <= self._shown

    def _find(self) -> Candidate | None:
        known, at = self.known, self._at
        while at < len(known):
            waiting = known[at]
            if at not in self._taken:
                demand = waiting.demand
                if demand is self.asks or amounts.fits(demand, NOTHING, self.ceiling):
                    self._at = at
                    return Candidate(waiting, demand, at)
                self._hopeless.append(waiting)
            at += 1
        self._at = at
        return None

    def _by_shape(self) -> dict[Shape, deque[int]]:
        places: dict[Shape, deque[int]] = {}
        for at in range(self._at, len(self.known)):
            demand = self.known[at].demand
            if at not in self._taken and amounts.fits(demand, NOTHING, self.ceiling):
                places.setdefault(shape(demand), deque()).append(at)
        return places


Lets = Callable[[Lane, Amounts], bool]
"""Whether quota and cohort let a queue have so much more."""


def _alike(jobs: Sequence[Waiting]) -> bool:
    """Whether all ask for the same. Equal demands mostly are one object."""
    demand = jobs[0].demand if jobs else NOTHING
    return not [job for job in jobs if job.demand is not demand and job.demand != demand]


def shape(demand: Amounts) -> Shape:
    """The demand as a value."""
    return frozenset(demand.items())


def price(demand: Amounts, cost: str) -> int:
    """What a job costs its queue: the amount of the resource the admin counts by, at least 1."""
    asked = demand.get(cost, 0)
    return asked if asked > 1 else 1  # every pick asks: a call of `max` would cost more than all the rest


def charge(used: dict[str, int], demand: Amounts) -> None:
    """Count a demand as used."""
    for name, amount in demand.items():
        used[name] = used.get(name, 0) + amount


def charge_limited(used: dict[str, int], demand: Amounts, limit: Amounts) -> None:
    """The same, of names that a limit mentions alone: jobs make up any number of others."""
    for name, amount in demand.items():
        if name in limit:
            used[name] = used.get(name, 0) + amount
