"""Jobs that the leader resizes: the targets that it writes, and the workers that the store grants and takes back."""

import pkgutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from coordinator.elastic.autoscaler import INTERVAL_SECONDS
from coordinator.elastic.idle_history import LATE_SECONDS
from coordinator.elastic.targets import CARRY_OUT_SECONDS, STANDS_SECONDS
from coordinator.reports.report_values import ArrivedReport, Report
from crds import scale_request, timestamps
from crds.api_resources import SCALE_OUTS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.status import Target
from kube.client import KubernetesCluster
from queues.errors import Unreadable
from queues.pick_cycle import PickCycle
from queues.store import IdleGrowth
from tests.coordinator.leader.test_growth import amounts, finish_runs
from tests.doubles.memory_reports import MemoryReports
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk
from tests.support.waiting import patient

POLICY = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 8, "autoscale": "Idle"}


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, namespace: str, clock: Clock) -> Iterator[Desk]:
    with Desk(embedded_cluster, clock, pool="cpu=4", idle_seconds=30.0, cost="cpu") as found:
        found.queue("a")
        found.queue("b")
        found.begin()
        yield found
    desks.clear(embedded_cluster)


def elastic(desk: Desk, namespace: str, workers: int, name: str = "train", queue: str = "a", **policy: Any) -> JobKey:
    """Return a running elastic job that was granted all its workers."""
    spec = {"torchElasticPolicy": {**POLICY, **policy}, "tasks": {"Worker": desks.task(workers)}}
    key = desk.submit(name, namespace, queue, **spec)
    desk.until(lambda: key in desk.reserved(), worker=False)
    write(desk, key, workers)
    return key


def write(desk: Desk, key: JobKey, workers: int, *, idle: int = 0, phase: str = "Running", **status: Any) -> None:
    """Write the grant that the store holds into the status of a job, as a worker process does."""
    held = desk.content.reservations[key]
    admission = {
        "queue": held.queue,
        "attempt": 1,
        "epoch": held.epoch,
        "pick": 1,
        "port": held.port,
        "admittedAt": timestamps.format_time(desk.clock()),
        "charge": amounts(workers),
        "workers": workers,
        "grown": held.grown,
        "idle": idle,
    }
    patch = {"status": {"phase": phase, "attempt": 1, "admission": admission, **status}}
    made = desk.cluster.patch(TORCHJOBS, key.name, patch, key.namespace, subresource="status")
    desk.watches.jobs.wait_for(int(made["metadata"]["resourceVersion"]), patient())


def grow(desk: Desk, key: JobKey, workers: int) -> None:
    """Give a job further workers as idle growth, with the target and the grant."""
    held, snapshot = desk.content.reservations[key], desk.store.snapshot(1)
    more = {"cpu": 1000 * workers, "pods": workers}
    growth = IdleGrowth(key=key, attempt=1, grown=held.grown, workers=workers, charge=more)
    assert desk.store.grow_idle([growth], snapshot.epoch, snapshot.revision) == [""]
    size, wish = held.size + workers, desk.job(key).spec.worker_count
    target = {"workers": size, "reason": "Idle", "since": timestamps.format_time(desk.clock()), "wish": wish}
    write(desk, key, size, idle=held.idle + workers, target=target)


def target(desk: Desk, key: JobKey) -> Target | None:
    return desk.job(key).status.target


def pass_time(desk: Desk, seconds: float = INTERVAL_SECONDS) -> None:
    """Let time pass, let the leader look once, and write its statuses."""
    desk.clock.step(seconds)
    finish_runs(desk)
    desk.term.step()
    desk.statuses.serve(desk.statuses.jobs)


