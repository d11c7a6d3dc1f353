"""A played cluster of nodes with jobs of alike pods, as the leader's rounds of picks see them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from crds.keys import JobKey
from crds.resources.amounts import PODS, Amounts
from queues.pick_cycle import PickCycle
from queues.placement.gangs import EVERY, Gang, Members, NodeSet, Shape
from queues.placement.node_room import NodeRoom
from queues.placement.places import ExpectedEnd, Places, PodsOnNodes
from queues.rules import PickRules
from tests.doubles.memory_store import MemoryStore
from tests.support.queues.builders import GPU, START, entry, spec

RULES = PickRules(longest_patience=60.0)


@dataclass
class NodeCluster:
    """Nodes of some GPUs, and jobs of `pods` alike pods with `gpu` GPUs each, which run for a known time."""

    sizes: list[int]
    queues: str = "ab"
    random: Random = field(default_factory=lambda: Random(7))
    allowed: Callable[[str], NodeSet] = lambda _: EVERY
    """Returns the nodes with a place condition."""
    unruly: bool = False
    """Whether the scheduler binds pods to other nodes than those where they are placed, if it can."""
    now: float = START
    ends: dict[JobKey, float] = field(default_factory=dict)
    lengths: dict[JobKey, float] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    _shared: dict[tuple[int, int, str], Gang] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.store.configure([spec(name) for name in self.queues], {GPU: sum(self.sizes), PODS: 1_000})
        self.places = Places(NodeRoom(self.allowed), NodeRoom(self.allowed), self._gang_of, self._expected)
        for number, size in enumerate(self.sizes):
            for room in (self.places.room, self.places.empty):
                room.set_capacity(room.index(f"n{number}"), {GPU: size, PODS: 100})
        self.rounds = PickCycle(
            self.store, RULES, ages=self._ages, holds=lambda: [(60.0, {GPU: 1})], places=lambda: self.places
        )

    def _gang_of(self, key: str, _kind: str, _demand: Amounts) -> Gang:
        return self.gangs[key]

    def _expected(self, _now: float) -> list[ExpectedEnd]:
        return sorted(ExpectedEnd(end, str(key)) for key, end in self.ends.items())

    def _ages(self, now: float) -> dict[str, list[float]]:
        return {"a": [now - (end - self.lengths[key]) for key, end in self.ends.items()]}

    def submit(self, name: str, queue: str, pods: int, gpu: int, length: float = 60.0, where: str = "") -> JobKey:
        job = entry(name, queue, self.now, gpu=pods * gpu, pods=pods)
        pod = Shape(((GPU, gpu), (PODS, 1)), where)
        gang = self._shared.setdefault((pods, gpu, where), Gang((Members(pod, pods),)))
        self.gangs[str(job.key)], self.lengths[job.key] = gang, length
        self.store.put([job])
        return job.key

    def second(self) -> None:
        """Let a second pass: jobs end, others are picked, and their pods are bound."""
        self.now += 1
        ended = [key for key, end in self.ends.items() if end <= self.now]
        self.store.remove(ended)
        self.rounds.forget(ended)
        for key in ended:
            self.places.follow(str(key), Counter(), None, None)
            del self.ends[key]
        while self.rounds.run(self.now, 512, 512).picked:
            pass
        for key in self.store.reservations():
            if key not in self.ends:
                self.ends[key] = self.now + self.lengths[key]
                self.places.follow(str(key), self._bind(key), None, None)
        assert all(free >= 0 for free in self.free), "more pods than the nodes hold"

    def _bind(self, key: JobKey) -> PodsOnNodes:
        job = self.places.jobs[str(key)]
        assert job.places() == sum(count for _, count in self.gangs[str(key)].members), "a pod without a place"
        bound = Counter(job.waiting)
        for node, demand in [*job.waiting][:1] if self.unruly else ():
            other = self.random.randrange(len(self.sizes))
            if self.free[other] >= dict(demand)[GPU] * bound[node, demand]:
                bound[other, demand] += bound.pop((node, demand))
        return bound

    @property
    def free(self) -> list[int]:
        return [self.places.room.free(node)[GPU] for node in range(len(self.sizes))]

    def admitted(self, key: JobKey) -> bool:
        return key in self.store.reservations()
