"""Which changes of jobs and pods are routed first."""

from dataclasses import replace

import pytest

from coordinator.cache import urgency
from coordinator.cache.views import JobView, PodView
from queues.work_kinds import WorkKind
from tests.support.coordinator.builders import admission, job, pod

NEW, WAITS = job(phase=""), job()
ADMITTED = job(phase="Admitted", admission=admission(workers=4))
RUNS = replace(ADMITTED, phase="Running")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        pytest.param(None, NEW, "begins", id="submitted"),
        pytest.param(NEW, WAITS, "tells", id="its status says Queued"),
        pytest.param(WAITS, replace(WAITS, reason="Held"), "tells", id="its status has another reason"),
        pytest.param(WAITS, replace(WAITS, priority=7), "begins", id="edited"),
        pytest.param(replace(WAITS, suspended=True), WAITS, "begins", id="resumed"),
        pytest.param(WAITS, ADMITTED, "begins", id="admitted"),
        pytest.param(ADMITTED, RUNS, "tells", id="runs"),
        pytest.param(RUNS, replace(RUNS, phase="Restarting"), "begins", id="restarts"),
        pytest.param(RUNS, replace(RUNS, admission=admission(workers=6)), "tells", id="larger"),
        pytest.param(RUNS, replace(RUNS, admission=admission(workers=3)), "ends", id="smaller"),
        pytest.param(RUNS, WAITS, "ends", id="sent back"),
        pytest.param(RUNS, replace(RUNS, suspended=True), "ends", id="suspended"),
        pytest.param(RUNS, replace(RUNS, cancelled=True), "ends", id="cancelled"),
        pytest.param(RUNS, replace(RUNS, finished=True, phase="Succeeded"), "ends", id="finished"),
        pytest.param(RUNS, replace(RUNS, deleting=True), "ends", id="deleted"),
        pytest.param(RUNS, None, "ends", id="gone"),
    ],
)
def test_a_change_of_a_job_is_as_urgent_as_the_room_that_it_frees_or_wants(
    before: JobView | None, after: JobView | None, kind: WorkKind
) -> None:
    assert urgency.of_job(before, after) == kind


@pytest.mark.parametrize(("after", "kind"), [(pod(), "tells"), (pod(occupies=False), "begins"), (None, "begins")])
def test_a_change_of_a_pod_tells_unless_the_pod_has_ended(after: PodView | None, kind: WorkKind) -> None:
    assert urgency.of_pod(after) == kind
