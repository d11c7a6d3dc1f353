"""One queue during a round of picks: its next job, what its quota has left, and how long that job was overtaken.

One rule: a job that can never run, because it is larger than its queue's quota or the pool, is passed over.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from crds import amounts
from crds.amounts import NOTHING, Amounts
from queues.credits import Bid
from queues.values import Overtaken, QueueView, Waiting


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a job lets others overtake it for want of room in the pool."""

    times: int = 2
    """How many picks may overtake it; times their cost, it is how far the shares may drift meanwhile."""
    seconds: float = 30.0
    """How long after the first of them, at most."""

    def ends(self, overtaken: Overtaken, now: float) -> bool:
        """Whether the job has let enough others go first."""
        return overtaken.times >= self.times or now - overtaken.since >= self.seconds


@dataclass(slots=True)
class Lane:
    """A queue's working copy. A lane contends while it has a bid."""

    view: QueueView
    cost: str
    used: Amounts
    candidates: deque[Waiting]
    """The jobs of the snapshot that could ever run, in order."""
    overtaken: Overtaken | None
    taken: int = 0

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.view.spec.name

    @property
    def head(self) -> Waiting:
        """The next job; there is one if the lane contends."""
        return self.candidates[0]

    @property
    def demand(self) -> Amounts:
        """What the next job takes."""
        return self.head.entry.demand

    @property
    def bid(self) -> Bid | None:
        """The claim to the next turn; None unless the queue is open, not empty, and its next job fits its quota."""
        spec = self.view.spec
        if not spec.open or not self.candidates or not amounts.fits(self.demand, self.used, spec.quota):
            return None
        return Bid(spec.weight, price(self.demand, self.cost))

    @property
    def ran_out(self) -> bool:
        """Whether its next job is one that the snapshot does not show."""
        return self.taken > 0 and not self.candidates and self.view.waiting > len(self.view.heads)

    def advance(self) -> None:
        """The next job is picked; the one after it is next."""
        waiting = self.candidates.popleft()
        self.used = amounts.add(self.used, waiting.entry.demand)
        self.taken += 1

    def overtake(self, now: float) -> Overtaken:
        """Another queue's job goes before the next job, whose turn it is."""
        known = self.overtaken
        key = self.head.entry.key
        if known is None or known.key != key:
            known = Overtaken(key=key, times=0, since=now)
        self.overtaken = Overtaken(key=key, times=known.times + 1, since=known.since)
        return self.overtaken

    def waits_since(self, now: float, patience: Patience) -> float | None:
        """Since when the next job was overtaken, once its patience has ended; None before."""
        if self.overtaken is None or self.bid is None or self.overtaken.key != self.head.entry.key:
            return None
        return self.overtaken.since if patience.ends(self.overtaken, now) else None


def price(demand: Amounts, cost: str) -> int:
    """What a job costs its queue: the amount of the resource the admin counts by, at least 1."""
    return max(1, demand.get(cost, 0))


def build(view: QueueView, pool: Amounts, cost: str) -> Lane:
    """The lane of a queue in a snapshot."""
    return Lane(view, cost, view.usage, deque(_possible(view, pool)), view.overtaken)


def _possible(view: QueueView, pool: Amounts) -> Iterator[Waiting]:
    for waiting in view.heads:
        demand = waiting.entry.demand
        if amounts.fits(demand, NOTHING, view.spec.quota) and amounts.fits(demand, NOTHING, pool):
            yield waiting
