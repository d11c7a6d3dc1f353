"""Memory and Redis agree on any sequence of operations; no key is lost, and no key runs on two workers."""

from dataclasses import astuple, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from crds.keys import JobKey
from queues.redis import connection
from queues.tasks import Offer, Task
from queues.work_kinds import KINDS
from tests.queues.dispatch.conftest import Clock, MemoryStand, RedisStand, Stand
from tests.support.queues.builders import registration

KEYS = [JobKey("team", f"job-{number}", "uid") for number in range(6)]
OFFERS = st.builds(
    Offer,
    key=st.sampled_from(KEYS),
    tenant=st.sampled_from("abc"),
    seen=st.integers(0, 5),
    delay=st.sampled_from([0.0, 0.0, 0.0, 0.5, 20.0]),
    version=st.sampled_from([0, 0, 3]),
    kind=st.sampled_from(KINDS),
)


def shown(task: Task) -> tuple[object, ...]:
    """Return the fields of a task without its token, which differs between the twins. Times are in milliseconds, since
    Redis rounds how long ago they were.
    """
    times = tuple(round(1000 * seconds) for seconds in task.times or ())
    return (*(value for value in astuple(replace(task, times=None)) if value != task.token), times)


class Twins(RuleBasedStateMachine):
    """The same operations on a work queue in memory and on a work queue in Redis."""

    memory: Stand
    redis: Stand

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.memory, self.redis = MemoryStand(self.clock), self.empty_redis(self.clock)
        self.epoch = 1
        self.waiting: list[tuple[list[tuple[JobKey, str]], list[tuple[JobKey, str]]]] = []
        self.tasks: list[tuple[Task, Task]] = []
        self.owed: set[JobKey] = set()

    @staticmethod
    def empty_redis(clock: Clock) -> Stand:
        """Return the work queue on an empty Redis. The test that runs this state machine knows the server."""
        raise NotImplementedError

    @property
    def both(self) -> tuple[Stand, Stand]:
        return self.memory, self.redis

    @rule(offers=st.lists(OFFERS, max_size=5))
    def offer(self, offers: list[Offer]) -> None:
        for stand in self.both:
            stand.work.offer(offers)
        self.owed |= {each.key for each in offers}

    @rule(worker=st.sampled_from(["w1", "w2"]), threads=st.integers(0, 3))
    def register(self, worker: str, threads: int) -> None:
        for stand in self.both:
            stand.work.register(registration(worker, threads))

    @rule()
    def dispatch(self) -> None:
        counts = [stand.work.dispatch() for stand in self.both]
        assert counts[0] == counts[1]
        while batches := tuple(stand.pop() for stand in self.both):
            memory, redis = batches
            assert [key for key, _ in memory] == [key for key, _ in redis]
            if not memory:
                break
            self.waiting.append((memory, redis))

    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        if not self.waiting:
            return
        batches = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        found = [stand.work.begin(batch) for stand, batch in zip(self.both, batches, strict=True)]
        assert [shown(task) for task in found[0]] == [shown(task) for task in found[1]]
        for pair in zip(*found, strict=True):
            self.tasks.append(pair)
            self.owed.discard(pair[0].key)

    @rule(
        data=st.data(),
        requeue_after=st.sampled_from([None, None, 0, 0.3, 30]),
        failed=st.sampled_from([False, False, True]),
    )
    def finish(self, data: st.DataObject, requeue_after: float | None, failed: bool) -> None:
        if not self.tasks:
            return
        # Some finished tasks stay in the list: a token that is no longer valid must change nothing.
        chosen = data.draw(st.integers(0, len(self.tasks) - 1))
        pair = self.tasks[chosen] if data.draw(st.booleans()) else self.tasks.pop(chosen)
        held = self.memory.work.holds(pair[0].key, pair[0].token)
        for stand, task in zip(self.both, pair, strict=True):
            stand.work.finish(task.key, task.token, requeue_after=requeue_after, failed=failed)
        if held and (failed or requeue_after is not None):
            self.owed.add(pair[0].key)

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.integers(0, len(self.tasks) - 1))) if self.tasks else set()
        for side, stand in enumerate(self.both):
            tasks = [self.tasks[number][side] for number in sorted(chosen)]
            stand.work.renew([(task.key, task.token) for task in tasks])

    @rule(seconds=st.sampled_from([0.05, 0.3, 1.0, 7.5, 15.0, 60.0]))
    def step(self, seconds: float) -> None:
        self.clock.step(seconds)

    @rule()
    def rebuild(self) -> None:
        self.epoch += 1
        for stand in self.both:
            stand.set_epoch(self.epoch)

    @invariant()
    def same_ready_keys(self) -> None:
        memory, redis = (stand.work.inspect() for stand in self.both)
        assert (memory.ready, memory.turns, memory.ready_length) == (redis.ready, redis.turns, redis.ready_length)
        assert redis.ready_count == redis.ready_length

    @invariant()
    def same_fences_and_one_worker_per_key(self) -> None:
        holders = [
            (
                pair[0].key,
                *(stand.work.holds(task.key, task.token) for stand, task in zip(self.both, pair, strict=True)),
            )
            for pair in self.tasks
        ]
        assert all(memory == redis for _, memory, redis in holders)
        held = [key for key, memory, _ in holders if memory]
        assert len(held) == len(set(held))

    def teardown(self) -> None:
        """Check that every outstanding key runs once all leases and delays have ended."""
        self.clock.step(10_000)
        for stand in self.both:
            stand.work.register(registration("w1", 100))
            assert self.owed <= {task.key for task in stand.take()}


@pytest.mark.proof
def test_memory_and_redis_agree_on_any_operations(client: connection.Connection) -> None:
    class OnServer(Twins):
        @staticmethod
        def empty_redis(clock: Clock) -> Stand:
            client.flushall()
            return RedisStand(client, clock)

    limits = settings(max_examples=150, stateful_step_count=50)
    run_state_machine_as_test(OnServer, settings=limits)
