"""A leader's term, step by step: the leader puts, picks, offers and forgets jobs as the objects of the API server
require.
"""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.leader.control_loop import CYCLE_SECONDS, ControlLoop
from coordinator.leader.queued_limiter import MOST_UNDER_WAY
from coordinator.leader.router import MissingCharge
from coordinator.leader.store_rebuild import FAILOVER_SECONDS
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues import errors
from queues.pick_cycle import FEW
from queues.tasks import Offer
from queues.values import Reservation
from queues.work_kinds import WorkKind
from reconcilers.views import job_brief
from reconcilers.views.job_brief import KnownSpecs
from tests.doubles.memory_store import MemoryStore
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import LEASE_SECONDS, Clock, Desk
from tests.support.waiting import SECONDS, until

CHARGE = {"jobs": 1, "pods": 2, "cpu": 2000}


def admit(desk: Desk, key: JobKey, epoch: int = 1, **changes: Any) -> None:
    """Write an admission, as a worker does. The pick is the pick in the store, or an invented pick if the store has
    none.
    """
    held = desk.content.reservations.get(key)
    port, attempt = (held.port, held.attempt) if held else (20_007, 1)
    admission = {"queue": "a", "attempt": attempt, "epoch": epoch, "pick": 1, "charge": CHARGE, "port": port}
    status = {"phase": "Admitted", "attempt": attempt, "admission": {**admission, **changes}}
    status["admission"]["admittedAt"] = "2026-01-01T00:00:00Z"
    desk.cluster.patch(TORCHJOBS, key.name, {"status": status}, key.namespace, subresource="status")
    until(lambda: (seen := desk.watches.job(key)) is not None and seen.admission is not None)


def make_pod(desk: Desk, key: JobKey, name: str = "train-master-0", *, node: str = "", **metadata: Any) -> None:
    """Create a pod, as a worker does, and wait until the watch shows it."""
    found = {labels.JOB_UID: key.uid, labels.JOB_NAME: key.name, labels.QUEUE: "a", labels.ATTEMPT: "1"}
    notes = {labels.CHARGE: '{"cpu":1000}'}
    spec = desks.task()["template"]["spec"] | ({"nodeName": node} if node else {})
    own = desks.owner(key)
    given = {"name": name, "labels": found, "annotations": notes, "ownerReferences": [own], **metadata}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": spec}
    made = desk.cluster.create(PODS, body, key.namespace)
    assert desk.watches.pods.wait_for(int(made["metadata"]["resourceVersion"]), SECONDS)


def seen(desk: Desk, key: JobKey) -> None:
    """Wait until the watch has shown the job."""
    until(lambda: desk.watches.job(key) is not None)


