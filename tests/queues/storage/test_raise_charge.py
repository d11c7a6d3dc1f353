"""A worker raises the charge of an admitted job: the raise is granted within quota, cohort and pool, and refused as a
whole otherwise.
"""

import json
from dataclasses import replace

import pytest

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from queues import errors, redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from queues.store import QueueStore
from queues.tasks import Offer
from queues.values import Batch, QueueSpec, Reservation
from queues.work import Lease, WorkSink
from tests.doubles.memory_content import Content
from tests.doubles.memory_store import MemoryStore
from tests.doubles.memory_work import MemoryWork
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entry,
    key,
    registration,
    reservation,
    run,
    spec,
    usage,
)

JOB = key("job")


class Desk:
    """A store with its work queue, and a worker that runs JOB."""

    store: QueueStore
    work: WorkSink

    def rebuilt(self, epoch: int, held: list[Reservation], queues: list[QueueSpec], pool: Amounts | None = None) -> str:
        """Rebuild and configure the store, let a worker begin on JOB, and return the worker's token."""
        self.store.rebuild(epoch, held, [])
        self.store.configure(queues, pool)
        return self.begun()

    def begun(self) -> str:
        (task,) = self.work.begin(self.leases())
        return task.token

    def leases(self) -> list[Lease]:
        """Dispatch JOB and return its leases."""
        raise NotImplementedError

    def charges(self) -> tuple[Amounts, dict[str, Amounts]]:
        """Return the charge of JOB, and the usage of queues and pool."""
        return self.store.reservations([JOB])[JOB].charge, usage(self.store.snapshot(0))


class InMemory(Desk):
    def __init__(self) -> None:
        content = Content()
        reader = MemoryStore(lambda *_: None, content=content)
        self.work = self.source = MemoryWork(
            lambda: START,
            reader.epoch,
            lambda key: reader.reservations([key]).get(key),
            raise_charge=reader.raise_charge,
        )
        self.store = MemoryStore(self.source.mark, content=content, may_have_pods=self.source.may_have_pods)

    def leases(self) -> list[Lease]:
        self.source.register(registration("worker", 4))
        self.source.mark(JOB, "a")
        self.source.dispatch()
        return self.source.pop()


class OnRedis(Desk):
    def __init__(self, client: connection.Connection) -> None:
        self.client = client
        self.store, self.work = RedisStore(client), RedisWork(client)

    def leases(self) -> list[Lease]:
        source = RedisWork(self.client)
        source.register(registration("worker", 4))
        source.offer([Offer(key=JOB, tenant="a")])
        source.dispatch()
        (job,) = self.client.lrange(redis_keys.RQ_WAITING, 0, -1)
        self.client.delete(redis_keys.RQ_WAITING)
        found = json.loads(self.client.hget(b"rq:job:" + job, "data"))[2][0]
        return [(JobKey.parse(each), token) for each, token in found]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.servers)])
def desk(request: pytest.FixtureRequest) -> Desk:
    return InMemory() if request.param == "memory" else OnRedis(request.getfixturevalue("client"))


def test_raised_charge_leaves_the_other_values_of_the_reservation(desk: Desk) -> None:
    held = replace(reservation("job", gpu=1, port=20001, pick=3), size=4, grown=2)
    token = desk.rebuilt(1, [held], [spec("a")])
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 2}) == ""
    assert desk.store.reservations() == {JOB: replace(held, charge={"jobs": 1, GPU: 2})}


def test_raised_charge_counts_in_queue_and_pool_until_the_job_is_removed(desk: Desk) -> None:
    held = [reservation("job", cpu=2, gpu=1), reservation("other", gpu=1)]
    token = desk.rebuilt(1, held, [spec("a", gpu=8)], {GPU: 10})
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 7, "cpu": 1, "memory": 5}) == ""
    raised = {"jobs": 1, "cpu": 2, GPU: 7, "memory": 5}
    both = {"jobs": 2, "cpu": 2, GPU: 8, "memory": 5}
    assert desk.charges() == (raised, {"": both, "a": both})
    desk.store.remove([JOB])
    assert usage(desk.store.snapshot(0)) == {"": {"jobs": 1, GPU: 1}, "a": {"jobs": 1, GPU: 1}}


def test_raised_charge_counts_limited_resources_and_keeps_all_names(desk: Desk) -> None:
    made_up = {f"example.org/made-up-{number}": 1 for number in range(60)}
    token = desk.rebuilt(1, [reservation("job", cpu=1)], [spec("a", **{"example.org/tpu": 8})])
    assert desk.work.raise_charge(JOB, token, 1, {**made_up, "example.org/tpu": 8}) == ""
    counted = {"jobs": 1, "cpu": 1, "example.org/tpu": 8}
    assert desk.charges() == ({**counted, **made_up}, {"": counted, "a": counted})
    assert desk.work.raise_charge(JOB, token, 1, {"example.org/tpu": 9}) == "quota"
    desk.store.remove([JOB])
    assert usage(desk.store.snapshot(0)) == {"": {}}


