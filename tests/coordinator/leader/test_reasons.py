"""The reason in the status of a waiting job, and the number of writes for it."""

import threading
from typing import Any

from coordinator.leader.reasons import Reasons
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube.api import Manifest
from kube.process.turns import Turns
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.waiting import SECONDS


def said(desk: Desk, key: JobKey) -> str:
    """Return the reason code in the status of a job."""
    told = desk.job(key).status.queue
    return told.reason if told else ""


def writes(desk: Desk) -> int:
    """Return how many statuses of jobs the coordinator has written."""
    return desk.watching.calls["patch TorchJob"]


def tell(desk: Desk, clock: Clock) -> None:
    """Step the clock, and let reasons be found and written once."""
    desk.see()
    clock.step(1.0)
    desk.write_reasons()


def test_a_reason_that_keeps_a_job_out_is_written_at_once_and_removed_later(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", namespaces=["others"])
    desk.begin()
    keys = {
        "NotAllowed": desk.submit("elsewhere", namespace, "a"),
        "QueueNotFound": desk.submit("lost", namespace, "b"),
        "Held": desk.submit("held", namespace, "b", schedulingPolicy={"hold": True}),
    }
    desk.until(lambda: all(map(desk.term.watches.job, keys.values())) and not desk.term.flush())
    tell(desk, clock)
    assert {code: said(desk, key) for code, key in keys.items()} == {code: code for code in keys}
    told = desk.job(keys["NotAllowed"]).status.queue
    assert (told.name, told.since.timestamp()) == ("a", desk.job(keys["NotAllowed"]).submission_time)
    assert told.message.startswith(f"queue a is not for namespace {namespace} (")
    before = writes(desk)
    desk.term.resync()
    desk.until(lambda: not desk.term.flush())
    tell(desk, clock)
    assert writes(desk) == before
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"namespaces": [], "stopPolicy": "Hold"}})
    desk.until(lambda: keys["NotAllowed"] in desk.waiting())
    tell(desk, clock)
    assert said(desk, keys["NotAllowed"]) == ""


def test_only_the_first_waiting_job_gets_a_reason_and_admission_removes_it(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: len(desk.pods_of(first)) == 2)
    second = desk.submit("second", namespace, "a", schedulingPolicy={"priority": 5})
    third = desk.submit("third", namespace, "a")
    desk.until(lambda: desk.waiting() == {second, third})
    clock.now = desk.job(third).submission_time + 1
    tell(desk, clock)
    assert not writes(desk)
    clock.step(desk.settings.reason_after)
    tell(desk, clock)
    assert (said(desk, second), said(desk, third)) == ("WaitingForQuota", "")
    desk.change(first, suspend=True)
    desk.until(lambda: len(desk.pods_of(second)) == 2)
    assert desk.job(second).status.queue is None
    assert writes(desk) == 1


