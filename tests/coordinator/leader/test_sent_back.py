"""Admitted jobs that lose their room and wait again: other jobs may use the room until these jobs are admitted
again.
"""

from datetime import UTC, datetime

import pytest

from coordinator.leader.router import MissingCharge
from crds import labels
from crds.api_resources import EVENTS, PODS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.coordinator.leader.test_control_loop import admit, make_pod, seen
from tests.support.coordinator.desk import Clock, Desk, task
from tests.support.waiting import SECONDS, until


def both_admitted(desk: Desk, namespace: str) -> tuple[JobKey, JobKey]:
    """Return two admitted jobs. There is room for one of them, as may happen after a loss of the store."""
    desk.queue("a", quota={"jobs": 1})
    older, newer = desk.submit("older", namespace, "a"), desk.submit("newer", namespace, "a")
    seen(desk, newer)
    admit(desk, older, epoch=1)
    admit(desk, newer, epoch=2, port=20_008)
    desk.see()
    return older, newer


def test_the_newest_admission_without_room_and_pods_is_taken_back(desk: Desk, namespace: str) -> None:
    older, newer = both_admitted(desk, namespace)
    desk.begin(3)
    assert desk.reserved() == {older}
    assert desk.term.audit()
    desk.until(lambda: desk.phase(newer) == "Queued" and desk.waiting() == {newer})
    assert desk.job(newer).admission is None
    assert len(desk.pods_of(older)) == 2
    assert not desk.pods_of(newer)
    desk.change(older, suspend=True)
    desk.until(lambda: len(desk.pods_of(newer)) == 2)
    assert desk.job(newer).status.attempt == 2


def test_an_admission_with_a_pod_keeps_its_room(desk: Desk, namespace: str) -> None:
    _, newer = both_admitted(desk, namespace)
    make_pod(desk, newer, "newer-master-0")
    desk.begin(3)
    assert desk.reserved() == {newer}
    assert desk.term.audit()


def test_an_admission_found_after_a_rebuild_is_taken_back_if_its_room_is_used(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: desk.reserved() == {first}, worker=False)
    late = desk.submit("late", namespace, "a")
    desk.until(lambda: desk.waiting() == {late}, worker=False)
    admit(desk, late, epoch=1, port=20_055)
    with pytest.raises(MissingCharge):
        desk.until(lambda: False)
    desk.begin(2)
    desk.until(lambda: desk.phase(late) == "Queued" and desk.waiting() == {late})
    assert desk.reserved() == {first}


def test_a_job_that_does_not_run_in_time_backs_off_even_after_a_loss_of_the_store(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, admission_timeout=100, admission_backoff=60, admission_tries=2) as desk:
        desk.queue("a", quota={"jobs": 1})
        desk.begin()
        stuck = desk.submit("stuck", namespace, "a", schedulingPolicy={"priority": 5})
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        other = desk.submit("other", namespace, "a")
        desk.until(lambda: desk.waiting() == {other})
        clock.step(101)
        desk.until(lambda: desk.phase(stuck) == "Queued" and desk.reserved() == {other})
        assert not desk.pods_of(stuck)
        tries, parked, until = retry_state(desk, stuck)
        assert (tries, parked) == (1, False)
        assert clock() + 45 <= until <= clock() + 60
        desk.until(lambda: desk.waiting() == set())
        desk.lose()
        desk.begin(2)
        assert desk.waiting() == set()
        desk.move(other, "Running")
        desk.until(lambda: desk.phase(other) == "Running")
        desk.move(other, "Succeeded")
        desk.until(lambda: desk.reserved() == set())
        clock.step(61)
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        assert desk.job(stuck).status.attempt == 2


def retry_state(desk: Desk, key: JobKey) -> tuple[int, bool, float]:
    """Return the number of tries, whether the job is parked, and the end of its back-off."""
    waits = desk.job(key).status.queue
    assert waits is not None
    return waits.tries, waits.parked, waits.not_before.timestamp() if waits.not_before else 0.0


def test_a_job_without_tries_left_is_parked_until_a_retry_is_requested(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, admission_timeout=100, admission_tries=1) as desk:
        desk.queue("a")
        desk.begin()
        stuck = desk.submit("stuck", namespace, "a")
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        clock.step(101)
        desk.until(lambda: desk.phase(stuck) == "Queued" and desk.reserved() == set())
        assert retry_state(desk, stuck) == (1, True, 0.0)
        clock.step(100_000)
        desk.term.resync()
        desk.until(lambda: desk.watches.take(0) == [])
        assert desk.waiting() | desk.reserved() == set()
        asked = datetime.fromtimestamp(clock(), UTC).isoformat()
        notes = {"metadata": {"annotations": {labels.RETRY_AT: asked}}}
        embedded_cluster.patch(TORCHJOBS, "stuck", notes, namespace)
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        desk.move(stuck, "Running")
        desk.until(lambda: desk.phase(stuck) == "Running")
        assert desk.job(stuck).status.queue is None
        clock.step(1000)
        desk.term.resync()
        desk.until(lambda: desk.watches.take(0) == [])
        assert desk.phase(stuck) == "Running"


