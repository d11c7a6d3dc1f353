"""The key figures of queues and dispatch, on Redis."""

import time
from dataclasses import replace

import pytest

from crds.keys import JobKey
from queues import errors, redis_keys
from queues.installation import Installation
from queues.registrations import describe_refused
from queues.storage import stats
from queues.tasks import Offer
from queues.values import Reservation
from tests.queues.dispatch.conftest import RedisStand, Stand
from tests.support.queues.builders import registration

KEYS = [JobKey("a", f"job-{number}", f"u{number}") for number in range(3)]


@pytest.fixture
def redis_stand(stand: Stand) -> RedisStand:
    if not isinstance(stand, RedisStand):
        pytest.skip("memory has no numbers of its own")
    return stand


def test_vitals_of_a_lost_store_are_zero(redis_stand: RedisStand) -> None:
    redis_stand.lose()
    found = stats.read(redis_stand.client)
    assert (found.epoch, found.picks, found.runs, found.waiting, found.admitted, found.workers) == (0, 0, 0, 0, 0, ())


def test_vitals_count_a_run_when_it_is_finished(redis_stand: RedisStand) -> None:
    redis_stand.work.register(registration("w", 8))
    redis_stand.work.offer([Offer(key=key, tenant="a") for key in KEYS])
    assert stats.read(redis_stand.client).ready == 3
    tasks = redis_stand.take()
    assert stats.read(redis_stand.client).leased == 3
    redis_stand.work.finish(tasks[0].key, tasks[0].token)
    redis_stand.work.finish(tasks[1].key, tasks[1].token, requeue_after=60)
    redis_stand.work.finish(tasks[1].key, tasks[1].token)  # the run was finished before
    found = stats.read(redis_stand.client)
    assert (found.runs, found.delayed, found.leased, found.ready) == (2, 1, 1, 0)


def test_vitals_leave_out_workers_with_an_expired_registration(redis_stand: RedisStand) -> None:
    redis_stand.clock.now = time.time()  # vitals compare registrations with the time of the server
    redis_stand.work.register(registration("alive", 8))
    redis_stand.clock.step(-3600)
    redis_stand.work.register(registration("dead", 4))
    assert stats.read(redis_stand.client).workers == (registration("alive", 8),)


def test_vitals_count_admitted_jobs(redis_stand: RedisStand) -> None:
    redis_stand.reserve(Reservation(key=KEYS[0], queue="a", attempt=1, epoch=1, charge={"jobs": 1}))
    found = stats.read(redis_stand.client)
    assert (found.epoch, found.admitted, found.waiting) == (1, 1, 0)


def test_unreadable_vitals_raise_an_error_that_names_torchq_doctor(redis_stand: RedisStand) -> None:
    redis_stand.client.set(redis_keys.READY_COUNT, "many")
    with pytest.raises(errors.Unreadable, match="torchq doctor"):
        stats.read(redis_stand.client)
    redis_stand.client.delete(redis_keys.READY_COUNT)
    redis_stand.client.rpush(redis_keys.READY_COUNT, "x")
    with pytest.raises(errors.Unreadable):
        stats.read(redis_stand.client)


def test_workers_of_another_layout_or_installation_are_named_and_not_counted(redis_stand: RedisStand) -> None:
    redis_stand.clock.now = time.time()
    ours, theirs = (Installation(name, "kube-system").encode() for name in ("c1", "c2"))
    redis_stand.client.set(redis_keys.OWNER, ours)
    redis_stand.client.zadd(redis_keys.WORKERS, {"oldest-1": time.time() + 9, "gone": time.time() - 9})
    counted = replace(registration("counted", 8), owner=ours)
    for each in (
        counted,
        replace(counted, worker="older-1", version="0.1.0", layout=9),
        replace(counted, worker="older-2", version="0.1.0", layout=9),
        replace(counted, worker="foreign", version="0.2.0", owner=theirs),
        replace(counted, worker="late", version="0.2.0", threads=0, clock="the clock of this machine is 5 min behind"),
    ):
        redis_stand.work.register(each)
    found = stats.read(redis_stand.client)
    assert found.workers == (counted,)
    assert describe_refused(found.members, found.store) == (
        "1 worker of an unknown version (a layout before 10) takes no work: the leader uses layout 12",
        "2 workers of version 0.1.0 (layout 9) take no work: the leader uses layout 12",
        "1 worker of version 0.2.0 takes no work: of another installation (cluster c2, Lease in namespace kube-system)",
        "worker late takes no work: the clock of its machine is 5 min behind",
    )
    redis_stand.work.offer([Offer(key=each, tenant="a") for each in KEYS])
    redis_stand.work.register(replace(counted, threads=1))
    assert redis_stand.work.dispatch() == 1, "only the thread of the counted worker is free"
