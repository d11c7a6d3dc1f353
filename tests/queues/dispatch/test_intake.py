"""Whether a worker takes batches, according to the store's answer to its registration."""

import logging

import pytest

from kube.stop import Stop
from queues import errors, redis_keys
from queues.dispatch.intake import HostClock, Intake
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.task_runner import TaskRunner
from queues.installation import Installation
from queues.redis import connection
from queues.redis.log_throttle import OutageLog
from queues.registrations import Registration, StoreIdentity, find_refusal
from queues.tasks import Offer
from tests.support.clock import START
from tests.support.queues.builders import key, registration

OWN = Registration(worker="w", threads=1, version="1.2", layout=10, owner=Installation("c1", "here").encode())


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (StoreIdentity(10, 3, OWN.owner), ""),
        (StoreIdentity(10, 0, ""), ""),
        (StoreIdentity(0, 0, ""), ""),
        (StoreIdentity(11, 3, OWN.owner), "torchq 1.2"),
        (StoreIdentity(9, 3, ""), "layout 9"),
        (StoreIdentity(10, 3, Installation("c2", "there").encode()), "cluster c2, Lease in namespace there"),
    ],
)
def test_a_worker_refuses_a_store_of_another_layout_or_owner(store: StoreIdentity, words: str) -> None:
    found = find_refusal(OWN, store)
    assert words in found
    assert bool(words) == bool(found)


def test_a_worker_takes_work_again_once_the_layout_fits(
    client: connection.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    log, intake = logging.getLogger("test"), Intake("1.2")
    caplog.set_level("INFO")
    runner = TaskRunner(RedisWork(client), lambda *_: None, 1, outage=OutageLog(log))
    renewer = LeaseRenewer("w", RedisWork(client), runner, pause=5.0, stop=Stop(), outage=OutageLog(log), intake=intake)
    assert not intake.is_open, "the store has not answered yet"
    renewer.renew()
    assert intake.is_open
    client.mset({redis_keys.LAYOUT: "9", redis_keys.EPOCH: "7"})
    renewer.renew()
    renewer.renew()
    assert (intake.registered, intake.is_open) == (True, False)
    assert "layout 9" in intake.problem
    client.set(redis_keys.LAYOUT, redis_keys.LAYOUT_NUMBER)
    renewer.renew()
    assert intake.is_open
    assert [line.partition(":")[0] for line in caplog.messages] == [
        "this worker takes no work, and finishes what it runs",
        "this worker takes work again",
    ]


def test_no_call_changes_work_of_another_layout(client: connection.Connection) -> None:
    client.mset({redis_keys.LAYOUT: "9", redis_keys.EPOCH: "7"})
    work = RedisWork(client)
    work.register(registration("w", 4))
    before = {name: client.dump(name) for name in client.keys("*")}
    for call in (lambda: work.offer([Offer(key=key("a"), tenant="a")]), work.dispatch, lambda: work.begin([])):
        with pytest.raises(errors.StoreLost, match="layout 9, not 12"):
            call()
    assert {name: client.dump(name) for name in client.keys("*")} == before


@pytest.mark.parametrize(
    ("of_server", "of_redis", "words"),
    [
        (0.0, 0.0, ""),
        (7200.0, 0.0, ""),
        (0.0, 7200.0, ""),
        (7200.0, -7200.0, ""),
        (60.0, 60.0, ""),
        (7200.0, 7000.0, "2.0 h ahead of those of the API server and Redis"),
        (-300.0, -290.0, "5 min behind those of the API server and Redis"),
    ],
)
def test_a_clock_that_two_others_contradict_is_wrong(of_server: float, of_redis: float, words: str) -> None:
    found = HostClock(lambda: of_server, lambda: START + of_redis).problem(START)
    assert found == (f"the clock of this machine is {words}" if words else "")
    assert HostClock(lambda: of_server, lambda: START).problem(0.0) == "", "Redis has not told its time"


def test_a_worker_whose_clock_is_wrong_takes_no_work_until_it_is_right() -> None:
    ahead = [10_800.0]
    intake = Intake(host_clock=HostClock(lambda: ahead[0], lambda: START + ahead[0]))
    for is_right in (False, True):
        intake.learn(StoreIdentity(redis_keys.OWN_LAYOUT, 1, "", START))
        assert intake.is_open is is_right
        registered = intake.registration("w", 4)
        assert (registered.threads, registered.is_listed) == (4 if is_right else 0, True)
        assert bool(find_refusal(registered, StoreIdentity(redis_keys.OWN_LAYOUT, 1, ""))) is not is_right
        assert not intake.registration("w", 0).is_listed, "the worker stops"
        ahead[0] = 0.0
