"""Jobs that are resized while they hold room: the entries that the leader puts, and the room that it frees and
refunds.
"""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.leader.router import MissingCharge
from crds.api_resources import PODS, RESOURCE_QUOTAS, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues.picking.fair_share import UNIT
from queues.store import IdleGrowth
from queues.tasks import Offer
from tests.coordinator.leader.test_control_loop import make_pod
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk, remove
from tests.support.waiting import patient, until

SINCE = "2026-01-01T00:00:00Z"
POLICY = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 8}


def amounts(workers: int) -> dict[str, int]:
    return {"jobs": 1, "pods": workers, "cpu": 1000 * workers}


def write(desk: Desk, key: JobKey, workers: int, *, to: int | None = None, **changes: Any) -> None:
    """Write that a job was granted some workers, as a worker process does. `to` is the number of workers that the job
    wants.
    """
    held = desk.content.reservations[key]
    given = {"queue": "a", "attempt": 1, "epoch": held.epoch, "pick": 1, "port": held.port, "admittedAt": SINCE}
    admission = {**given, "charge": amounts(workers), "workers": workers, "grown": 0, "declined": 0, **changes}
    scaling = None if to is None else {"from": workers, "to": to, "since": SINCE, "victims": []}
    status = {"phase": "Running", "attempt": 1, "admission": admission, "scaling": scaling}
    made = desk.cluster.patch(TORCHJOBS, key.name, {"status": status}, key.namespace, subresource="status")
    desk.watches.jobs.wait_for(int(made["metadata"]["resourceVersion"]), patient())


def elastic(desk: Desk, namespace: str, workers: int, name: str = "train", **policy: Any) -> JobKey:
    """Return an elastic job of queue a that was granted all its workers."""
    spec = {"torchElasticPolicy": {**POLICY, **policy}, "tasks": {"Worker": desks.task(workers)}}
    key = desk.submit(name, namespace, "a", **spec)
    desk.until(lambda: key in desk.reserved(), worker=False)
    write(desk, key, workers)
    return key


def size(desk: Desk, key: JobKey) -> tuple[int, int]:
    """Return the number of CPUs for which a job is charged, and how often the job has grown."""
    held = desk.content.reservations[key]
    return held.charge["cpu"] // 1000, held.grown


def workers_of(desk: Desk, key: JobKey, count: int) -> None:
    for index in range(count):
        make_pod(desk, key, f"{key.name}-worker-{index}")


def finish_runs(desk: Desk) -> None:
    """End every run of a worker. No job is reconciled."""
    for task in desk.work.begin(desk.work.pop()):
        desk.work.finish(task.key, task.token)


