"""Games by place conditions: nobody gets more by naming nodes than by the same jobs that name none.

One rule: a game is compared with the same play without conditions, as jobs of other sizes gain or lose by their sizes.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import pytest

from crds.keys import JobKey
from queues.placement.gangs import EVERY, NodeSet
from tests.support.queues.builders import GPU
from tests.support.queues.node_cluster import NodeCluster

NODES = 6
SECONDS = 400
LARGEST = 16 * 20.0
"""The GPU seconds of the largest job."""
HONEST = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2), (2, 4), (2, 8))
"""The pods of honest jobs, and the GPUs of each."""


def allowed(where: str) -> NodeSet:
    return sum(1 << int(node) for node in where.split(",")) if where else EVERY


@dataclass
class Game:
    """A player in queue a, and honest tenants in the queues b and c."""

    chance: Random
    honest_nodes: str = ""
    """The nodes on which the jobs of the honest tenants run."""
    names: bool = True
    """Whether the player names nodes."""
    got: Counter[str] = field(default_factory=Counter)
    """By queue, the GPU seconds of the jobs that were admitted."""
    submitted: int = 0
    _jobs: dict[JobKey, tuple[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster = NodeCluster([8] * NODES, queues="abc", allowed=allowed)

    def waiting(self, queue: str = "a") -> list[JobKey]:
        views = self.cluster.store.snapshot(100).queues
        return [head.entry.key for view in views if view.spec.name == queue for head in view.heads]

    def submit(self, queue: str, pods: int, gpu: int, where: str = "") -> None:
        self.submitted += 1
        length = 5.0 + self.chance.randrange(15)
        where = where if self.names or queue != "a" else ""
        key = self.cluster.submit(f"job-{self.submitted}", queue, pods, gpu, length, where)
        self._jobs[key] = queue, pods * gpu * length

    def withdraw(self) -> None:
        self.cluster.store.remove(self.waiting())

    def second(self) -> None:
        for queue in "bc":
            for _ in range(3 - len(self.waiting(queue))):
                self.submit(queue, *self.chance.choice(HONEST), self.honest_nodes)
        before = set(self.cluster.ends)
        self.cluster.second()
        for key in set(self.cluster.ends) - before:
            queue, seconds = self._jobs[key]
            self.got[queue] += seconds


Play = Callable[[Game], None]
"""What a player does each second."""


def asks_for_one_node_each(game: Game) -> None:
    for _ in range(3 - len(game.waiting())):
        game.submit("a", 1, game.chance.choice((1, 2, 4, 8)), str(game.submitted % NODES))


def names_all_nodes_in_other_words_each_time(game: Game) -> None:
    for _ in range(3 - len(game.waiting())):
        first = game.submitted % NODES
        game.submit("a", *game.chance.choice(HONEST), ",".join(str((first + n) % NODES) for n in range(NODES)))


def names_a_rack_that_nobody_else_uses(game: Game) -> None:
    for _ in range(3 - len(game.waiting())):
        game.submit("a", *game.chance.choice(HONEST), "0,1" if game.submitted % 2 else "")


def names_nodes_and_leaves_them_idle(game: Game) -> None:
    """Withdraw the job once the nodes that are kept for it are free."""
    places = game.cluster.places
    if places.kept and all(places.room.free(node)[GPU] == 8 for node in range(NODES) if places.kept >> node & 1):
        game.withdraw()
    if not game.waiting():
        game.submit("a", 2, 8, f"{game.submitted % NODES},{(game.submitted + 1) % NODES}")


def says_something_else_each_second(game: Game) -> None:
    game.withdraw()
    for pods, gpu in ((1, 8), (2, 4), (1, 2)):
        game.submit("a", pods, gpu, str(game.submitted % NODES) if game.submitted % 2 else "")


def played(play: Play, seeds: Iterable[int], *, names: bool, honest_nodes: str = "") -> Counter[str]:
    """Return what each queue got in several games."""
    got: Counter[str] = Counter()
    for seed in seeds:
        game = Game(Random(seed), honest_nodes, names)
        for _ in range(SECONDS):
            play(game)
            game.second()
        got += game.got
    return got


@pytest.mark.proof
@pytest.mark.parametrize(
    ("play", "honest_nodes"),
    [
        (asks_for_one_node_each, ""),
        (names_all_nodes_in_other_words_each_time, ""),
        (names_a_rack_that_nobody_else_uses, "2,3,4,5"),
        (names_nodes_and_leaves_them_idle, ""),
        (says_something_else_each_second, ""),
    ],
)
def test_nobody_gains_more_than_a_largest_job_by_naming_nodes(play: Play, honest_nodes: str) -> None:
    seeds = range(2)
    named = played(play, seeds, names=True, honest_nodes=honest_nodes)
    unnamed = played(play, seeds, names=False, honest_nodes=honest_nodes)
    assert named["a"] > 0
    assert named["a"] - unnamed["a"] <= LARGEST * len(seeds)