def test_repeated_or_smaller_charge_changes_nothing(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", gpu=1)], [spec("a", gpu=2)])
    for _ in range(3):
        assert desk.work.raise_charge(JOB, token, 1, {GPU: 2}) == ""
    before, change = desk.charges(), desk.store.snapshot(0).change
    for less in ({GPU: 1}, {}, {GPU: 2, "jobs": 1}, {"cpu": 0}):
        assert desk.work.raise_charge(JOB, token, 1, less) == ""
    assert (desk.charges(), desk.store.snapshot(0).change) == (before, change)


@pytest.mark.parametrize(
    ("queues", "pool", "refused"),
    [
        ([spec("a", gpu=4)], None, "quota"),
        ([spec("a")], {GPU: 4}, "pool"),
        (
            [QueueSpec(name="a", quota={GPU: 4}, cohort="c"), QueueSpec(name="b", quota={GPU: 1}, cohort="c")],
            None,
            "cohort",
        ),
        ([QueueSpec(name="a", quota={GPU: 4}, cohort="c", borrowing={GPU: 0})], None, "quota"),
    ],
)
def test_raise_beyond_quota_pool_or_cohort_is_refused_whole(
    desk: Desk, queues: list[QueueSpec], pool: Amounts | None, refused: str
) -> None:
    token = desk.rebuilt(1, [reservation("job", gpu=1), reservation("other", gpu=2)], queues, pool)
    before = desk.charges()
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 4, "cpu": 1}) == refused
    assert desk.charges() == before
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 2, "cpu": 1}) == ""


def test_queue_beyond_its_quota_may_raise_the_charge_of_other_resources(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", gpu=9)], [spec("a", gpu=4)], {"cpu": 8})
    assert desk.work.raise_charge(JOB, token, 1, {"cpu": 8}) == ""
    assert desk.work.raise_charge(JOB, token, 1, {"cpu": 9}) == "pool"


def test_unknown_queue_is_limited_by_the_pool_only(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", "gone", gpu=1)], [spec("a")], {GPU: 3})
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 3}) == ""
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 4}) == "pool"


def test_raise_needs_the_current_attempt_and_the_token_of_its_worker(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", attempt=2, gpu=1)], [spec("a")])
    before = desk.charges()
    for asked in ((JOB, token, 1), (JOB, token, 3), (JOB, "another", 2), (key("other"), token, 2)):
        assert desk.work.raise_charge(*asked, {GPU: 2}) == "reservation"
    assert desk.charges() == before
    desk.work.finish(JOB, token)
    assert desk.work.raise_charge(JOB, token, 2, {GPU: 2}) == "reservation"
    assert desk.charges() == before


def test_raise_with_a_token_from_before_a_rebuild_is_refused(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", gpu=1)], [spec("a")])
    desk.store.rebuild(2, [reservation("job", gpu=1)], [])
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 2}) == "reservation"
    assert desk.charges()[0] == {"jobs": 1, GPU: 1}


def test_raise_on_a_lost_store_raises_store_lost(desk: Desk) -> None:
    token = desk.rebuilt(1, [reservation("job", gpu=1)], [spec("a")])
    desk.store.forget(1)
    with pytest.raises(errors.StoreLost):
        desk.work.raise_charge(JOB, token, 1, {GPU: 2})


def test_raised_amounts_are_exact_up_to_the_largest(desk: Desk) -> None:
    most = 2**53 - 1
    token = desk.rebuilt(1, [reservation("job", memory=1)], [spec("a", memory=most)])
    assert desk.work.raise_charge(JOB, token, 1, {"memory": most}) == ""
    assert desk.charges() == (
        {"jobs": 1, "memory": most},
        {"": {"jobs": 1, "memory": most}, "a": {"jobs": 1, "memory": most}},
    )
    assert desk.work.raise_charge(JOB, token, 1, {"memory": most + 1}) == "quota"


def test_commit_refuses_picks_made_before_a_raise_took_the_room(desk: Desk) -> None:
    """The batch was chosen while there was room, and the raised charge has used this room up."""
    token = desk.rebuilt(1, [reservation("job", gpu=1)], [spec("a", gpu=4)])
    desk.store.put([entry("next", gpu=3)])
    since = desk.store.snapshot(9)
    batch: Batch = choose(since, START, 9, "jobs")
    assert len(batch.picks) == 1
    assert desk.work.raise_charge(JOB, token, 1, {GPU: 2}) == ""
    assert commit(desk.store, batch).refused == "quota"
    seen = desk.store.snapshot(9, since.change)
    assert [(view.spec.name, view.usage[GPU]) for view in seen.queues] == [("a", 2)]
    assert list(run(desk.store, 1)) == []
