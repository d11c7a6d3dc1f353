"""The contract of the work queue, clause by clause: in memory and on Redis."""

import itertools
import json
from dataclasses import replace

import pytest

from crds.keys import JobKey
from queues import errors, redis_keys
from queues.redis import connection
from queues.registrations import StoreIdentity
from queues.tasks import Offer, Task
from queues.values import Reservation
from queues.work import WorkSettings, backoff
from queues.work_kinds import KINDS, WorkKind
from tests.queues.dispatch.conftest import RedisStand, Stand
from tests.support.clock import START, Clock
from tests.support.queues.builders import registration


def key(number: int = 0, tenant: str = "a") -> JobKey:
    return JobKey(f"team-{tenant}", f"job-{number}", f"uid-{tenant}-{number}")


def offer(number: int = 0, tenant: str = "a", seen: int = 0, delay: float = 0.0) -> Offer:
    return Offer(key=key(number, tenant), tenant=tenant, seen=seen, delay=delay)


@pytest.fixture
def ready(stand: Stand) -> Stand:
    """Return a work queue with one registered worker of 16 threads."""
    stand.work.register(registration("w1", 16))
    return stand


def test_offered_key_becomes_one_task(ready: Stand) -> None:
    ready.work.offer([offer(seen=7)])
    [task] = ready.take()
    assert (task.key, task.tenant, task.seen, task.failures, task.reservation) == (key(), "a", 7, 0, None)
    ready.work.finish(task.key, task.token)
    assert ready.take() == []