def test_a_submitted_job_is_picked_and_offered_to_workers(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    (reservation,) = desk.content.reservations.values()
    assert (reservation.queue, reservation.attempt, reservation.epoch, reservation.charge) == ("a", 1, 1, CHARGE)
    desk.until(lambda: desk.term.counts.dispatched, worker=False)
    ((leased, _),) = desk.work.pop()
    assert leased == key
    assert desk.term.counts.picked == 1
    assert desk.waiting() == set()


def test_workers_are_told_of_a_picked_job(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.term.counts.dispatched, worker=False)
    ((told, made),) = told_of(desk, key)
    assert (told["metadata"]["resourceVersion"], told["metadata"]["uid"]) == (
        made["metadata"]["resourceVersion"],
        key.uid,
    )


def test_workers_are_not_told_of_a_job_whose_status_one_of_them_writes(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.waiting() == {key}, worker=False)
    clock.step(desk.settings.queued_after)
    desk.until(lambda: desk.term.counts.dispatched, worker=False)
    (writing,) = desk.work.begin(desk.work.pop())
    assert writing.brief
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    desk.work.finish(key, writing.token)
    desk.until(lambda: desk.term.counts.dispatched == 2, worker=False)
    assert [task.brief for task in desk.work.begin(desk.work.pop())] == [b""]


def told_of(desk: Desk, key: JobKey) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what the workers are told of the job, and the job, for each dispatched run."""
    made, specs = desk.cluster.get(TORCHJOBS, key.name, key.namespace), KnownSpecs()
    specs.note(made)
    told = [job_brief.read(task.brief, key, specs) for task in desk.work.begin(desk.work.pop())]
    return [(each, made) for each in told if each is not None]


def test_a_job_without_room_is_queued_after_a_delay(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=1") as desk:
        desk.queue("a")
        desk.begin()
        key = desk.submit("train", namespace, "a")
        desk.until(lambda: desk.waiting() == {key})
        assert desk.phase(key) == ""
        clock.step(desk.settings.queued_after)
        desk.until(lambda: desk.phase(key) == "Queued")


def test_a_finished_job_frees_its_room_once_no_pod_occupies_it(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    admit(desk, key)
    make_pod(desk, key)
    desk.cluster.patch(
        TORCHJOBS,
        key.name,
        {"status": {"phase": "Succeeded", "conditions": [ended()]}},
        namespace,
        subresource="status",
    )
    desk.until(lambda: (job := desk.watches.job(key)) and job.finished, worker=False)
    desk.until(lambda: not desk.watches.take(0) and desk.term.flush() == 0, worker=False)
    assert desk.reserved() == {key}
    desk.move(key, "Succeeded")
    desk.until(lambda: desk.reserved() == set(), worker=False, seconds=5)


def test_a_charge_freed_after_a_run_causes_no_other_run(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.term.counts.dispatched, worker=False)
    (task,) = desk.work.begin(desk.work.pop())
    admit(desk, key)
    status = {"phase": "Succeeded", "conditions": [ended()]}
    made = desk.cluster.patch(TORCHJOBS, key.name, {"status": status}, namespace, subresource="status")
    desk.until(lambda: (job := desk.watches.job(key)) and job.finished, worker=False)
    desk.until(lambda: not desk.watches.take(0) and desk.term.flush() == 0, worker=False)
    assert desk.reserved() == {key}  # a worker has leased the job
    for seconds in (7200, -10_800):
        desk.jump(seconds)  # the clock of the coordinator's machine jumps, which decides nothing about a charge
        clock.step(2 * desk.settings.dispatch_seconds)
        desk.until(lambda: desk.term.flush() == 0, worker=False)
        assert desk.reserved() == {key}
    desk.work.finish(key, task.token, settled_version=int(made["metadata"]["resourceVersion"]))
    clock.step(2 * desk.settings.dispatch_seconds)
    desk.until(lambda: desk.reserved() == set(), worker=False, seconds=5)
    desk.term.step()
    assert not desk.work.inspect().records


def ended() -> dict[str, str]:
    when = "2026-01-01T00:00:00Z"
    return {"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": when}


def test_a_deleted_job_frees_its_room_when_its_pods_are_deleted(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first, second = desk.submit("first", namespace, "a"), desk.submit("second", namespace, "a")
    desk.until(lambda: desk.phase(first) == "Admitted" and len(desk.pods_of(first)) == 2)
    desk.until(lambda: desk.waiting() == {second})
    desk.cluster.delete(TORCHJOBS, "first", namespace, uid=first.uid)
    desk.until(lambda: desk.reserved() == {second} and not desk.pods_of(first))
    desk.cluster.delete(TORCHJOBS, "second", namespace, uid=second.uid)
    desk.until(lambda: desk.reserved() == desk.waiting() == set())


def test_a_suspended_job_frees_its_room_and_keeps_its_age(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": 1})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: len(desk.pods_of(first)) == 2)
    second = desk.submit("second", namespace, "a")
    desk.until(lambda: desk.waiting() == {second})
    desk.change(first, suspend=True)
    desk.until(lambda: desk.phase(first) == "Suspended" and desk.reserved() == {second})
    assert not desk.pods_of(first)
    assert desk.job(first).admission is None
    desk.change(first, suspend=False)
    desk.until(lambda: desk.waiting() == {first} and desk.phase(first) == "Queued")
    assert desk.content.entries[first].entry.attempt == 2
    assert desk.content.entries[first].entry.submitted == desk.job(first).submission_time
    desk.cluster.delete(TORCHJOBS, "second", namespace)
    desk.until(lambda: desk.reserved() == {first} and len(desk.pods_of(first)) == 2)
    assert desk.job(first).admission.attempt == 2


def test_a_held_job_is_not_picked_until_it_is_resumed(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a", schedulingPolicy={"hold": True})
    seen(desk, key)
    desk.until(lambda: desk.term.counts.routed)
    clock.step(desk.settings.queued_after)
    desk.until(lambda: desk.phase(key) == "Queued")
    assert (desk.waiting(), desk.reserved()) == (set(), set())
    desk.change(key, schedulingPolicy={"queue": "a", "hold": False})
    desk.until(lambda: desk.phase(key) == "Admitted")


def test_a_waiting_job_moves_when_its_queue_changes(desk: Desk, namespace: str) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.queue("b", stopPolicy="Hold")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.waiting() == {key})
    desk.change(key, schedulingPolicy={"queue": "b", "priority": 3})
    desk.until(lambda: (put := desk.content.entries.get(key)) is not None and put.entry.queue == "b")
    assert desk.content.entries[key].entry.priority == 3


def test_a_job_that_is_edited_after_its_pick_is_picked_again(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    bigger = {"torchTaskSpecs": {"Worker": {"numTasks": 4}}}
    desk.cluster.patch(TORCHJOBS, key.name, {"spec": bigger}, namespace)
    room = {"jobs": 1, "pods": 5, "cpu": 5000}
    desk.until(lambda: (held := desk.content.reservations.get(key)) is not None and held.charge == room, worker=False)
    desk.until(lambda: len(desk.pods_of(key)) == 5)
    assert desk.content.usage == {"a": room}


def test_an_unknown_queue_admits_no_job_until_it_is_created(desk: Desk, namespace: str) -> None:
    desk.begin()
    key = desk.submit("train", namespace, "later")
    desk.until(lambda: desk.term.counts.routed)
    assert desk.waiting() == set()
    desk.queue("later")
    desk.until(lambda: desk.reserved() == {key})


def test_implicit_queues_are_the_name_of_the_namespace_and_default_only(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, implicit_queues=True) as desk:
        desk.begin()
        for queue in (namespace, "default"):
            key = desk.submit(f"of-{queue}", namespace, queue)
            desk.until(lambda key=key: key in desk.reserved(), worker=False)
        lost = [desk.submit(f"lost-{number}", namespace, f"invented-{number}") for number in range(12)]
        desk.until(lambda: all(map(desk.watches.job, lost)) and not desk.term.flush(), worker=False)
        desk.until(lambda: not desk.watches.take_settings_changed(0.0), worker=False)
        assert desk.waiting() & set(lost) == desk.reserved() & set(lost) == set()
        assert {each.spec.name for each in desk.store.snapshot(1).queues} == {namespace, "default"}
        clock.step(1.0)
        desk.write_reasons()
        told = desk.job(lost[0]).status.queue
        assert told.reason == "QueueNotFound"
        assert "torchq queue create invented-" in told.message
        assert f"namespace {namespace} may use default, {namespace}" in told.message
        desk.queue("invented-3")
        desk.until(lambda: lost[3] in desk.reserved(), worker=False)


def test_an_unused_implicit_queue_returns_with_its_next_job(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, implicit_queues=True) as desk:
        desk.begin()
        first = desk.submit("first", namespace, namespace)
        desk.until(lambda: first in desk.reserved(), worker=False)
        embedded_cluster.delete(TORCHJOBS, "first", namespace)
        desk.until(lambda: not desk.reserved())
        desk.watches.touch_settings()
        desk.until(lambda: namespace not in {each.spec.name for each in desk.store.snapshot(1).queues})
        second = desk.submit("second", namespace, namespace)
        desk.until(lambda: second in desk.reserved(), worker=False)


def test_a_running_job_keeps_its_charge_in_an_invented_queue_of_an_earlier_version(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    """A TenantQueue that is deleted before the new leader begins stands for the queue of the earlier version."""
    with Desk(embedded_cluster, clock, implicit_queues=True) as desk:
        desk.queue("invented")
        desk.begin()
        runs = desk.submit("runs", namespace, "invented")
        desk.until(lambda: desk.job(runs).admission is not None)
        embedded_cluster.delete(TENANT_QUEUES, "invented")
        desk.until(lambda: not desk.watches.queues.values(), worker=False)
        waits = desk.submit("waits", namespace, "invented")
        desk.until(lambda: desk.watches.job(waits) is not None, worker=False)
        for epoch in (2, 3):
            desk.begin(epoch)
            desk.until(lambda: not desk.term.flush())
            assert desk.store.reservations()[runs].queue == "invented"
            assert desk.content.usage["invented"]["jobs"] == 1
            assert {each.spec.name for each in desk.store.snapshot(1).queues} == {"invented"}
            assert desk.waiting() == set()
            desk.lose()
        desk.begin(4)
        embedded_cluster.delete(TORCHJOBS, "runs", namespace)
        desk.until(lambda: runs not in desk.reserved())
        desk.watches.touch_settings()
        desk.until(lambda: not desk.store.snapshot(1).queues)
        assert desk.reserved() == set()


def test_queues_opened_in_short_succession_open_together(desk: Desk, namespace: str) -> None:
    for name in ("a", "b"):
        desk.queue(name, stopPolicy="Hold")
    desk.begin()
    jobs = {desk.submit(f"of-{name}", namespace, name) for name in ("a", "b")}
    desk.until(lambda: desk.waiting() == jobs, worker=False)
    revision = desk.content.revision
    for name in ("a", "b"):
        change = {"spec": {"stopPolicy": "None"}}
        made = desk.cluster.patch(TENANT_QUEUES, name, change)["metadata"]["resourceVersion"]
        until(lambda made=made: desk.watches.queues.resource_version >= int(made))
        until(desk.watches.wake.is_set)
        desk.term.step()
        assert (desk.content.revision, desk.reserved()) == (revision, set())
        desk.settling.step(desk.settings.settle_seconds * 0.9)
        desk.watches.wake.clear()
    desk.settling.step(desk.settings.settle_seconds * 0.2)
    desk.term.step()
    assert (desk.content.revision, desk.reserved()) == (revision + 1, jobs)


def test_settings_that_change_without_pause_still_take_effect(desk: Desk) -> None:
    settle = desk.settings.settle_seconds
    desk.watches.take_settings_changed(0.0)
    taken = 0
    for _ in range(100):
        desk.watches.touch_settings()
        desk.settling.step(settle / 2)
        taken += desk.watches.take_settings_changed(settle)
    assert taken == 100 // 16


def test_the_first_epoch_begins_without_a_wait(desk: Desk) -> None:
    desk.begin(epoch=1)
    assert desk.paused == []


def test_a_lost_store_is_rebuilt_from_the_cluster_after_one_lease(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    admitted = desk.submit("admitted", namespace, "a")
    desk.until(lambda: desk.phase(admitted) == "Admitted" and len(desk.pods_of(admitted)) == 2)
    before = desk.content.reservations[admitted]
    desk.cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "Hold"}})
    desk.until(lambda: not desk.content.specs["a"].open)
    waiting = desk.submit("waiting", namespace, "a")
    desk.until(lambda: desk.waiting() == {waiting})
    desk.lose()
    with pytest.raises(errors.StoreLost):
        desk.term.step()
    desk.begin(epoch=2)
    assert desk.paused == [pytest.approx(LEASE_SECONDS, abs=4)]
    assert desk.content.reservations == {admitted: replace(before, paid=0)}, (
        "the pick was granted, so nothing is refunded"
    )
    assert desk.waiting() == {waiting}
    assert desk.content.usage == {"a": CHARGE}
    desk.move(admitted, "Running")
    desk.until(lambda: desk.phase(admitted) == "Running")


def test_a_store_that_has_failed_over_is_counted_when_nobody_uses_the_old_server(desk: Desk) -> None:
    desk.begin()
    desk.content.seconds_since_move = FAILOVER_SECONDS - 1
    desk.begin(epoch=2)
    assert desk.paused == [pytest.approx(1)]


def test_pods_of_a_deleted_job_are_charged_after_a_loss_until_they_end(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    key = JobKey(namespace, "train", "8d1f4d7e-2f53-4b73-9a41-6f3f4b2a0c11")
    make_pod(
        desk, key, node="one", finalizers=["example.org/keep"]
    )  # the finalizer keeps the pod from garbage collection
    desk.begin(epoch=2)
    assert desk.content.reservations[key].charge == {"jobs": 1, "pods": 1, "cpu": 1000}
    desk.cluster.patch(PODS, "train-master-0", {"metadata": {"finalizers": None}}, namespace)
    desks.remove(desk.cluster, PODS, "train-master-0", namespace)
    desk.until(lambda: not desk.pods_of(key) and not desk.reserved())


def test_a_takeover_keeps_picks_without_a_written_admission(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    pick = desk.content.reservations[key]
    old = desk.term
    desk.store = desk.open()
    desk.begin(epoch=2)
    assert desk.paused == []
    assert desk.content.reservations == {key: pick}
    with pytest.raises(errors.StaleEpoch):
        old.cycle()
    desk.until(lambda: desk.phase(key) == "Admitted")
    assert desk.job(key).admission.epoch == pick.epoch
    assert desk.job(key).admission.port == pick.port


def test_a_takeover_forgets_the_pick_of_a_deleted_job(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key}, worker=False)
    desk.cluster.delete(TORCHJOBS, key.name, namespace)
    until(lambda: desk.watches.job(key) is None)
    desk.store = desk.open()
    desk.begin(epoch=2)
    assert desk.reserved() == desk.waiting() == set()


def test_an_audit_finds_an_admission_that_the_store_lost(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.phase(key) == "Admitted")
    assert desk.term.audit()
    desk.see()
    desk.store.remove([key])  # as if Redis had restarted from an older file
    assert not desk.term.audit()
    desk.begin(epoch=2)
    assert desk.reserved() == {key}
    assert desk.term.audit()


def test_an_audit_finds_that_the_store_lost_its_sums_alone(desk: Desk, namespace: str) -> None:
    desk.queue("a", quota={"jobs": "1"})
    desk.begin()
    first = desk.submit("first", namespace, "a")
    desk.until(lambda: desk.phase(first) == "Admitted")
    assert desk.term.audit()
    desk.content.usage, desk.content.pool_usage = {}, {}  # as a Redis does that evicts a key
    assert not desk.term.audit()
    second = desk.submit("second", namespace, "a")
    desk.begin(epoch=2)
    desk.until(lambda: second in desk.waiting())
    assert desk.reserved() == {first}
    assert desk.term.audit()


def test_an_audit_shortens_leases_that_the_clock_of_redis_left_behind(
    desk: Desk, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.begin()
    desk.work.offer([Offer(key=JobKey(namespace, "train", "u0"), tenant="a")])
    desk.work.dispatch()
    desk.clock.step(-3600)
    assert desk.term.audit()
    ends = desk.work.inspect().leases.values()
    assert all(end <= desk.clock() + 20 for end in ends)
    assert len(ends) == 1
    assert "the clock of Redis was set back: 2 leases and registrations end earlier now" in caplog.text


def test_a_job_is_offered_as_what_its_next_run_is_for(desk: Desk, namespace: str) -> None:
    def is_offered(kind: WorkKind) -> bool:
        record = desk.work.inspect().records.get(key)
        return record is not None and record.kind == kind

    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: is_offered("begins"), worker=False)
    desk.until(lambda: desk.phase(key) == "Admitted" and desk.pods_of(key))
    desk.move(key, "Running")
    desk.until(lambda: desk.phase(key) == "Running" and not desk.work.inspect().records)
    desk.move(key, "Succeeded")
    desk.until(lambda: is_offered("ends"), worker=False)
    desk.until(lambda: not desk.reserved())


def test_statuses_that_are_written_make_way_for_others_at_once(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    for first in "xy":  # the clock stands still, so that nothing is forgotten
        keys = [desk.submit(f"{first}-{number}", namespace, "a", suspend=True) for number in range(2 * MOST_UNDER_WAY)]
        desk.until(lambda keys=keys: all(desk.phase(key) == "Suspended" for key in keys))


def test_a_suspended_job_is_offered_by_a_new_leader_but_not_by_a_resync(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a", suspend=True)
    desk.until(lambda: desk.phase(key) == "Suspended" and not desk.work.inspect().records)
    until(lambda: (job := desk.watches.job(key)) is not None and job.at_rest)
    desk.until(lambda: not desk.term.flush() and not desk.work.inspect().records)
    desk.term.resync()
    assert not desk.term.flush()
    desk.change(key, backoffLimit=3)
    desk.until(lambda: desk.job(key).status.observed_generation == 2)
    desk.until(lambda: not desk.term.flush() and not desk.work.inspect().records)
    desk.begin(epoch=2)
    desk.until(lambda: desk.work.inspect().records.keys() == {key}, worker=False)


def test_an_audit_offers_picks_in_the_turn_of_their_tenant(desk: Desk, namespace: str) -> None:
    desk.queue("a", namespaces=[namespace])
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.reserved() == {key} and desk.watches.job(key) is not None, worker=False)
    for epoch, queue, tenant in ((2, "a", "a"), (3, "invented", f"/{namespace}")):
        desk.store.rebuild(epoch, [Reservation(key=key, queue=queue, attempt=1, epoch=epoch, charge=CHARGE)], [])
        desk.work.clear()
        desk.term.audit()
        assert desk.work.inspect().ready.keys() == {tenant}


def test_an_audit_offers_reservations_of_deleted_jobs(desk: Desk, namespace: str) -> None:
    desk.begin()
    gone = Reservation(key=JobKey(namespace, "gone", "u0"), queue="a", attempt=1, epoch=1, charge=CHARGE)
    desk.store.rebuild(2, [gone], [])
    assert desk.term.audit()
    desk.until(lambda: not desk.reserved())


def test_an_admission_without_a_charge_requires_a_rebuild(desk: Desk, namespace: str) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    seen(desk, key)
    admit(desk, key)
    with pytest.raises(MissingCharge):
        desk.until(lambda: False, worker=False)
    desk.begin(epoch=2)
    assert desk.reserved() == {key}
    assert desk.content.reservations[key].port == 20_007
    desk.until(lambda: desk.term.flush() == 0, worker=False)


class Failing:
    """A store whose next call of one method fails."""

    def __init__(self, store: MemoryStore, verb: str) -> None:
        self._store, self._verb = store, verb

    def __getattr__(self, name: str) -> Any:
        if name == self._verb:
            self._verb = ""
            raise errors.StoreUnreachable("Redis at redis://127.0.0.1:6379/0 does not answer")
        return getattr(self._store, name)


@pytest.mark.parametrize("verb", ["put", "remove"])
def test_a_store_that_fails_during_a_flush_loses_no_key(desk: Desk, namespace: str, verb: str) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    gone = desk.submit("gone", namespace, "a")
    desk.until(lambda: desk.waiting() == {gone}, worker=False)
    jobs = {desk.submit(f"job-{index}", namespace, "a") for index in range(5)}
    desk.cluster.delete(TORCHJOBS, "gone", namespace)
    for key in jobs:
        seen(desk, key)
    until(lambda: desk.watches.job(gone) is None)
    term = ControlLoop(desk.watches, Failing(desk.open(), verb), desk.work, desk.settings, clock=desk.clock)
    with pytest.raises(errors.StoreUnreachable):
        flush_all(term)
    flush_all(term)
    assert desk.waiting() == jobs


def test_work_that_could_not_be_offered_is_offered_later(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a", suspend=True)
    seen(desk, key)
    term = ControlLoop(desk.watches, desk.store, Failing(desk.work, "offer"), desk.settings, clock=desk.clock)
    with pytest.raises(errors.StoreUnreachable):
        until(lambda: term.step() and False)
    desk.until(lambda: desk.phase(key) == "Suspended")


def test_urgent_work_that_could_not_be_offered_is_offered_later(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: desk.phase(key) == "Admitted")
    desk.change(key, suspend=True)
    until(lambda: (job := desk.watches.job(key)) is not None and job.suspended)
    term = ControlLoop(desk.watches, desk.store, Failing(desk.work, "offer"), desk.settings, clock=desk.clock)
    with pytest.raises(errors.StoreUnreachable):
        flush_all(term)
    desk.until(lambda: desk.phase(key) == "Suspended")


def flush_all(term: ControlLoop) -> None:
    """Flush until no key is marked; the watch may still deliver changes during the flush."""
    until(term.flush)
    while term.flush():
        pass


def test_an_idle_term_reads_the_store_again_only_after_a_cycle(desk: Desk, clock: Clock) -> None:
    desk.queue("a")
    desk.begin()
    desk.until(lambda: not desk.term.unsettled)
    cycles = Counting(desk.store)
    term = desk.new_term(cycles)
    term.unsettled = False
    term.step()
    clock.step(1)
    term.step()
    assert cycles.snapshots == 1
    clock.step(CYCLE_SECONDS)
    term.step()
    assert cycles.snapshots == 2


class Counting:
    """A store that counts snapshots."""

    def __init__(self, store: MemoryStore) -> None:
        self._store, self.snapshots = store, 0

    def snapshot(self, *asked: Any, **also: Any) -> Any:
        self.snapshots += 1
        return self._store.snapshot(*asked, **also)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_the_picker_reads_past_many_jobs_that_can_never_run(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=2") as desk:
        desk.queue("a")
        desk.begin()
        desk.until(lambda: not desk.term.unsettled)
        hopeless = [
            desk.submit(f"hopeless-{number:02}", namespace, "a", tasks={"Master": desks.task(cpu="9")})
            for number in range(FEW + 2)
        ]
        desk.until(lambda: desk.waiting() == set(hopeless))
        small = desk.submit("small", namespace, "a", tasks={"Master": desks.task()})
        desk.until(lambda: small in desk.reserved())
        assert desk.waiting() == set(hopeless)