def test_a_job_that_can_never_fit_gets_its_reason_at_once(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a", quota={"cpu": 1})
    desk.begin()
    large = desk.submit("large", namespace, "a")
    small = desk.submit("small", namespace, "a", tasks={"Master": desks.task()})
    desk.until(lambda: desk.reserved() == {small} and desk.waiting() == {large})

    def told() -> bool:
        tell(desk, clock)
        return said(desk, large) == "ExceedsQuota"

    desk.until(told)
    behind = desk.submit("to-wait", namespace, "a", tasks={"Master": desks.task()})
    desk.until(lambda: desk.waiting() == {large, behind})
    clock.now = desk.job(behind).submission_time + desk.settings.reason_after + 1
    tell(desk, clock)
    assert said(desk, behind) == "WaitingForQuota"


def test_writes_of_reasons_are_limited_and_the_oldest_job_comes_first(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.begin()
    keys = [desk.submit(f"job-{number:02}", namespace, "nowhere") for number in range(30)]
    desk.until(lambda: desk.statuses.reasons._puts.keys() >= {*keys})
    assert desk.write_reasons() == 5
    clock.step(0.1)
    assert desk.write_reasons() == 2
    clock.step(60)
    assert desk.write_reasons() == 5
    assert [said(desk, key) for key in keys[:5]] == ["QueueNotFound"] * 5


def test_tenants_take_turns_at_writes_of_reasons(desk: Desk, namespace: str, clock: Clock) -> None:
    """One tenant has many old jobs, each in an invented queue. These jobs do not delay the reasons for the jobs of
    another tenant.
    """
    desk.queue("ours", namespaces=[namespace])
    desk.begin()
    held = {"schedulingPolicy": {"hold": True}}
    flood = [desk.submit(f"job-{number:02}", namespace, f"invented-{number}", **held) for number in range(20)]
    ours = [desk.submit(f"ours-{number}", namespace, "ours", **held) for number in range(3)]
    desk.until(lambda: desk.statuses.reasons._puts.keys() >= {*flood, *ours})
    assert desk.write_reasons() == 5
    assert [said(desk, key) for key in flood[:4]] == ["Held"] * 3 + [""]
    assert [said(desk, key) for key in ours] == ["Held", "Held", ""]


def test_a_job_that_changed_meanwhile_gets_no_reason(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.begin()
    key = desk.submit("train", namespace, "nowhere")
    desk.until(lambda: desk.term.counts.routed)
    newer: Manifest = {"metadata": {"annotations": {"touched": "since"}}}
    desk.watches.jobs.stop()
    desk.cluster.patch(TORCHJOBS, key.name, newer, namespace)
    clock.step(1.0)
    desk.write_reasons()
    assert said(desk, key) == ""


class Odd:
    """An API server that raises an unforeseen error for one job."""

    def __init__(self, cluster: Any, name: str) -> None:
        self._cluster, self._name = cluster, name

    def patch(self, resource: Any, name: str, *about: Any, **more: Any) -> Any:
        if name == self._name:
            raise TypeError("nobody foresaw it")
        return self._cluster.patch(resource, name, *about, **more)


def test_a_failed_write_for_one_job_does_not_delay_other_jobs(desk: Desk, namespace: str) -> None:
    desk.begin()
    keys = [desk.submit(f"job-{number}", namespace, "nowhere") for number in range(3)]
    desk.until(lambda: desk.term.counts.routed >= 3)
    desk.statuses.cluster = Odd(desk.watching, "job-0")

    def told() -> list[str]:
        desk.write_reasons()
        return [said(desk, key) for key in keys]

    desk.until(lambda: told() == ["", "QueueNotFound", "QueueNotFound"])
    assert f"TorchJob {namespace}/job-0 waits (TypeError" in desk.watches.errors.summary


def test_the_reason_thread_survives_an_unforeseen_error(desk: Desk, monkeypatch: Any) -> None:
    monkeypatch.setattr(Reasons, "seconds", 0.005)
    stop, failed = threading.Event(), threading.Semaphore(0)

    def clock() -> float:
        failed.release()
        raise OverflowError("nobody foresaw it")

    desk.reasons.clock = clock
    thread = threading.Thread(target=desk.reasons.run, args=(stop, lambda: True, Turns()))
    thread.start()
    try:
        assert all(failed.acquire(timeout=SECONDS) for _ in range(3))
        assert "the reasons that jobs wait (OverflowError" in desk.watches.errors.summary
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not thread.is_alive()


def test_a_job_that_was_moved_shows_its_new_queue_although_the_reason_is_the_same(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    def shown() -> tuple[str, str]:
        tell(desk, clock)
        queue = desk.job(key).status.queue
        return (queue.reason, queue.name) if queue is not None else ("", "")

    desk.queue("a")
    desk.queue("b")
    desk.begin()
    key = desk.submit("held", namespace, "a", schedulingPolicy={"hold": True})
    desk.until(lambda: shown() == ("Held", "a"))
    desk.change(key, schedulingPolicy={"queue": "b"})
    desk.until(lambda: shown() == ("Held", "b"))
    desk.until(lambda: desk.term.watches.job(key).waits.queue == "b" and not desk.term.flush())
    before = writes(desk)
    desk.term.resync()
    desk.until(lambda: not desk.term.flush())
    tell(desk, clock)
    assert writes(desk) == before
