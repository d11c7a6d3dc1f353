"""What a queue can win by how it shows its jobs: games against the production race.

One rule: pure. Fixed plays from a seed; the fluid share that a play is measured against is computed here, from the
picks alone.

A queue's fluid share is what it gets if all contending queues are served at once, each at its weight's speed. What a
pick takes in advance counts as served over time: a queue that is ahead has a share until it is even, also while it
shows nothing. What a queue that leaves has not got is shared by those that stay.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from bench.report import Figures
from bench.support.arena import Production
from crds.keys import JobKey
from crds.resources import amounts
from queues.rules import Rules
from queues.values import Entry, QueueSpec

GPU = "nvidia.com/gpu"
START = 1_700_000_000.0
LARGE = 64
SIZES = (1, 2, 8, 32, LARGE)
_BACKLOG = 2
_PAIR = 2
_LONGEST_AWAY = 70
_RARELY = 0.02
"""How likely the admin changes a weight, at each pick."""
_EVEN = 1e-9
"""An excess of less counts as none: shares are not exact here."""


@dataclass(slots=True)
class Fluid:
    """How far each queue is ahead of its fluid share, in units of cost."""

    ahead: dict[str, float] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    """The weights of the queues that have a share now."""

    def see(self, contending: Mapping[str, int], queue: str, cost: int) -> None:
        """Count a pick among queues of these weights."""
        self._let_go(contending)
        self.weights.update(contending)
        whole = sum(self.weights.values())
        for name, weight in self.weights.items():
            self.ahead[name] = self.ahead.get(name, 0.0) - cost * weight / whole
        self.ahead[queue] += cost
        self._let_go(contending)

    def _let_go(self, contending: Mapping[str, int]) -> None:
        while gone := [name for name in self.weights if name not in contending and self.ahead[name] <= _EVEN]:
            left = self.ahead.pop(gone[0])
            del self.weights[gone[0]]
            whole = sum(self.weights.values())
            for name, weight in self.weights.items():
                self.ahead[name] += left * weight / whole


@dataclass(slots=True)
class Table:
    """The queues of a game, as the players see them."""

    arena: Production
    chance: random.Random
    _numbers: Iterator[int] = field(default_factory=count)

    def waits(self, queue: str) -> int:
        """How many jobs a queue shows."""
        return len(self.arena.lines[queue].waiting)

    def show(self, queue: str, gpus: int, jobs: int = 1) -> None:
        """Let jobs wait."""
        for _ in range(jobs):
            number = next(self._numbers)
            key = JobKey(queue, f"job-{number:07}", f"uid-{number}")
            self.arena.put(Entry(key=key, queue=queue, submitted=START + number, demand={amounts.JOBS: 1, GPU: gpus}))

    def hide(self, queue: str) -> None:
        """Withdraw all jobs of a queue."""
        for waiting in list(self.arena.lines[queue].waiting):
            self.arena.withdraw(waiting.entry)

    def away(self, longest: int = _LONGEST_AWAY) -> range:
        """For how many picks a queue stays away."""
        return range(self.chance.randint(0, longest))


Player = Callable[[Table, str], Iterator[None]]
"""What a queue does before each pick."""


def honest(table: Table, queue: str) -> Iterator[None]:
    """Jobs of one GPU without end."""
    while True:
        table.show(queue, 1, _BACKLOG - table.waits(queue))
        yield


def large(table: Table, queue: str) -> Iterator[None]:
    """Large jobs without end."""
    while True:
        table.show(queue, LARGE, _BACKLOG - table.waits(queue))
        yield


def one_at_a_time(table: Table, queue: str) -> Iterator[None]:
    """The next large job a moment after the last one was picked, as a sequential script does."""
    while True:
        table.show(queue, LARGE)
        while table.waits(queue):
            yield
        for _ in table.away(3):
            yield


def hold_and_let_go(table: Table, queue: str) -> Iterator[None]:
    """Two large jobs; after each pick the other one is withdrawn for a while."""
    while True:
        table.show(queue, LARGE, 2)
        while table.waits(queue) > 1:
            yield
        table.hide(queue)
        yield
        for _ in table.away(table.chance.choice((0, _LONGEST_AWAY))):
            yield


def split(table: Table, queue: str) -> Iterator[None]:
    """A large job in parts of one GPU, all at once after a while of nothing."""
    while True:
        table.show(queue, 1, LARGE)
        while table.waits(queue):
            yield
        for _ in table.away(2 * LARGE):
            yield


def sizes(table: Table, queue: str) -> Iterator[None]:
    """Sizes one after the other; the job that is shown is often replaced before its turn, a small one by a large."""
    while True:
        for gpus in SIZES:
            table.hide(queue)
            table.show(queue, gpus)
            for _ in table.away(3):
                yield
        while table.waits(queue):
            yield


def anything(table: Table, queue: str) -> Iterator[None]:
    """One play after the other, each for a while."""
    while True:
        player = table.chance.choice((honest, large, one_at_a_time, hold_and_let_go, split, sizes))
        play = player(table, queue)
        for _ in range(table.chance.randint(1, 200)):
            next(play)
            yield
        table.hide(queue)
        for _ in table.away():
            yield


@dataclass(frozen=True, slots=True)
class Game:
    """Players at a table, by queue."""

    players: Mapping[str, Player]
    weights: Mapping[str, int]
    reweighed: bool = False
    """Whether the admin changes weights now and then."""


def games() -> Mapping[str, Game]:
    """Each way of playing against a queue that always has jobs, of equal and of other weight; then several at once."""
    found = {}
    for player in (large, one_at_a_time, hold_and_let_go, split, sizes, anything):
        for mine, theirs in ((1, 1), (5, 1), (1, 5)):
            for other in (honest, large):
                name = f"{player.__name__} {mine}:{theirs} {other.__name__}"
                found[name] = Game({"player": player, "other": other}, {"player": mine, "other": theirs})
    everyone = {f"q{number}": player for number, player in enumerate((one_at_a_time, hold_and_let_go, split, sizes))}
    others: dict[str, Player] = {"other-a": honest, "other-b": honest, "other-c": large}
    crowd = {f"q{number:02}": anything for number in range(12)}
    found["several 1:1"] = Game({**everyone, **others}, dict.fromkeys((*everyone, *others), 1))
    found["several 5:1"] = Game({**everyone, **others}, {**dict.fromkeys(everyone, 5), **dict.fromkeys(others, 1)})
    found["weights"] = Game({"player": one_at_a_time, "other": honest}, {"player": 1, "other": 1}, reweighed=True)
    found["anything"] = Game({**crowd, **others}, dict.fromkeys((*crowd, *others), 1), reweighed=True)
    return found


def run(picks: int, seed: int) -> Figures:
    """Every game, so many picks each; the worst gain of any queue in any of them."""
    played = {name: play(game, picks, seed) for name, game in games().items()}
    worst = max(figures["worst_gain_largest_jobs"] for figures in played.values())
    return {"picked": picks * len(played), "worst_gain_largest_jobs": worst, "games": played}


def play(game: Game, picks: int, seed: int) -> Figures:
    """How far any queue came ahead of its fluid share, and what each queue got; of a pair whose weights stay also how
    much more than its weight's part of everything the first queue got in any interval."""
    specs = [QueueSpec(name=name, weight=weight) for name, weight in game.weights.items()]
    table = Table(Production(specs, None, Rules(cost=GPU)), random.Random(seed))
    watch = _Watch(game.weights)
    plays = [player(table, name) for name, player in game.players.items()]
    left = picks
    while left:
        for each in plays:
            next(each)
        if game.reweighed and table.chance.random() < _RARELY:
            table.arena.reweigh(table.chance.choice(list(game.weights)), table.chance.choice((1, 2, 5, 50)))
        contending = {name: line.spec.weight for name, line in table.arena.lines.items() if line.waiting}
        for entry in table.arena.admit(START, 1):
            watch.see(contending, entry.queue, entry.demand[GPU])
            left -= 1
    return watch.figures(beyond=len(game.players) == _PAIR and not game.reweighed)


class _Watch:
    """What has been picked, against the fluid share and against the weights."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._fluid, self._part = Fluid(), next(iter(weights.values())) / sum(weights.values())
        self._served = dict.fromkeys(weights, 0)
        self._first: str = next(iter(weights))
        self._worst = self._beyond = self._over = 0.0
        self._largest = 0

    def see(self, contending: Mapping[str, int], queue: str, cost: int) -> None:
        """Count a pick."""
        self._fluid.see(contending, queue, cost)
        self._served[queue] += cost
        self._largest = max(self._largest, cost)
        self._worst = max(self._worst, self._fluid.ahead[queue])
        self._over = max(0.0, self._over + (cost if queue == self._first else 0) - cost * self._part)
        self._beyond = max(self._beyond, self._over)

    def figures(self, *, beyond: bool) -> Figures:
        """In units of the largest job, and as parts of everything."""
        total = sum(self._served.values())
        return {
            "worst_gain_largest_jobs": self._worst / self._largest,
            **({"worst_beyond_weight_largest_jobs": self._beyond / self._largest} if beyond else {}),
            "shares": {name: served / total for name, served in self._served.items()},
        }
