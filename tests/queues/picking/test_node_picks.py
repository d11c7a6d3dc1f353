"""Picks where nodes count: gangs are picked only with nodes for all their pods, and kept room is nodes."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds.keys import JobKey
from crds.resources.amounts import PODS, Amounts
from queues.pick_cycle import PickCycle
from queues.placement.gangs import Gang, Members, Shape
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
    unruly: bool = False
    """Whether the scheduler binds pods to other nodes than those where they are placed, if it can."""
    now: float = START
    ends: dict[JobKey, float] = field(default_factory=dict)
    lengths: dict[JobKey, float] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    _shared: dict[tuple[int, int], Gang] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda *_: None)
        self.store.rebuild(1, [], [])
        self.store.configure([spec(name) for name in self.queues], {GPU: sum(self.sizes), PODS: 1_000})
        self.places = Places(NodeRoom(lambda _: -1), NodeRoom(lambda _: -1), self._gang_of, self._expected)
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

    def submit(self, name: str, queue: str, pods: int, gpu: int, length: float = 60.0) -> JobKey:
        job = entry(name, queue, self.now, gpu=pods * gpu, pods=pods)
        pod = Shape(((GPU, gpu), (PODS, 1)))
        gang = self._shared.setdefault((pods, gpu), Gang((Members(pod, pods),)))
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


def half_full() -> NodeCluster:
    """Return two nodes of 8 GPUs with 4 free on each."""
    cluster = NodeCluster([8, 8])
    for number in range(2):
        cluster.submit(f"whole-{number}", "a", 1, 5, length=1_000)
    cluster.second()
    assert cluster.free == [3, 3]
    return cluster


def test_a_gang_without_nodes_waits_and_others_go() -> None:
    cluster = half_full()
    large = cluster.submit("large", "a", 1, 6)
    small = cluster.submit("small", "b", 2, 3)
    cluster.second()
    assert (cluster.admitted(large), cluster.admitted(small)) == (False, True)


def test_jobs_of_one_demand_are_told_apart_by_their_gangs() -> None:
    cluster = half_full()
    whole = cluster.submit("whole", "a", 1, 6)
    parts = cluster.submit("parts", "a", 2, 3)
    cluster.store.put([entry("whole", "a", START, gpu=6, pods=2)])
    cluster.second()
    assert (cluster.admitted(whole), cluster.admitted(parts)) == (False, True)


@pytest.mark.parametrize("unruly", [False, True])
def test_a_gang_of_whole_nodes_begins_under_an_endless_stream_of_small_jobs(unruly: bool) -> None:
    cluster = NodeCluster([8] * 4, unruly=unruly)
    made = 0
    for number in range(32):
        cluster.submit(f"first-{number}", "b", 1, 1, length=10.0 + cluster.random.randrange(100))
    cluster.second()
    large = cluster.submit("large", "a", 2, 8, length=60.0)
    for _ in range(600):
        for _ in range(4):
            made += 1
            cluster.submit(f"stream-{made}", "b", 1, 1, length=10.0 + cluster.random.randrange(100))
        cluster.second()
        if cluster.admitted(large):
            break
    assert cluster.admitted(large)
    most = 600 if unruly else 60 + 110 + 30  # its patience, the longest run, and some
    assert cluster.now - START < most


def test_only_the_kept_nodes_are_kept() -> None:
    cluster = NodeCluster([8] * 4)
    for number in range(4):
        cluster.submit(f"whole-{number}", "b", 1, 5, length=[50.0, 1_000.0, 60.0, 1_000.0][number])
        cluster.submit(f"other-{number}", "b", 1, 2, length=1.0)
    cluster.second()
    cluster.second()
    large = cluster.submit("large", "a", 2, 8)
    for _ in range(40):
        cluster.submit(f"b-{cluster.now}", "b", 1, 1, length=1.0)
        cluster.second()
    assert cluster.places.kept.bit_count() == 2
    beside = cluster.submit("beside", "b", 1, 3, length=1_000.0)
    cluster.second()
    assert cluster.admitted(beside)
    for _ in range(60):
        cluster.second()
    assert cluster.admitted(large)


JOBS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.integers(1, 8), st.integers(1, 30)), max_size=40)


@settings(deadline=None, max_examples=60)
@given(jobs=JOBS, sizes=st.lists(st.sampled_from([4, 8]), min_size=1, max_size=4), unruly=st.booleans())
def test_any_jobs_never_exceed_a_node_and_all_that_fit_end(
    jobs: list[tuple[str, int, int, int]], sizes: list[int], unruly: bool
) -> None:
    cluster = NodeCluster(sizes, unruly=unruly)
    fitting = set()
    for number, (queue, pods, gpu, length) in enumerate(jobs):
        key = cluster.submit(f"job-{number}", queue, pods, gpu, float(length))
        if sum(size // gpu for size in sizes) >= pods:
            fitting.add(key)
        cluster.second()
    for _ in range(sum(length for *_, length in jobs) + 200 * len(jobs)):
        if not (cluster.ends or any(view.waiting for view in cluster.store.snapshot(0).queues)):
            break
        cluster.second()
        waiting = {each.entry.key for view in cluster.store.snapshot(100).queues for each in view.heads}
        if not waiting & fitting and not cluster.ends:
            break
    waiting = {each.entry.key for view in cluster.store.snapshot(100).queues for each in view.heads}
    assert not waiting & fitting
