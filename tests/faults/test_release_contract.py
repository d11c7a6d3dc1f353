"""The release of charges: both stores keep a charge while pods may exist that the coordinator has not seen."""

from collections.abc import Iterator
from dataclasses import replace

import fakeredis
import pytest

from crds.keys import JobKey
from queues.store import LoweredCharge, QueueStore
from queues.tasks import Offer, Task
from queues.values import Reservation
from tests.faults.places import MemoryPlace, Place, RedisPlace
from tests.support.queues.builders import registration

KEY = JobKey("team", "job", "uid-1")
HELD = Reservation(key=KEY, queue="a", attempt=1, epoch=1, charge={"jobs": 1})
START = 1_700_000_000.0


class Bench:
    """A store with one reservation, a work queue, and a worker."""

    def __init__(self, name: str) -> None:
        self.now = START
        self.client = fakeredis.FakeStrictRedis(server=fakeredis.FakeServer()) if name == "redis" else None
        self.place: Place = RedisPlace(self.client, self.clock, None) if self.client else MemoryPlace(self.clock, None)
        store, self.work = self.place.open(lambda _, effect, **__: effect())
        self.store: QueueStore = store
        self.store.rebuild(1, [HELD], [])
        self.work.register(registration("worker", 4))

    def clock(self) -> float:
        return self.now

    def begin(self) -> Task:
        self.work.offer([Offer(key=KEY, tenant="a")])
        self.work.register(registration("worker", 4))
        assert self.work.dispatch() == 1
        [task] = self.work.begin(self.place.pop(lambda _, effect, **__: effect()))
        return task

    def freed(self, seen: int) -> bool:
        kept = self.store.remove([KEY], seen)
        assert (KEY in kept) == (KEY in self.store.reservations())
        return not kept

    def lowered(self, seen: int | None) -> bool:
        kept = self.store.lower([LoweredCharge(key=KEY, attempt=1, grown=0, size=0, charge={"jobs": 0})], seen)
        held = self.store.reservations()[KEY]
        assert held == (HELD if kept else replace(HELD, charge={"jobs": 0}))
        return not kept


@pytest.fixture(params=["memory", "redis"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    found = Bench(request.param)
    yield found
    if found.client:
        found.client.close()


def test_charge_of_a_job_without_a_run_is_released_at_once(bench: Bench) -> None:
    assert bench.freed(seen=0)
    assert bench.freed(seen=0)


def test_charge_is_kept_while_a_worker_runs_the_job(bench: Bench) -> None:
    task = bench.begin()
    assert not bench.freed(seen=99)
    bench.work.finish(KEY, task.token)
    assert bench.freed(seen=0)


def test_charge_is_kept_until_the_coordinator_has_seen_every_pod(bench: Bench) -> None:
    task = bench.begin()
    bench.work.finish(KEY, task.token, pods_version=17)
    assert not bench.freed(seen=16)
    assert bench.freed(seen=17)


def test_pods_version_never_falls_in_later_runs(bench: Bench) -> None:
    bench.work.finish(KEY, bench.begin().token, pods_version=17)
    task = bench.begin()
    assert task.seen == 17
    bench.work.finish(KEY, task.token, pods_version=0)
    assert not bench.freed(seen=16)


def test_charge_is_kept_after_a_failed_run_until_another_run_succeeds(bench: Bench) -> None:
    bench.work.finish(KEY, bench.begin().token, failed=True, pods_version=17)
    bench.now += 1
    assert not bench.freed(seen=99)
    task = bench.begin()
    assert (task.failures, task.seen) == (1, 0)
    bench.work.finish(KEY, task.token)
    assert bench.freed(seen=0)


def test_charge_is_kept_after_a_dead_worker_until_another_run_succeeds(bench: Bench) -> None:
    bench.begin()
    bench.now += 100
    task = bench.begin()
    assert task.failures == 1
    assert not bench.freed(seen=99)
    bench.work.finish(KEY, task.token, pods_version=3)
    assert not bench.freed(seen=2)
    assert bench.freed(seen=3)


def test_charge_is_released_after_a_batch_that_no_worker_took(bench: Bench) -> None:
    bench.work.offer([Offer(key=KEY, tenant="a")])
    assert bench.work.dispatch() == 1
    bench.now += 100
    bench.work.dispatch()
    assert bench.freed(seen=0)


def test_remove_without_a_seen_version_releases_the_charge_at_once(bench: Bench) -> None:
    bench.begin()
    assert bench.store.remove([KEY]) == []
    assert not bench.store.reservations()


def test_charge_is_lowered_only_when_the_coordinator_knows_all_pods(bench: Bench) -> None:
    task = bench.begin()
    assert not bench.lowered(seen=99)
    bench.work.finish(KEY, task.token, failed=True, pods_version=17)
    assert not bench.lowered(seen=99)
    bench.now += 1
    bench.work.finish(KEY, bench.begin().token, pods_version=17)
    assert not bench.lowered(seen=16)
    assert bench.lowered(seen=17)
    assert bench.begin().seen == 17, "the next worker must know these pods, too"


def test_lower_without_a_seen_version_lowers_the_charge_at_once(bench: Bench) -> None:
    bench.begin()
    assert bench.lowered(seen=None)


def test_pods_version_survives_a_rebuild_that_keeps_the_charge(bench: Bench) -> None:
    bench.work.finish(KEY, bench.begin().token, pods_version=17)
    bench.store.rebuild(2, [HELD], [])
    assert not bench.freed(seen=16)
    bench.store.rebuild(3, [], [])
    assert bench.freed(seen=0)
    if bench.client:
        assert not bench.client.exists("torchq:work:made")
