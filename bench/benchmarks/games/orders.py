"""Games against the coordinator's picker: queues that try to gain more than their share by the way in which they submit
jobs.

One rule: pure. The plays come from a seed, and the fluid share of a queue is computed here from the picks alone.

A queue's fluid share is the cost that it would get if all contending queues were served at once, in proportion to their
weights. A pick puts its queue ahead of that share. A queue that is ahead keeps a share until it is even again, also
while no job of it waits. If a queue leaves before it has got its share, the other queues get its remaining share.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from bench.report import Figures
from bench.support.arena import GPU, START, Production, entry
from queues.rules import PickRules
from queues.values import QueueSpec

LARGE = 64
SIZES = (1, 2, 8, 32, LARGE)
_BACKLOG = 2
_PAIR = 2
_LONGEST_AWAY = 70
_RARELY = 0.02
"""The probability at each pick that the administrator changes a weight."""
_EVEN = 1e-9
"""A smaller excess counts as none, because shares are floating-point numbers here."""


@dataclass(slots=True)
class Fluid:
    """The cost by which each queue is ahead of its fluid share."""

    ahead: dict[str, float] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    """The weights of the queues that have a share now."""

    def see(self, contending: Mapping[str, int], queue: str, cost: int) -> None:
        """Count a pick among queues of these weights."""
        self._remove_even(contending)
        self.weights.update(contending)
        total = sum(self.weights.values())
        for name, weight in self.weights.items():
            self.ahead[name] = self.ahead.get(name, 0.0) - cost * weight / total
        self.ahead[queue] += cost
        self._remove_even(contending)

    def _remove_even(self, contending: Mapping[str, int]) -> None:
        while leaving := [name for name in self.weights if name not in contending and self.ahead[name] <= _EVEN]:
            excess = self.ahead.pop(leaving[0])
            del self.weights[leaving[0]]
            total = sum(self.weights.values())
            for name, weight in self.weights.items():
                self.ahead[name] += excess * weight / total


@dataclass(slots=True)
class Table:
    """The queues of a game, with the actions of a player."""

    arena: Production
    chance: random.Random
    _numbers: Iterator[int] = field(default_factory=count)

    def waits(self, queue: str) -> int:
        """Return the number of jobs that wait in a queue."""
        return len(self.arena.lines[queue].waiting)

    def show(self, queue: str, gpus: int, jobs: int = 1) -> None:
        """Add waiting jobs."""
        for _ in range(jobs):
            number = next(self._numbers)
            self.arena.put(entry(queue, number, START + number, {GPU: gpus}))

    def hide(self, queue: str) -> None:
        """Withdraw all jobs of a queue."""
        for waiting in list(self.arena.lines[queue].waiting):
            self.arena.withdraw(waiting.entry)

    def away(self, longest: int = _LONGEST_AWAY) -> range:
        """Return a range of random length: the picks for which a queue stays away."""
        return range(self.chance.randint(0, longest))


Player = Callable[[Table, str], Iterator[None]]
"""The play of a queue: one step of the iterator before each pick."""


def honest(table: Table, queue: str) -> Iterator[None]:
    """Submit jobs of one GPU without end."""
    while True:
        table.show(queue, 1, _BACKLOG - table.waits(queue))
        yield


def large(table: Table, queue: str) -> Iterator[None]:
    """Submit large jobs without end."""
    while True:
        table.show(queue, LARGE, _BACKLOG - table.waits(queue))
        yield


def one_at_a_time(table: Table, queue: str) -> Iterator[None]:
    """Submit the next large job a moment after the last job was picked, as a sequential script does."""
    while True:
        table.show(queue, LARGE)
        while table.waits(queue):
            yield
        for _ in table.away(3):
            yield


def hold_and_let_go(table: Table, queue: str) -> Iterator[None]:
    """Submit two large jobs. After each pick, withdraw the other job for a while."""
    while True:
        table.show(queue, LARGE, 2)
        while table.waits(queue) > 1:
            yield
        table.hide(queue)
        yield
        for _ in table.away(table.chance.choice((0, _LONGEST_AWAY))):
            yield


def split(table: Table, queue: str) -> Iterator[None]:
    """Submit a large job in parts of one GPU, all at once after a pause."""
    while True:
        table.show(queue, 1, LARGE)
        while table.waits(queue):
            yield
        for _ in table.away(2 * LARGE):
            yield


def sizes(table: Table, queue: str) -> Iterator[None]:
    """Submit jobs of rising size. Often replace the waiting job before its turn, a small one by a large one."""
    while True:
        for gpus in SIZES:
            table.hide(queue)
            table.show(queue, gpus)
            for _ in table.away(3):
                yield
        while table.waits(queue):
            yield


def anything(table: Table, queue: str) -> Iterator[None]:
    """Play one of the other plays after the other, each for a while."""
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
    """The players of a game by queue, and the weights of the queues."""

    players: Mapping[str, Player]
    weights: Mapping[str, int]
    reweighed: bool = False
    """Whether the admin changes weights now and then."""


def games() -> Mapping[str, Game]:
    """Return each play against a queue that always has jobs, with equal and with other weights; then several plays at
    once."""
    result = {}
    for player in (large, one_at_a_time, hold_and_let_go, split, sizes, anything):
        for first, second in ((1, 1), (5, 1), (1, 5)):
            for other in (honest, large):
                name = f"{player.__name__} {first}:{second} {other.__name__}"
                result[name] = Game({"player": player, "other": other}, {"player": first, "other": second})
    everyone = {f"q{number}": player for number, player in enumerate((one_at_a_time, hold_and_let_go, split, sizes))}
    others: dict[str, Player] = {"other-a": honest, "other-b": honest, "other-c": large}
    crowd = {f"q{number:02}": anything for number in range(12)}
    result["several 1:1"] = Game({**everyone, **others}, dict.fromkeys((*everyone, *others), 1))
    result["several 5:1"] = Game({**everyone, **others}, {**dict.fromkeys(everyone, 5), **dict.fromkeys(others, 1)})
    result["weights"] = Game({"player": one_at_a_time, "other": honest}, {"player": 1, "other": 1}, reweighed=True)
    result["anything"] = Game({**crowd, **others}, dict.fromkeys((*crowd, *others), 1), reweighed=True)
    return result


def run(picks: int, seed: int) -> Figures:
    """Play every game for `picks` picks. Return the results, and the largest gain of any queue in any game."""
    played = {name: play(game, picks, seed) for name, game in games().items()}
    worst = max(figures["worst_gain_largest_jobs"] for figures in played.values())
    return {"picked": picks * len(played), "worst_gain_largest_jobs": worst, "games": played}


def play(game: Game, picks: int, seed: int) -> Figures:
    """Play a game. Return the largest gain of any queue over its fluid share, and each queue's share of the picks.

    For a pair of queues with constant weights, also return the most that the first queue got beyond its weight's part
    in any interval."""
    specs = [QueueSpec(name=name, weight=weight) for name, weight in game.weights.items()]
    table = Table(Production(specs, None, PickRules(cost=GPU)), random.Random(seed))
    watch = _Watch(game.weights)
    plays = [player(table, name) for name, player in game.players.items()]
    remaining = picks
    while remaining:
        for turn in plays:
            next(turn)
        if game.reweighed and table.chance.random() < _RARELY:
            table.arena.reweigh(table.chance.choice(list(game.weights)), table.chance.choice((1, 2, 5, 50)))
        contending = {name: line.spec.weight for name, line in table.arena.lines.items() if line.waiting}
        for picked in table.arena.admit(START, 1):
            watch.see(contending, picked.queue, picked.demand[GPU])
            remaining -= 1
    return watch.figures(beyond=len(game.players) == _PAIR and not game.reweighed)


class _Watch:
    """The picks of a game, compared with the fluid shares and with the weights."""

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
        """Return the gains in units of the largest job, and the shares as parts of all picks."""
        total = sum(self._served.values())
        return {
            "worst_gain_largest_jobs": self._worst / self._largest,
            **({"worst_beyond_weight_largest_jobs": self._beyond / self._largest} if beyond else {}),
            "shares": {name: served / total for name, served in self._served.items()},
        }