def test_a_task_says_how_long_its_key_was_ready_and_leased(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.clock.step(2)
    ready.work.dispatch()
    ready.clock.step(3)
    [task] = ready.work.begin(ready.pop_all())
    now = ready.clock()
    assert task.times == pytest.approx((now - 5, now - 3, now), abs=0.001)


def test_a_brief_goes_to_the_next_run_of_its_key_alone(ready: Stand) -> None:
    ready.work.offer([offer(), offer(1)])
    ready.work.brief({key(): b"old", key(2): b"of a key without work"})
    ready.work.brief({key(): b"\xff new"})
    first, other = sorted(ready.take(), key=lambda task: task.key)
    assert (first.brief, other.brief) == (b"\xff new", b"")
    ready.work.finish(first.key, first.token, requeue_after=0)
    assert [task.brief for task in ready.take()] == [b""]


def test_a_clock_that_was_set_back_makes_no_wait_negative(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    ready.clock.step(-10)
    [task] = ready.work.begin(ready.pop_all())
    assert task.times == pytest.approx((ready.clock(),) * 3, abs=0.001)


def test_burst_of_offers_becomes_one_task_with_the_newest_seen_version(ready: Stand) -> None:
    ready.work.offer([offer(seen=seen) for seen in (3, 900, 12)] * 50)
    assert [task.seen for task in ready.take()] == [900]


def test_largest_resource_version_is_kept_exactly(ready: Stand) -> None:
    ready.work.offer([offer(seen=9_007_199_254_740_991)])
    assert [task.seen for task in ready.take()] == [9_007_199_254_740_991]


def test_offers_during_a_run_lead_to_one_more_run_after_it(ready: Stand) -> None:
    ready.work.offer([offer()])
    [first] = ready.take()
    for _ in range(5):
        ready.work.offer([offer(seen=5)])
        assert ready.take() == [], "two workers have the same key"
    ready.work.finish(first.key, first.token)
    [second] = ready.take()
    assert second.seen == 5
    assert second.token != first.token
    ready.work.finish(second.key, second.token)
    assert ready.take() == []


def test_offer_while_the_batch_waits_in_rq_leads_to_one_more_run(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    ready.work.offer([offer()])
    [task] = ready.work.begin(ready.pop_all())
    ready.work.finish(task.key, task.token)
    assert len(ready.take()) == 1


def test_key_of_a_dead_worker_returns_when_its_lease_ends(ready: Stand) -> None:
    ready.work.offer([offer()])
    [lost] = ready.take()
    ready.clock.step(14.9)
    ready.work.register(registration("w2", 16))
    assert ready.take() == []
    ready.clock.step(0.2)
    [again] = ready.take()
    assert again.key == lost.key
    assert again.token != lost.token


def test_leases_and_registrations_that_the_clock_left_behind_are_shortened(ready: Stand) -> None:
    ready.work.offer([offer()])
    assert ready.take()
    assert ready.work.shorten_leases() == 0
    ready.clock.step(-3600)  # and the worker dies at this moment
    assert ready.work.shorten_leases() == 2
    assert ready.work.shorten_leases() == 0
    ready.clock.step(20.1)
    assert ready.work.dispatch() == 0, "the dead worker still counts"
    ready.work.register(registration("w2", 4))
    assert [task.key for task in ready.take()] == [key()]
    assert [member.registration.worker for member in ready.work.inspect().members] == ["w2"]


def test_renew_keeps_a_running_lease(ready: Stand) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    for _ in range(6):
        ready.clock.step(5)
        ready.work.register(registration("w1", 16))
        ready.work.renew([(task.key, task.token)])
        assert ready.take() == []
    assert ready.work.holds(task.key, task.token)


def test_calls_with_a_lost_token_change_nothing(ready: Stand) -> None:
    ready.work.offer([offer()])
    [lost] = ready.take()
    ready.clock.step(15)
    ready.work.register(registration("w1", 16))
    [mine] = ready.take()
    assert not ready.work.holds(lost.key, lost.token)
    ready.work.finish(lost.key, lost.token, requeue_after=0)
    ready.clock.step(10)
    ready.work.renew([(lost.key, lost.token)])
    assert ready.work.holds(mine.key, mine.token)
    ready.clock.step(5)
    ready.work.register(registration("w1", 16))
    assert len(ready.take()) == 1, "the lost token prolonged the lease of another worker"


def test_dispatched_lease_lasts_longer_than_a_running_one(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    ready.clock.step(WorkSettings().dispatched_lease - 1)
    ready.work.register(registration("w1", 16))
    assert ready.work.dispatch() == 0
    [task] = ready.work.begin(ready.pop_all())
    ready.clock.step(14)
    assert ready.take() == []
    assert ready.work.holds(task.key, task.token)


def test_batch_whose_leases_ended_begins_no_task(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    stale = ready.pop_all()
    ready.clock.step(WorkSettings().dispatched_lease)
    ready.work.register(registration("w1", 16))
    assert ready.work.dispatch() == 1
    assert ready.work.begin(stale) == []
    assert len(ready.work.begin(ready.pop_all())) == 1


def test_batch_begins_once(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    leases = ready.pop_all()
    assert len(ready.work.begin(leases)) == 1
    assert ready.work.begin(leases) == []


def test_lease_that_has_not_begun_can_be_returned(ready: Stand) -> None:
    ready.work.offer([offer()])
    ready.work.dispatch()
    [(lost, token)] = ready.pop_all()
    ready.work.finish(lost, token, requeue_after=0)
    assert [task.key for task in ready.take()] == [lost]


def test_finish_with_requeue_after_runs_the_key_again_after_the_delay(ready: Stand) -> None:
    ready.work.offer([offer(seen=4)])
    [task] = ready.take()
    ready.work.finish(task.key, task.token, requeue_after=2.5)
    ready.clock.step(2.4)
    assert ready.take() == []
    ready.clock.step(0.2)
    [again] = ready.take()
    assert again.seen == 4
    ready.work.finish(again.key, again.token, requeue_after=0)
    assert len(ready.take()) == 1


def test_offer_ends_a_requeue_delay(ready: Stand) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    ready.work.finish(task.key, task.token, requeue_after=30)
    ready.work.offer([offer()])
    [again] = ready.take()
    ready.work.finish(again.key, again.token)
    ready.clock.step(60)
    ready.work.register(registration("w1", 16))
    assert ready.take() == [], "the delay outlived the run"


def test_shortest_delay_of_several_offers_applies(ready: Stand) -> None:
    ready.work.offer([offer(delay=5), offer(delay=1), offer(delay=9)])
    ready.clock.step(0.9)
    assert ready.take() == []
    ready.clock.step(0.2)
    assert len(ready.take()) == 1


def test_drop_removes_a_delayed_key(ready: Stand) -> None:
    ready.work.offer([offer(delay=5), offer(1, delay=5)])
    ready.work.drop([key(), key(2)])
    assert set(ready.work.inspect().records) == {key(1)}
    ready.clock.step(5.1)
    assert [task.key for task in ready.take()] == [key(1)]


def test_drop_of_a_running_key_leads_to_one_more_run(ready: Stand) -> None:
    ready.work.offer([offer()])
    [first] = ready.take()
    ready.work.drop([key()])
    ready.work.finish(first.key, first.token, requeue_after=600)
    [second] = ready.take()
    ready.work.finish(second.key, second.token)
    assert not ready.work.inspect().records


def test_drop_keeps_a_ready_or_failed_key(ready: Stand) -> None:
    ready.work.offer([offer()])
    [failed] = ready.take()
    ready.work.finish(failed.key, failed.token, failed=True)
    ready.work.offer([offer(1)])
    ready.work.drop([key(), key(1)])
    ready.clock.step(0.2)
    assert {task.key for task in ready.take()} == {key(), key(1)}


def test_delayed_offer_does_not_delay_a_ready_key(ready: Stand) -> None:
    ready.work.offer([offer(), offer(delay=5, seen=8)])
    [task] = ready.take()
    assert task.seen == 8
    ready.work.offer([offer(delay=5)])
    ready.work.finish(task.key, task.token)
    assert len(ready.take()) == 1


def test_failures_back_off_exponentially_and_a_success_resets_the_count(ready: Stand) -> None:
    ready.work.offer([offer()])
    delays = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60]
    for failures, delay in enumerate(delays):
        [task] = ready.take()
        assert task.failures == failures
        ready.work.finish(task.key, task.token, failed=True)
        ready.clock.step(delay - 0.01)
        ready.work.register(registration("w1", 16))
        assert ready.take() == []
        ready.clock.step(0.02)
    [task] = ready.take()
    ready.work.finish(task.key, task.token, requeue_after=1)
    ready.clock.step(1.01)
    [task] = ready.take()
    assert task.failures == 0


def test_failed_run_with_a_new_offer_runs_at_once_and_keeps_its_count(ready: Stand) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    ready.work.offer([offer()])
    ready.work.finish(task.key, task.token, failed=True)
    assert [task.failures for task in ready.take()] == [1]


def test_backoff_is_capped_for_any_number_of_failures() -> None:
    assert backoff(5_000, WorkSettings()) == 60


def test_tenants_take_turns(ready: Stand) -> None:
    ready.work.offer([offer(number, "flood") for number in range(1_000)])
    ready.work.offer([offer(0, "b"), offer(0, "c"), offer(1, "b")])
    tenants = [task.tenant for task in ready.take()]
    assert len(tenants) == 16
    assert tenants[:5] == ["flood", "b", "c", "flood", "b"]


def test_new_tenant_gets_the_next_turn_after_thousands_of_foreign_keys(ready: Stand) -> None:
    ready.work.offer([replace(offer(number), tenant="/flood") for number in range(4_000)])
    ready.take()
    ready.work.register(registration("w2", 2))
    ready.work.offer([replace(offer(0, "b"), tenant="team/ours")])
    assert [task.tenant for task in ready.take()] == ["/flood", "team/ours"]


def test_a_tenant_leaves_threads_to_others_while_these_have_keys_and_has_all_threads_afterwards(ready: Stand) -> None:
    ready.work.offer([offer(0, "b")])
    [ours] = ready.take()
    ready.work.finish(ours.key, ours.token)
    ready.work.offer([offer(number, "flood") for number in range(30)])
    flood = ready.take()
    assert len(flood) == 2, "two threads at least; the others are for other tenants"
    ready.work.offer([offer(0, "b")])
    assert [task.tenant for task in ready.take()] == ["b"], "no run of the flood has to end first"
    for task in flood:
        ready.work.finish(task.key, task.token)
    assert [task.tenant for task in ready.take()] == ["flood", "flood"]
    ready.clock.step(WorkSettings().dispatched_lease)  # the leases have ended, as if their worker had died
    ready.work.register(registration("w1", 16))
    assert len(ready.take()) == 16, "no other tenant has had a key lately"


def test_a_tenant_has_both_of_two_threads_though_another_has_had_keys(stand: Stand) -> None:
    stand.work.register(registration("w1", 2))
    stand.work.offer([offer(0, "b")])
    [ours] = stand.take()
    stand.work.finish(ours.key, ours.token)
    stand.work.offer([offer(number, "flood") for number in range(3)])
    assert len(stand.take()) == 2, "no thread idles while keys wait"


def test_keys_of_one_tenant_are_served_in_order(ready: Stand) -> None:
    ready.work.offer([offer(number) for number in range(5)])
    assert [task.key for task in ready.take()] == [key(number) for number in range(5)]


def of_kind(kind: WorkKind, numbers: range, tenant: str = "a", delay: float = 0.0) -> list[Offer]:
    return [replace(offer(number, tenant, delay=delay), kind=kind) for number in numbers]


def kinds_of(tasks: list[Task]) -> str:
    """Return the first letter of the kind of each task, by its number: ends from 0, begins from 100, tells from 200."""
    return "".join("ebt"[int(task.key.name.removeprefix("job-")) // 100] for task in tasks)


def kind_of(stand: Stand, number: int) -> WorkKind:
    return stand.work.inspect().records[key(number)].kind


def test_of_eight_keys_in_a_row_five_end_two_begin_and_one_tells(ready: Stand) -> None:
    """The bound against starvation holds whatever waits, over one dispatch or several dispatches."""
    ready.work.offer([*of_kind("tells", range(200, 300)), *of_kind("begins", range(100, 200))])
    ready.work.offer(of_kind("ends", range(100)))
    running = ready.take()
    order = kinds_of(running)
    assert order == "ebeebeteebeebete"
    for free in (1, 3, 5, 7):
        for task in running[:free]:
            ready.work.finish(task.key, task.token)
        running = running[free:] + (taken := ready.take())
        order += kinds_of(taken)
    assert len(order) == 32
    assert all(sorted(order[start : start + 8]) == sorted("eeeeebbt") for start in range(25))


@pytest.mark.parametrize(
    ("waiting", "order"),
    [
        (("tells",), "tttttttttttttttt"),
        (("tells", "begins"), "bbbbbbtbbbbbbbtb"),
        (("tells", "ends"), "eeeeeeteeeeeeete"),
        (("begins", "ends"), "ebeebeeeebeebeee"),
    ],
)
def test_what_a_kind_leaves_goes_to_the_most_urgent_that_waits(
    ready: Stand, waiting: tuple[WorkKind, ...], order: str
) -> None:
    for kind in waiting:
        start = 100 * KINDS.index(kind)
        ready.work.offer(of_kind(kind, range(start, start + 20)))
    assert kinds_of(ready.take()) == order


def test_tenants_take_turns_within_each_kind(ready: Stand) -> None:
    ready.work.offer([*of_kind("ends", range(50), "flood"), *of_kind("begins", range(100, 150), "flood")])
    ready.work.offer([*of_kind("begins", range(100, 102), "b"), *of_kind("ends", range(2), "c")])
    tasks = ready.take()
    assert kinds_of(tasks) == "ebeebeeeebeebeee"
    ends = [task.tenant for task in tasks if kinds_of([task]) == "e"]
    begins = [task.tenant for task in tasks if kinds_of([task]) == "b"]
    assert (ends[:4], begins) == (["flood", "c", "flood", "c"], ["flood", "b", "flood", "b"])


def test_a_more_urgent_offer_brings_a_waiting_key_forward_and_a_less_urgent_one_does_not_put_it_back(
    ready: Stand,
) -> None:
    ready.work.offer([*of_kind("tells", range(3)), *of_kind("begins", range(3, 6))])
    ready.work.offer([*of_kind("ends", range(2, 3)), *of_kind("tells", range(2, 6))])
    ready.work.offer([*of_kind("ends", range(1, 2), delay=5.0)])
    assert [task.key for task in ready.take()] == [key(number) for number in (2, 3, 1, 4, 5, 0)]
    work = ready.work.inspect()
    assert (work.ready, work.turns, work.ready_count) == ({}, set(), 0)


@pytest.mark.parametrize("delay", [0.0, 5.0])
@pytest.mark.parametrize("version", [0, 7])
def test_the_next_run_of_a_key_is_of_the_most_urgent_kind_that_was_offered_during_its_run(
    ready: Stand, delay: float, version: int
) -> None:
    ready.work.offer([offer(0)])
    [task] = ready.take()
    meanwhile = [of_kind(kind, range(1))[0] for kind in ("tells", "ends", "begins")]
    ready.work.offer([replace(each, delay=delay, version=version) for each in meanwhile])
    ready.work.finish(task.key, task.token)
    assert kind_of(ready, 0) == "ends"
    assert ready.take()
    ready.work.offer(of_kind("tells", range(1)))
    assert kind_of(ready, 0) == "tells", "the earlier offer counts twice"


def test_a_delayed_key_keeps_its_kind(ready: Stand) -> None:
    ready.work.offer(of_kind("ends", range(2)))
    for task in ready.take():
        ready.work.finish(task.key, task.token, requeue_after=3.0, failed=task.key == key(1))
    ready.work.offer([*of_kind("tells", range(2, 3), delay=3.0), *of_kind("ends", range(2, 3), delay=4.0)])
    ready.clock.step(5.0)
    assert len(ready.take()) == 3
    assert [kind_of(ready, number) for number in range(3)] == ["ends"] * 3
    ready.clock.step(WorkSettings().running_lease)
    ready.work.register(registration("w2", 1))
    assert len(ready.take()) == 1
    assert [kind_of(ready, number) for number in range(3)] == ["ends"] * 3, (
        "the kinds are lost after the death of a worker"
    )


def test_dispatch_takes_at_most_as_many_keys_as_free_threads(ready: Stand) -> None:
    ready.work.offer([offer(number) for number in range(100)])
    ready.work.register(registration("w2", 4))
    assert ready.work.dispatch() == 20
    assert ready.work.dispatch() == 0
    for lease in ready.pop_all()[:3]:
        ready.work.finish(*lease)
    assert ready.work.dispatch() == 3


def test_dispatch_takes_no_key_without_workers(stand: Stand) -> None:
    stand.work.offer([offer()])
    assert stand.work.dispatch() == 0
    stand.work.register(registration("w1", 2))
    assert stand.work.dispatch() == 1


def test_dispatch_ignores_silent_and_stopping_workers(ready: Stand) -> None:
    ready.work.offer([offer(number) for number in range(3)])
    ready.clock.step(15)
    assert ready.work.dispatch() == 0
    ready.work.register(registration("w1", 16))
    ready.work.register(registration("w1", 0))
    assert ready.work.dispatch() == 0


def test_batch_size_grows_with_the_number_of_ready_keys(ready: Stand) -> None:
    ready.work.register(registration("w2", 16))
    ready.work.offer([offer(number) for number in range(4)])
    ready.work.dispatch()
    assert _sizes(ready) == [1, 1, 1, 1]
    ready.work.offer([offer(number) for number in range(10, 26)])
    ready.work.dispatch()
    assert _sizes(ready) == [4, 4, 4, 4]
    ready.work.register(registration("w3", 12))
    ready.work.offer([offer(number) for number in range(100, 1100)])
    ready.work.dispatch()
    assert _sizes(ready) == [15, 9], "a batch is no larger than a worker's threads"


def _sizes(stand: Stand) -> list[int]:
    return list(itertools.takewhile(bool, (len(stand.pop()) for _ in itertools.count())))


def test_batch_has_at_most_32_keys(stand: Stand) -> None:
    stand.work.register(registration("w1", 1000))
    stand.work.offer([offer(number) for number in range(1000)])
    stand.work.dispatch()
    assert _sizes(stand) == [32] * 31 + [8]


def test_task_has_the_reservation_of_its_job(ready: Stand) -> None:
    reservation = Reservation(key=key(), queue="a", attempt=2, epoch=1, charge={"jobs": 1, "cpu": 1500}, port=20_001)
    ready.reserve(reservation)
    ready.work.offer([offer(0), offer(1)])
    assert [task.reservation for task in ready.take()] == [reservation, None]


def test_rebuild_ends_every_fence(ready: Stand) -> None:
    ready.work.offer([offer(0), offer(1)])
    first, second = ready.take()
    assert ready.work.holds(first.key, first.token)
    ready.set_epoch(2)
    assert not ready.work.holds(first.key, first.token)
    ready.work.finish(second.key, second.token, requeue_after=0)
    [again] = ready.take()
    assert ready.work.holds(again.key, again.token)


def test_lost_store_refuses_offer_dispatch_and_begin(ready: Stand) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    ready.lose()
    with pytest.raises(errors.StoreLost):
        ready.work.offer([offer()])
    with pytest.raises(errors.StoreLost):
        ready.work.dispatch()
    with pytest.raises(errors.StoreLost):
        ready.work.begin([(task.key, task.token)])
    assert not ready.work.holds(task.key, task.token)
    ready.work.renew([(task.key, task.token)])
    ready.work.finish(task.key, task.token)


def test_tokens_stay_unique_after_a_loss_of_the_store(ready: Stand) -> None:
    ready.work.offer([offer()])
    [before] = ready.take()
    ready.lose()
    ready.set_epoch(2)
    ready.work.register(registration("w1", 16))
    ready.work.offer([offer()])
    [after] = ready.take()
    assert after.token != before.token
    ready.work.finish(before.key, before.token)
    assert ready.work.holds(after.key, after.token)


def told(version: int, seen: int = 0) -> Offer:
    """Return the offer for a change of a job."""
    return Offer(key=key(), tenant="a", seen=seen, version=version)


@pytest.mark.parametrize(
    ("offers", "again"),
    [
        pytest.param([told(7)], False, id="change written by the run itself"),
        pytest.param([told(6, seen=3), told(7, seen=5)], False, id="changes that the run has seen"),
        pytest.param([told(8)], True, id="later change"),
        pytest.param([told(7, seen=6)], True, id="newer pods than the run has seen"),
        pytest.param([told(6, seen=6), told(7)], True, id="newer pods in an earlier offer"),
        pytest.param([offer()], True, id="offer without a version"),
        pytest.param([offer(), told(7)], True, id="offer without a version first"),
        pytest.param([told(7), offer()], True, id="offer without a version last"),
        pytest.param([offer(delay=1.0)], True, id="delayed offer without a version"),
    ],
)
@pytest.mark.parametrize("meanwhile", [True, False], ids=["during the run", "after it"])
@pytest.mark.parametrize("timer", [None, 30.0])
def test_change_that_a_run_has_settled_does_not_lead_to_another_run(
    ready: Stand, offers: list[Offer], again: bool, meanwhile: bool, timer: float | None
) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    ready.work.offer(offers if meanwhile else [])
    ready.work.finish(task.key, task.token, requeue_after=timer, pods_version=5, settled_version=7)
    ready.work.offer([] if meanwhile else offers)
    ready.clock.step(1.0)
    assert bool(ready.take()) is again
    if not again and timer:
        ready.clock.step(30.0)
        ready.work.register(registration("w1", 16))
        assert ready.take(), "the timer of the run was forgotten"


def test_change_after_a_failed_or_unsettled_run_leads_to_another_run(ready: Stand) -> None:
    def run(**how: int) -> None:
        ready.work.offer([offer()])
        [task] = ready.take()
        ready.work.finish(task.key, task.token, **how)

    run(settled_version=7)
    run()
    ready.work.offer([told(7)])
    [task] = ready.take()
    ready.work.offer([told(7)])
    ready.work.finish(task.key, task.token, failed=True, settled_version=7)
    assert len(ready.take()) == 1


def test_settled_change_leaves_a_ready_key_ready(ready: Stand) -> None:
    ready.work.offer([offer()])
    [task] = ready.take()
    ready.work.finish(task.key, task.token, requeue_after=0, settled_version=7)
    ready.work.offer([told(7)])
    assert len(ready.take()) == 1


def test_keys_are_leased_only_to_workers_of_the_layout_of_the_store(stand: Stand) -> None:
    stand.work.offer([Offer(key=JobKey("team", "one", "uid"), tenant="a")])
    own, older = registration("w", 4), replace(registration("older", 4), layout=9)
    assert [stand.work.register(each).layout for each in (older, own)] == [own.layout, own.layout]
    stand.work.register(replace(own, threads=0))
    assert stand.work.dispatch() == 0
    stand.work.register(own)
    assert stand.work.dispatch() == 1
    assert {member.registration for member in stand.work.inspect().members} == {own, older}


def test_a_store_that_was_emptied_names_no_layout(stand: Stand) -> None:
    stand.lose()
    assert stand.work.register(registration("w", 4)) == StoreIdentity(layout=0, epoch=0, owner="", time=START)


@pytest.mark.servers
def test_keys_that_a_version_without_kinds_made_ready_begin(client: connection.Connection) -> None:
    stand = RedisStand(client, Clock())
    stand.work.register(registration("w1", 16))
    for number in range(2):
        record = {"state": "ready", "tenant": "a", "since": "1.000000", "seen": "3"}
        client.hset(redis_keys.RECORDS, str(key(number)), json.dumps(record))
        client.rpush(f"{redis_keys.READY}a", str(key(number)))
    client.rpush(redis_keys.TENANTS, "a")
    client.set(redis_keys.READY_COUNT, 2)
    stand.work.offer([*of_kind("ends", range(1, 2)), *of_kind("tells", range(1)), *of_kind("tells", range(2, 3))])
    tasks = stand.take()
    assert [(task.key, task.seen) for task in tasks] == [(key(1), 3), (key(0), 3), (key(2), 0)]
    assert int(client.get(redis_keys.READY_COUNT)) == 0