@pytest.mark.parametrize(
    ("cpu", "granted"), [pytest.param(3, 3, id="a part of its workers fits"), pytest.param(9, 4, id="all of them fit")]
)
def test_a_job_is_admitted_with_as_many_workers_as_fit(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, cpu: int, granted: int
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={cpu}") as desk:
        desk.queue("a")
        desk.begin()
        key = desk.submit("train", namespace, "a", tasks={"Worker": desks.task(4)}, minMembers={"Worker": 2})
        desk.until(lambda: len(desk.pods_of(key)) == granted)
        admission = desk.job(key).admission
        assert admission is not None
        assert (admission.workers, admission.charge) == (granted, amounts(granted))
        assert desk.term.audit()


def test_a_job_that_wants_more_workers_grows_once_there_is_room(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=5") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 2)
        other = elastic(desk, namespace, 3, "other")
        write(desk, key, 2, to=4)
        desk.until(lambda: key in desk.waiting(), worker=False)
        desk.term.step()
        assert size(desk, key) == (2, 0)
        desk.cluster.delete(TORCHJOBS, "other", namespace, uid=other.uid)
        finish_runs(desk)
        desk.until(lambda: size(desk, key) == (4, 1), worker=False)
        assert key not in desk.waiting()


def test_a_growth_that_is_wanted_no_more_leaves_the_queue(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=2") as desk:
        desk.queue("a", quota={"cpu": "2"})
        desk.begin()
        key = elastic(desk, namespace, 1)
        elastic(desk, namespace, 1, "other")
        write(desk, key, 1, to=2)
        desk.until(lambda: key in desk.waiting(), worker=False)
        write(desk, key, 1)
        desk.until(lambda: key not in desk.waiting(), worker=False)
        assert size(desk, key) == (1, 0)


def test_a_growth_that_no_worker_has_written_is_offered_although_nothing_changed(
    desk: Desk, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 1)
    write(desk, key, 1, to=2)
    desk.until(lambda: size(desk, key) == (2, 1), worker=False)
    offered: list[Offer] = []
    monkeypatch.setattr(desk.work, "offer", offered.extend)
    write(desk, key, 1, to=3)  # any change of the job
    desk.until(lambda: any(offer.key == key for offer in offered), worker=False)
    assert {offer.version for offer in offered if offer.key == key} == {0}


def test_a_smaller_grant_frees_room_once_the_pods_are_gone_and_the_next_job_is_picked_in_that_step(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=3") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 3)
        workers_of(desk, key, 3)
        waiting = desk.submit("waiting", namespace, "a")
        desk.until(lambda: waiting in desk.waiting(), worker=False)
        write(desk, key, 1)
        finish_runs(desk)
        clock.step(1)
        desk.term.step()
        assert size(desk, key) == (3, 0), "three pods occupy room"
        for index in (1, 2):
            remove(desk.cluster, PODS, f"train-worker-{index}", namespace)
        until(lambda: len(desk.watches.job_pods(key)) == 1)
        finish_runs(desk)
        clock.step(1)
        desk.term.step()
        assert size(desk, key) == (1, 0)
        assert waiting in desk.reserved(), "the waiting job was picked in the same step"


def test_the_room_of_workers_without_pods_is_picked_in_the_step_that_sees_the_smaller_grant(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=3") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 3)
        waiting = desk.submit("waiting", namespace, "a")
        desk.until(lambda: waiting in desk.waiting(), worker=False)
        finish_runs(desk)
        write(desk, key, 1)
        desk.term.step()
        assert size(desk, key) == (1, 0)
        assert waiting in desk.reserved()


def test_a_charge_is_not_lowered_while_a_worker_is_at_the_job(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2)
    desk.until(lambda: bool(desk.term.counts.dispatched), worker=False)
    (task,) = desk.work.begin(desk.work.pop())
    write(desk, key, 1)
    for _ in range(3):
        clock.step(1)
        desk.term.step()
        assert size(desk, key) == (2, 0)
    desk.work.finish(key, task.token)
    clock.step(1)
    desk.term.step()
    assert size(desk, key) == (1, 0)


def test_a_job_does_not_grow_before_the_rest_of_its_charge_is_freed(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 3)
    workers_of(desk, key, 3)
    write(desk, key, 1, to=2)
    for _ in range(3):
        finish_runs(desk)
        clock.step(1)
        desk.term.step()
    assert size(desk, key) == (3, 0)
    for index in (1, 2):
        remove(desk.cluster, PODS, f"train-worker-{index}", namespace)

    def grown() -> bool:
        finish_runs(desk)
        clock.step(1)
        return size(desk, key) == (2, 1)

    desk.until(grown, worker=False)


@pytest.mark.parametrize(
    ("declined", "refunds"),
    [pytest.param(1, [("a", 2000)], id="declined before it was granted"), pytest.param(0, [], id="rolled back later")],
)
def test_only_a_growth_that_was_declined_before_it_was_granted_is_refunded(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, declined: int, refunds: list[tuple[str, int]]
) -> None:
    with Desk(embedded_cluster, clock, cost="cpu") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 1)
        write(desk, key, 1, to=3)
        desk.until(lambda: size(desk, key) == (3, 1), worker=False)
        refunded: list[tuple[str, int]] = []
        desk.term._pick_cycle.refund = lambda queue, cost: refunded.append((queue, cost))  # type: ignore[method-assign]
        write(desk, key, 1, grown=1, declined=declined)

        def lowered() -> bool:
            finish_runs(desk)
            clock.step(1)
            return size(desk, key) == (1, 1)

        desk.until(lowered, worker=False)
        assert refunded == refunds


def test_idle_growth_that_was_declined_is_not_refunded(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 1)
    snapshot = desk.store.snapshot(1)
    growth = IdleGrowth(key=key, attempt=1, grown=0, workers=2, charge={"cpu": 2000, "pods": 2})
    assert desk.store.grow_idle([growth], snapshot.epoch, snapshot.revision) == [""]
    refunded: list[tuple[str, int]] = []
    desk.term._pick_cycle.refund = lambda queue, cost: refunded.append((queue, cost))  # type: ignore[method-assign]
    write(desk, key, 1, grown=1, declined=1)

    def lowered() -> bool:
        finish_runs(desk)
        clock.step(1)
        return size(desk, key) == (1, 1)

    desk.until(lowered, worker=False)
    assert (refunded, desk.content.reservations[key].idle) == ([], 0)


def test_idle_growth_is_paid_for_once_the_owner_wants_it(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, cost="cpu", pool="cpu=4") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 2, autoscale="Idle")
        snapshot = desk.store.snapshot(1)
        growth = IdleGrowth(key=key, attempt=1, grown=0, workers=2, charge={"cpu": 2000, "pods": 2})
        assert desk.store.grow_idle([growth], snapshot.epoch, snapshot.revision) == [""]
        write(desk, key, 4, grown=1, idle=2)
        desk.until(lambda: desk.term.flush() == 0, worker=False)
        before = desk.store.snapshot(1).queues[0].account
        desk.change(key, torchTaskSpecs={"Worker": desks.task(3)})
        desk.until(lambda: desk.content.reservations[key].idle == 1, worker=False)
        assert size(desk, key) == (4, 2), "the job holds as much as before"
        paid = desk.store.snapshot(1).queues[0].account
        assert paid.base - before.base == 1000 * UNIT


def test_a_rebuild_knows_idle_growth_from_the_status(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2, autoscale="Idle")
    write(desk, key, 4, grown=1, idle=2)
    desk.lose()
    desk.begin(2)
    assert desk.content.reservations[key].idle == 2


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"grown": 0}, id="a growth"),
        pytest.param({"charge": amounts(2)}, id="a part of the charge"),
    ],
)
def test_a_store_that_holds_less_than_a_grant_is_rebuilt(desk: Desk, namespace: str, lost: dict[str, Any]) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2)
    write(desk, key, 2, to=3)
    desk.until(lambda: size(desk, key) == (3, 1), worker=False)
    write(desk, key, 3, grown=1)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert desk.term.audit()
    full = desk.content.reservations[key]
    desk.content.reservations[key] = replace(full, **lost)
    assert not desk.term.audit()
    with pytest.raises(MissingCharge):
        desk.until(lambda: False, worker=False)
    desk.begin(2)
    assert size(desk, key) == (3, 1)
    assert desk.term.audit()