def test_idle_growth_is_given_back_to_a_job_that_is_entitled(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    grow(desk, key, 2)
    head = desk.submit("head", namespace, "b", tasks={"Worker": desks.task(2)})
    desk.until(lambda: head in desk.waiting(), worker=False)
    pass_time(desk)
    found = target(desk, key)
    assert found is not None
    assert (found.workers, found.reason, found.wish) == (2, "GiveBack", 2)
    assert f"{namespace}/head" in found.message
    desk.until(lambda: desk.watches.jobs.resource_version >= int(desk.job(key).metadata.resource_version), worker=False)
    write(desk, key, 2, target=None)
    desk.until(lambda: finish_runs(desk) or head in desk.reserved(), worker=False)


def given_back(desk: Desk, namespace: str) -> tuple[JobKey, JobKey]:
    """Return a job whose idle growth is to be given back, and the waiting job at the head. No worker has begun to give
    back.
    """
    key = elastic(desk, namespace, 2)
    grow(desk, key, 2)
    head = desk.submit("head", namespace, "b", tasks={"Worker": desks.task(2)})
    desk.until(lambda: head in desk.waiting(), worker=False)
    pass_time(desk)
    assert reason(desk, key) == "GiveBack"
    return key, head


def reason(desk: Desk, key: JobKey) -> str:
    found = target(desk, key)
    return "" if found is None else found.reason


def look(desk: Desk, key: JobKey) -> tuple[int, str]:
    """Return the workers and the reason of the target as the leader writes them after it has seen the newest
    version.
    """
    desk.watches.jobs.wait_for(int(desk.job(key).metadata.resource_version), patient())
    pass_time(desk)
    found = target(desk, key)
    return (0, "") if found is None else (found.workers, found.reason)


def cancel(desk: Desk, key: JobKey) -> None:
    desk.cluster.delete(TORCHJOBS, key.name, key.namespace, uid=key.uid)
    desk.until(lambda: key not in desk.waiting(), worker=False)


def test_a_target_stays_while_the_head_needs_it_and_goes_with_the_head(desk: Desk, namespace: str) -> None:
    key, head = given_back(desk, namespace)
    version = desk.job(key).metadata.resource_version
    assert look(desk, key) == (2, "GiveBack")
    assert desk.job(key).metadata.resource_version == version, "the target is written once"
    cancel(desk, head)
    assert look(desk, key) == (2, "GiveBack"), "the target stays for a while: another job may need the room next"
    desk.clock.step(STANDS_SECONDS)
    assert look(desk, key) == (4, "Idle"), "the job keeps the size that it has"


def test_a_target_that_a_worker_has_begun_with_is_left_alone(desk: Desk, namespace: str) -> None:
    key, head = given_back(desk, namespace)
    scaling = {"from": 4, "to": 2, "since": timestamps.format_time(desk.clock()), "victims": ["train-worker-3"]}
    write(desk, key, 4, idle=2, scaling=scaling)
    cancel(desk, head)
    assert look(desk, key) == (2, "GiveBack")


@pytest.mark.parametrize("gone", [False, True], ids=["the head still waits", "the head is gone"])
def test_a_new_leader_judges_the_target_of_a_dead_one(desk: Desk, namespace: str, gone: bool) -> None:
    key, head = given_back(desk, namespace)
    if gone:
        cancel(desk, head)
    desk.clock.step(STANDS_SECONDS)
    desk.memory.clear()
    desk.begin(2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert look(desk, key) == ((4, "Idle") if gone else (2, "GiveBack"))


def test_lost_redis_changes_no_target_that_is_still_needed(desk: Desk, namespace: str) -> None:
    key, _ = given_back(desk, namespace)
    desk.lose()
    desk.begin(2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert look(desk, key) == (2, "GiveBack")


def test_a_target_that_no_worker_carries_out_is_taken_back_and_another_job_gives_back(
    desk: Desk, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = given_back(desk, namespace)
    desk.clock.step(CARRY_OUT_SECONDS)
    assert look(desk, key) == (4, "Idle")
    assert "no worker process has begun" in caplog.text
    assert look(desk, key) == (4, "Idle"), "the job is not resized for a while"


def test_workers_that_never_end_block_nobody_for_ever(
    desk: Desk, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = given_back(desk, namespace)
    scaling = {"from": 4, "to": 2, "since": timestamps.format_time(desk.clock()), "victims": ["train-worker-3"]}
    write(desk, key, 4, idle=2, scaling=scaling)
    pass_time(desk)
    assert not desk.memory.late
    pass_time(desk, 30 + desk.settings.dead_node_grace + LATE_SECONDS + 1)
    assert desk.memory.late == {key}
    assert "do not end" in caplog.text


def test_a_setting_stops_everything_and_sizes_stay(desk: Desk, namespace: str) -> None:
    key, head = given_back(desk, namespace)
    desk.settings = desk.settings.model_copy(update={"autoscale": "off"})
    desk.clock.step(STANDS_SECONDS)
    desk.begin(2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert look(desk, key) == (4, "Idle")
    assert head in desk.waiting()
    assert desk.content.reservations[key].size == 4


def test_a_target_that_the_owner_has_overtaken_is_left_to_a_worker(desk: Desk, namespace: str) -> None:
    key, _ = given_back(desk, namespace)
    desk.change(key, torchTaskSpecs={"Worker": desks.task(1)})
    assert look(desk, key) == (2, "GiveBack")


def test_a_job_whose_owner_wants_what_it_has_needs_no_target(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    grow(desk, key, 2)
    desk.change(key, torchTaskSpecs={"Worker": desks.task(4)})
    assert look(desk, key) == (0, "")


def test_a_job_that_does_not_run_gives_idle_growth_back(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    grow(desk, key, 2)
    write(desk, key, 4, idle=2, phase="Admitted")
    head = desk.submit("head", namespace, "b", tasks={"Worker": desks.task(2)})
    desk.until(lambda: head in desk.waiting(), worker=False)
    assert look(desk, key) == (2, "GiveBack")


def test_a_job_grows_after_a_request_of_its_owner_is_over(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    body = scale_request.manifest("ScaleOut", "train", toAdd={"count": 1})
    desk.cluster.create(SCALE_OUTS, {**body, "metadata": {"name": "r"}}, namespace)
    desk.until(lambda: desk.watches.requests.is_under_way(key), worker=False)
    for _ in range(40):
        pass_time(desk)
    assert target(desk, key) is None
    desk.cluster.patch(SCALE_OUTS, "r", {"status": {"phase": "Failed"}}, namespace, subresource="status")
    desk.until(lambda: not desk.watches.requests.is_under_way(key), worker=False)
    assert look(desk, key) == (4, "Idle")


@pytest.mark.parametrize("broken", ["coordinator.elastic.elastic_jobs.of", "coordinator.elastic.targets.decide"])
def test_a_job_that_causes_an_error_stops_no_other(
    desk: Desk, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    key, other = elastic(desk, namespace, 1), elastic(desk, namespace, 1, "other", queue="b")
    works = pkgutil.resolve_name(broken)

    def fail(job: Any, *arguments: Any) -> Any:
        if job.key == other:
            raise ValueError("odd")
        return works(job, *arguments)

    monkeypatch.setattr(broken, fail)
    for _ in range(40):
        pass_time(desk)
    assert reason(desk, key) == "Idle"
    assert "/other is skipped after an unforeseen error: ValueError: odd" in caplog.text


def test_an_error_in_the_plan_keeps_no_job_from_being_picked(
    desk: Desk, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elastic(desk, namespace, 1)
    plans: list[float] = []

    def fail(_cycle: Any, _jobs: Any, now: float, *_: Any) -> Any:
        plans.append(now)
        raise KeyError("odd")

    monkeypatch.setattr(PickCycle, "plan_resizes", fail)
    pass_time(desk)
    desk.term.step()
    assert len(plans) == 1, "the next plan is tried after a second"
    other = desk.submit("other", namespace, "b", tasks={"Worker": desks.task(1)})
    desk.until(lambda: other in desk.reserved(), worker=False)
    assert "the plan of resizes is skipped after an unforeseen error: KeyError" in caplog.text


def test_room_counts_as_idle_only_while_somebody_looks(desk: Desk, namespace: str) -> None:
    first = elastic(desk, namespace, 2)
    for _ in range(20):
        pass_time(desk)
    desk.cluster.delete(TORCHJOBS, first.name, namespace)
    desk.until(lambda: first not in desk.reserved() and not len(desk.watches.autoscaled))
    pass_time(desk, 20)
    second = elastic(desk, namespace, 2, "second")
    for _ in range(20):
        pass_time(desk)
        assert target(desk, second) is None


def test_no_autoscaled_job_costs_nothing(desk: Desk, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    elastic(desk, namespace, 2, autoscale="Off")
    monkeypatch.setattr(PickCycle, "plan_resizes", lambda *_: pytest.fail("planned"))
    pass_time(desk)


def test_nothing_is_planned_while_nothing_can_have_changed(
    desk: Desk, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = elastic(desk, namespace, 2, numMaxReplicas=3)
    other = desk.submit("other", namespace, "b", tasks={"Worker": desks.task(2)})
    desk.until(lambda: other in desk.reserved(), worker=False)
    plans: list[float] = []
    planned = PickCycle.plan_resizes

    def count(cycle: PickCycle, jobs: Any, now: float, *before: Any) -> Any:
        plans.append(now)
        return planned(cycle, jobs, now, *before)

    for _ in range(40):
        pass_time(desk)
    monkeypatch.setattr(PickCycle, "plan_resizes", count)
    for _ in range(30):
        pass_time(desk)
    assert len(plans) <= 1, "a plan is made at most once a minute"
    cancel_admitted(desk, other)
    for _ in range(40):
        pass_time(desk)
    assert look(desk, key) == (3, "Idle")


def cancel_admitted(desk: Desk, key: JobKey) -> None:
    desk.cluster.delete(TORCHJOBS, key.name, key.namespace, uid=key.uid)
    desk.until(lambda: finish_runs(desk) or key not in desk.reserved(), worker=False)


def test_a_job_grows_into_room_that_was_idle_for_long_enough(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    account = desk.store.snapshot(1).queues[0].account
    for _ in range(29):
        pass_time(desk)
    assert target(desk, key) is None
    for _ in range(3):
        pass_time(desk)
    assert look(desk, key) == (4, "Idle")
    held = desk.content.reservations[key]
    assert (held.size, held.idle, held.grown) == (4, 2, 1)
    write(desk, key, 4, idle=2)
    assert look(desk, key) == (4, "Idle"), "the target stays at the size that the job has"
    assert desk.store.snapshot(1).queues[0].account == account, "idle growth costs no credit"


def test_a_job_does_not_grow_into_room_that_a_job_takes_meanwhile(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    while target(desk, key) is None:
        pass_time(desk)
    other = desk.submit("other", namespace, "b", tasks={"Worker": desks.task(2)})
    desk.until(lambda: other in desk.reserved(), worker=False)
    assert look(desk, key) == (0, "")
    assert desk.content.reservations[key].size == 2


def test_a_new_leader_takes_back_a_growth_that_the_store_has_not_granted(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    while target(desk, key) is None:
        pass_time(desk)
    desk.memory.clear()
    desk.begin(2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert look(desk, key) == (0, "")


def test_a_growth_that_the_store_has_granted_stays_until_a_worker_writes_it(desk: Desk, namespace: str) -> None:
    key = elastic(desk, namespace, 2)
    while desk.content.reservations[key].size == 2:
        look(desk, key)
    desk.memory.clear()
    desk.begin(2)
    desk.until(lambda: desk.term.flush() == 0, worker=False)
    assert look(desk, key) == (4, "Idle")
    assert desk.content.reservations[key].size == 4


@pytest.mark.parametrize("change", [{"autoscale": "off"}, {"idle_seconds": 3600.0}])
def test_nothing_grows_where_the_settings_do_not_allow_it(desk: Desk, namespace: str, change: dict[str, Any]) -> None:
    desk.settings = desk.memory.settings = desk.settings.model_copy(update=change)
    desk.begin(2)
    key = elastic(desk, namespace, 2)
    for _ in range(40):
        pass_time(desk)
    assert target(desk, key) is None


def test_reports_that_cannot_be_read_change_nothing(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise Unreadable("odd")

    monkeypatch.setattr(MemoryReports, "read", fail)
    with Desk(embedded_cluster, clock, pool="cpu=4") as desk:
        desk.reports = MemoryReports(clock)
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 2, minGainPercent=10)
        for _ in range(40):
            pass_time(desk)
        assert reason(desk, key) == "Idle"
    desks.clear(embedded_cluster)


def test_a_growth_that_makes_a_job_slower_is_taken_back_and_not_repeated(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=4") as desk:
        reports = MemoryReports(clock)
        desk.reports = reports
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 2, minGainPercent=10, resizeEverySeconds=1)

        def train(rate: float, looks: int) -> None:
            for _ in range(looks):
                report = Report(pod="train-worker-0", step=1, samples_per_second=rate)
                reports.keep([ArrivedReport(job=key, report=report)])
                look(desk, key)

        while reason(desk, key) != "Idle":
            train(100.0, 1)
        while desk.content.reservations[key].size == 2:
            train(100.0, 1)
        write(desk, key, 4, idle=2)
        train(50.0, 60)
        found = target(desk, key)
        assert found is not None
        assert (found.workers, found.reason) == (2, "GainTooSmall")
        assert "fell by 50 % from 2 to 4 workers" in found.message
        held = desk.content.reservations[key]
        desk.content.reservations[key] = replace(held, charge=amounts(2), size=2, idle=0)
        write(desk, key, 2, target=None)
        train(100.0, 60)
        assert target(desk, key) is None


def leave_one(desk: Desk, key: JobKey) -> None:
    """End the first of two workers that are given back, and free its room."""
    write(desk, key, 3, idle=1)

    def is_free() -> bool:
        finish_runs(desk)
        desk.clock.step(1)
        return desk.content.reservations[key].size == 3

    desk.until(is_free, worker=False)
    pass_time(desk)


def test_a_smaller_job_of_the_queue_does_not_eat_what_is_given_back_for_the_first_one(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="none") as desk:
        desk.queue("a", quota={"cpu": "4"})
        desk.begin()
        key = elastic(desk, namespace, 2)
        grow(desk, key, 2)
        head = desk.submit("head", namespace, "a", tasks={"Worker": desks.task(2)})
        desk.until(lambda: head in desk.waiting(), worker=False)
        assert look(desk, key) == (2, "GiveBack")
        small = desk.submit("small", namespace, "a", tasks={"Worker": desks.task(1)})
        desk.until(lambda: small in desk.waiting(), worker=False)
        assert desk.term._pick_cycle.claims == {"a": head}
        leave_one(desk, key)
        assert small not in desk.reserved()
        desk.begin(2)
        pass_time(desk)
        assert small not in desk.reserved(), "a new leader keeps the claim"
        cancel(desk, head)
        desk.until(lambda: finish_runs(desk) or small in desk.reserved(), worker=False)
        pass_time(desk)
        assert not desk.term._pick_cycle.claims


def test_idle_growth_makes_no_job_wait_for_its_patience(desk: Desk, namespace: str) -> None:
    key, head = given_back(desk, namespace)
    small = desk.submit("small", namespace, "a", tasks={"Worker": desks.task(1)})
    desk.until(lambda: small in desk.waiting(), worker=False)
    pass_time(desk)
    leave_one(desk, key)
    assert {head, small} <= desk.waiting(), "the room of the first worker that ended is kept for the head alone"