def test_a_retry_requested_for_the_future_has_no_effect_before(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, admission_timeout=100, admission_backoff=60, admission_tries=2) as desk:
        desk.queue("a")
        desk.begin()
        stuck = desk.submit("stuck", namespace, "a")
        notes = {"metadata": {"annotations": {labels.RETRY_AT: "9999-12-31T23:59:59Z"}}}
        embedded_cluster.patch(TORCHJOBS, "stuck", notes, namespace)
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        clock.step(101)
        desk.until(lambda: desk.phase(stuck) == "Queued" and desk.reserved() == set())
        tries, parked, until = retry_state(desk, stuck)
        assert (tries, parked, 45 <= until - clock() <= 60) == (1, False, True)
        assert desk.waiting() | desk.reserved() == set()
        clock.step(61)
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)
        clock.step(101)
        desk.until(lambda: desk.phase(stuck) == "Queued" and desk.reserved() == set())
        assert retry_state(desk, stuck) == (2, True, 0.0)
        asked = datetime.fromtimestamp(clock() + 1000, UTC).isoformat()
        embedded_cluster.patch(TORCHJOBS, "stuck", {"metadata": {"annotations": {labels.RETRY_AT: asked}}}, namespace)
        desk.until(lambda: desk.watches.take(0) == [])
        assert desk.waiting() | desk.reserved() == set()
        clock.step(1000)  # the requested time has come, and the job is tried again without another change
        desk.until(lambda: len(desk.pods_of(stuck)) == 2)


def test_drained_jobs_give_their_room_back_and_come_first_when_the_queue_resumes(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: len(desk.pods_of(first)) == 2)
    desk.move(first, "Running")
    desk.until(lambda: desk.phase(first) == "Running")
    urgent = desk.submit("urgent", namespace, "a", schedulingPolicy={"priority": 9})
    desk.until(lambda: desk.waiting() == {urgent})
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "HoldAndDrain"}})

    def drained() -> bool:
        clock.step(1.0)
        return desk.phase(first) == "Queued" and desk.reserved() == set() and desk.waiting() == {first, urgent}

    desk.until(drained)
    assert not desk.pods_of(first)
    assert desk.job(first).status.queue.drained
    assert desk.content.entries[first].entry.returning
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})

    def resumed() -> bool:
        clock.step(1.0)  # a worker whose cache lags tries again later
        return desk.reserved() == {first} and len(desk.pods_of(first)) == 2

    desk.until(resumed)
    assert desk.job(first).status.attempt == 2
    assert desk.job(first).status.queue is None
    assert desk.waiting() == {urgent}


@pytest.mark.parametrize("gone", [True, False])
def test_draining_a_queue_shortens_long_grace_periods(desk: Desk, namespace: str, clock: Clock, gone: bool) -> None:
    desk.queue("a")
    desk.begin()
    endless = task()
    endless["template"]["spec"] |= {"nodeName": "n1", "terminationGracePeriodSeconds": 2**31}
    key = desk.submit("train", namespace, "a", tasks={"Master": endless})
    desk.until(lambda: len(desk.pods_of(key)) == 1)
    desk.move(key, "Running")
    desk.until(lambda: desk.phase(key) == "Running")

    def grace() -> int | None:
        (pod,) = desk.cluster.list(PODS, namespace).items
        found = pod["metadata"].get("deletionGracePeriodSeconds")
        return found if found is None else int(found)

    if gone:  # the pod ends after the grace period of its template, and its queue pays until then
        desk.cluster.delete(TORCHJOBS, key.name, namespace)
        desk.until(lambda: grace() == 2**31)
        assert desk.reserved() == {key}
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "HoldAndDrain"}})

    def shortened() -> bool:
        clock.step(1.0)
        return grace() == 600

    desk.until(shortened)
    told = {each["reason"] for each in desk.cluster.list(EVENTS, namespace).items}
    assert "GracePeriodShortened" in told
    desk.cluster.delete(PODS, "train-master-0", namespace, grace_period_seconds=0)
    desk.until(lambda: desk.reserved() == set())


def test_a_pick_just_before_its_queue_drains_is_given_back(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    version = desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "HoldAndDrain"}})
    assert desk.queues.wait_for(int(version["metadata"]["resourceVersion"]), SECONDS)

    def back() -> bool:
        clock.step(0.5)
        return desk.reserved() == set() and desk.waiting() == {key}

    desk.until(back)
    assert not desk.pods_of(key)
    assert desk.job(key).admission is None


def test_a_queue_pays_for_a_job_that_did_not_run_in_time(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, admission_timeout=100, pool="cpu=2") as desk:
        desk.queue("a")
        desk.queue("b")
        stuck, same = (desk.submit(name, namespace, "a") for name in ("a-stuck", "a-then"))
        other = desk.submit("b-then", namespace, "b")
        seen(desk, other)
        until(lambda: len(desk.watches.queues.values()) == 2)
        desk.begin()
        desk.until(lambda: desk.reserved() == {stuck} and len(desk.pods_of(stuck)) == 2)
        clock.step(101)
        desk.until(lambda: desk.reserved() - {stuck})
        assert desk.reserved() == {other}
        assert desk.waiting() == {same}