def test_a_rebuild_keeps_a_growth_that_no_worker_has_written(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2)
    write(desk, key, 2, to=3)
    desk.until(lambda: size(desk, key) == (3, 1), worker=False)
    desk.begin(2)
    assert size(desk, key) == (3, 1)
    desk.lose()
    desk.begin(3)
    assert size(desk, key) == (2, 0), "a growth that only the store held is lost with the store"
    assert desk.waiting() == {key}, "and the job waits for this growth again"


def test_a_rebuild_takes_back_growths_without_pods_before_whole_admissions(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=4") as desk:
        desk.queue("a")
        desk.begin()
        grown, newer = elastic(desk, namespace, 1), elastic(desk, namespace, 2, "newer")
        workers_of(desk, grown, 2)
        write(desk, grown, 4, grown=2)  # a worker that had slept has now written the last growth
        desk.lose()
        desk.begin(2)
        assert size(desk, grown) == (2, 2)
        assert size(desk, newer) == (2, 0)
        desk.until(lambda: desk.term.flush() == 0, worker=False)
        assert desk.term.audit(), "the charge is smaller on purpose"
        make_pod(desk, grown, "train-worker-2")
        assert not desk.term.audit(), "the pods of the growth exist after all"


def test_a_usage_that_is_not_the_sum_of_the_charges_is_noticed(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    elastic(desk, namespace, 2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert desk.term.audit()
    desk.content.usage["a"]["cpu"] += 1000
    assert not desk.term.audit()
    desk.begin(2)
    assert desk.term.audit()


def test_a_growth_that_is_first_in_its_queue_hides_no_reason_of_a_waiting_job(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", quota={"cpu": "4"})
    desk.begin()
    key = elastic(desk, namespace, 2)
    elastic(desk, namespace, 2, "other")
    waiting = desk.submit("waiting", namespace, "a")
    write(desk, key, 2, to=3)
    desk.until(lambda: desk.waiting() == {key, waiting}, worker=False)
    first = desk.store.snapshot(1).queues[0].heads[0].entry
    assert (first.key, first.kind) == (key, "grow")
    clock.now = desk.job(waiting).submission_time + desk.settings.reason_after + 1
    desk.write_reasons()
    told = desk.job(waiting).status.queue
    assert told is not None
    assert told.reason in ("WaitingForQuota", "BehindOthers")


def test_a_resource_quota_that_is_raised_lets_a_job_grow_at_once(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"pods": "2"}}}
    desk.cluster.create(RESOURCE_QUOTAS, limit, namespace)

    def allow(hard: str) -> None:
        status = {"hard": {"pods": hard}, "used": {"pods": "2"}}
        desk.cluster.patch(RESOURCE_QUOTAS, "team", {"status": status}, namespace, subresource="status")

    desk.begin()
    key = elastic(desk, namespace, 2)
    allow("2")
    desk.until(lambda: any(each.limits for each in desk.watches.rules().quotas.get(namespace, ())), worker=False)
    write(desk, key, 2, to=3)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert (size(desk, key), desk.waiting()) == ((2, 0), set())
    allow("3")
    desk.until(lambda: size(desk, key) == (3, 1), worker=False)
