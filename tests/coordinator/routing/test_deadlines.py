"""Room that is kept for a large job is lent to jobs whose `activeDeadlineSeconds` are over before the large job needs
it.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.cache import views
from coordinator.cache.noted_jobs import END_SECONDS, GRANT_SECONDS, Deadlines
from coordinator.cache.views import JobView, RoomDuration
from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues.picking.backfill import JobEnds
from tests.coordinator.cache.test_views import stored
from tests.coordinator.leader.test_withdrawals import ONE, SLOTS, end, keep_room, kept
from tests.support.coordinator.builders import KEY, admission, job
from tests.support.coordinator.desk import Clock, Desk

# The duration of one job

ADMITTED = "2026-01-02T03:00:00Z"
LATER = "2026-01-02T03:04:00Z"
AT = datetime(2026, 1, 2, 3, tzinfo=UTC).timestamp()
HOLDS = {"queue": "a", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}


def view(status: dict[str, Any] | None = None, deadline: int | None = 60, **pod: Any) -> JobView:
    """Return the coordinator's view of a job."""
    container = {"name": "torch", "resources": {"requests": {"cpu": "1"}}}
    manifest = stored({"spec": {"containers": [container], **pod}}, status)
    if deadline is not None:
        manifest["spec"]["activeDeadlineSeconds"] = deadline
    return views.job_view(manifest)


@pytest.mark.parametrize(
    ("grace", "seconds"),
    [(5, 65), (0, 60), (None, 90), (-1, 90), ("x", 90), (True, 90), (2**31, 60 + 2**31), (10**400, 60 + 2**63)],
)
def test_room_duration_is_the_deadline_plus_the_grace_period_of_the_pods(grace: Any, seconds: int) -> None:
    assert view(terminationGracePeriodSeconds=grace).room_duration == RoomDuration(seconds, None)


def test_a_job_without_a_deadline_has_no_room_duration() -> None:
    assert view(deadline=None).room_duration is None


@pytest.mark.parametrize(
    ("admitted", "started", "since"),
    [
        (ADMITTED, ADMITTED, AT),
        (ADMITTED, None, AT),  # its pods are being deleted
        (ADMITTED, LATER, AT + 240),  # the job was resumed under a version that restarted its time
        (None, LATER, AT + 240),
        (None, None, None),
    ],
)
def test_the_time_of_a_job_begins_at_its_start_or_its_admission(
    admitted: str | None, started: str | None, since: float | None
) -> None:
    status = {"phase": "Running", "admission": {**HOLDS, "admittedAt": admitted}, "startTime": started}
    assert view(status).room_duration == RoomDuration(90, since)


# The forecast over all jobs

LASTS = RoomDuration(70.0, None)
QUEUED = job(phase="Queued", queue="a", room_duration=LASTS)
RUNS = job(
    key=JobKey("team", "runs", "u-runs"),
    admission=admission(charge={"cpu": 4}),
    room_duration=RoomDuration(70.0, 1000.0),
)


def known(*jobs: JobView, occupied: bool = True) -> JobEnds | None:
    deadlines = Deadlines()
    for each in jobs:
        deadlines.note(None, each)
    return deadlines.forecast(lambda _: occupied)


def test_forecast_has_the_ends_of_admitted_jobs_and_durations_of_waiting_jobs() -> None:
    sooner = replace(RUNS, key=JobKey("team", "sooner", "u-sooner"), room_duration=RoomDuration(10.0, 1000.0))
    assert known(QUEUED, RUNS, sooner) == JobEnds(
        ends=((1010.0 + END_SECONDS, {"cpu": 4}), (1070.0 + END_SECONDS, {"cpu": 4})),
        longest={str(KEY): GRANT_SECONDS + 70.0 + END_SECONDS},
        queues=frozenset({"a"}),
    )


@pytest.mark.parametrize("phase", ["", "Suspended", "Admitted"])
def test_a_job_whose_deadline_may_still_rise_has_no_forecast(phase: str) -> None:
    assert known(replace(QUEUED, phase=phase)) is None


def test_forecast_omits_jobs_with_an_unknown_end() -> None:
    undated, endless = replace(RUNS, room_duration=RoomDuration(70.0, None)), replace(RUNS, room_duration=None)
    for each in (undated, endless):
        found = known(QUEUED, each)
        assert found is not None
        assert found.ends == ()


@pytest.mark.parametrize("occupied", [True, False])
def test_forecast_has_a_finished_job_while_its_pods_hold_room(occupied: bool) -> None:
    found = known(QUEUED, replace(RUNS, finished=True), occupied=occupied)
    assert found is not None
    assert len(found.ends) == occupied


def test_forecast_drops_a_job_that_is_deleted_or_loses_its_deadline() -> None:
    for after in (None, replace(QUEUED, room_duration=None), replace(QUEUED, phase="Suspended")):
        deadlines = Deadlines()
        deadlines.note(None, QUEUED)
        assert deadlines.forecast(lambda _: True) is not None
        deadlines.note(QUEUED, after)
        assert deadlines.forecast(lambda _: True) is None


def test_forecast_replaces_a_job_by_its_namesake() -> None:
    other = replace(QUEUED, key=JobKey(KEY.namespace, KEY.name, "u-other"))
    deadlines = Deadlines()
    deadlines.note(None, QUEUED)
    deadlines.note(QUEUED, other)
    found = deadlines.forecast(lambda _: True)
    assert found is not None
    assert set(found.longest) == {str(other.key)}


# End to end

HOUR = 3600


def kept_with_deadlines(desk: Desk, namespace: str) -> tuple[JobKey, list[JobKey]]:
    """Return a job of queue a for which room is kept, and the running jobs of queue b. The job of queue a is as large
    as the pool. The jobs of queue b hold 3 of the 4 slots for at most an hour."""
    large, small = keep_room(desk, namespace, activeDeadlineSeconds=HOUR)
    end(desk, small[2])
    desk.until(lambda: len(desk.reserved()) == SLOTS - 1)
    running = [each for each in small if each in desk.reserved()]
    desk.until(lambda: all(map(desk.pods_of, running)))
    return large, running


def test_kept_room_is_lent_to_a_short_job_only(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={SLOTS}", cost="cpu") as desk:
        large, running = kept_with_deadlines(desk, namespace)
        for name, seconds in (("any", None), ("long", HOUR), ("short", 60)):
            given = {} if seconds is None else {"activeDeadlineSeconds": seconds}
            desk.submit(name, namespace, "b", tasks=ONE, **given)

        def lent() -> bool:
            clock.step(0.1)  # the status of a job shows only after a moment that it waits
            return len(desk.reserved()) == SLOTS

        desk.until(lent)
        assert {each.name for each in desk.reserved()} == {"short", *(each.name for each in running)}
        assert kept(desk), "the large job still waits for the other jobs"
        for each in desk.reserved():
            end(desk, each)
        desk.until(lambda: large in desk.reserved())
