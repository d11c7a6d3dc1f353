"""The rules that are generated from the field table, for each field and state of the job."""

import copy
from typing import Any

import pytest

from crds.schema.change_rules import (
    CANCELLATION,
    DEADLINE,
    ELASTIC,
    NOT_TAKEN_BACK,
    RESIZABLE,
    SUSPENSION,
    TABLE,
    SpecField,
    State,
)
from crds.torchjob import checks
from crds.torchjob.jobspec import SchedulingPolicy, TorchJobSpec
from tests.support.crds import served
from tests.support.crds.builders import job, task

ADMISSION = {"queue": "team", "attempt": 1, "epoch": 1, "charge": {"jobs": 1}}
STATUS: dict[State, list[dict[str, Any] | None]] = {
    "waiting": [None, {}, {"phase": "Queued"}, {"phase": "Suspended"}],
    "admitted": [{"phase": "Admitted", "admission": ADMISSION}, {"phase": "Running", "admission": ADMISSION}],
    "finished": [{"phase": "Succeeded", "admission": ADMISSION}, {"phase": "Failed"}],
}
VALUES: dict[str, tuple[Any, Any]] = {
    "torchTaskSpecs": (job()["spec"]["torchTaskSpecs"], {"Master": task(), "Worker": task(numTasks=3)}),
    "minMembers": ({"Worker": 2}, {"Worker": 1}),
    "schedulingPolicy.queue": ("a", "b"),
    "schedulingPolicy.priority": (1, 2),
    "schedulingPolicy.priorityClassName": ("a", "b"),
    "schedulingPolicy.hold": (False, True),
    "schedulingPolicy.gangScheduler": ("none", "volcano"),
    "schedulingPolicy.gangQueue": ("a", "b"),
    "schedulingPolicy.topology": ({"required": "rack"}, {"preferred": "rack"}),
    "schedulingPolicy.checkpointSeconds": (10, 20),
    "torchElasticPolicy": ({"numMinReplicas": 1}, {"numMinReplicas": 2}),
    "torchElasticPolicy.autoscale": ("Off", "Idle"),
    "torchElasticPolicy.resizeEverySeconds": (60, 600),
    "torchElasticPolicy.minGainPercent": (1, 2),
    "health": ({"onHang": "Report"}, {"onHang": "Restart", "hangTimeoutSeconds": 60}),
    "nprocPerNode": (4, "gpu"),
    "successPolicy": ("AllTasks", "Master"),
    "restartScope": ("Job", "Task"),
    "backoffLimit": (1, 2),
    "activeDeadlineSeconds": (1, 2),
    "ttlSecondsAfterFinished": (1, 2),
    "cleanPodPolicy": ("All", "None"),
    "evictions": ("Allow", "Refuse"),
    "suspend": (False, True),
    "cancel": (False, True),
    "outputs": ({"claimName": "a"}, {"claimName": "b"}),
    "modelOutput": ({"modelName": "a"}, {"modelName": "b"}),
    "modelInputs": (
        [{"modelName": "a", "version": "1", "path": "team-a/x/model"}],
        [{"modelName": "a", "version": "2", "path": "team-a/y/model"}],
    ),
}
CELLS = [
    pytest.param(field, state, status, id=f"{field.path}-{state}-{index}")
    for field in TABLE
    for state, statuses in STATUS.items()
    for index, status in enumerate(statuses)
    if (field.path, status)
    != (DEADLINE, {"phase": "Queued"})  # see `test_deadline_of_a_queued_job_can_only_become_earlier`
]


def with_field(path: str, value: Any, status: dict[str, Any] | None) -> dict[str, Any]:
    """Return a job with this field set; None removes the field."""
    manifest = copy.deepcopy(job(status=status))
    at = manifest["spec"]
    *steps, last = path.split(".")
    for step in steps:
        at = at.setdefault(step, {"numMaxReplicas": 9} if step == ELASTIC else {})
    if value is not None:
        at[last] = value
    return manifest


def changes(path: str) -> list[tuple[Any, Any]]:
    """Return changes between two values and between a value and no value if the field may be absent."""
    one, other = VALUES[path]
    return [(one, other)] if path == "torchTaskSpecs" else [(one, other), (None, one), (one, None)]


def is_resumed(field: SpecField, state: State, after: Any) -> bool:
    """Return whether the change ends the suspension of a finished job."""
    return state == "finished" and field.path == SUSPENSION and not after


def is_sooner(field: SpecField, state: State, before: Any, after: Any) -> bool:
    """Return whether the change moves the deadline of an unfinished job to an earlier time."""
    sooner = after is not None and (before is None or after < before) if field.path == DEADLINE else False
    return sooner and state != "finished"


def named(field: SpecField, state: State) -> str:
    """Return the field that a refusal names. A refusal names the whole policy once no part of the policy may change."""
    return ELASTIC if state == "finished" and field.path.startswith(ELASTIC) else field.path


@pytest.mark.parametrize("before", [None, 60])
@pytest.mark.parametrize("after", [None, 59, 60, 61])
@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, ""),
        ({}, ""),
        ({"phase": "Suspended"}, ""),
        ({"phase": "Queued"}, "may not be raised or removed while the job is queued, because room"),
        ({"phase": "Queued", "admission": ADMISSION}, "may not change while the job is admitted: set spec.suspend"),
        ({"phase": "Running", "admission": ADMISSION}, "may not change while the job is admitted: set spec.suspend"),
        ({"phase": "Failed", "admission": ADMISSION}, "may not change after the job has finished"),
    ],
)
@pytest.mark.parametrize("suspend", [False, True])
def test_deadline_of_a_queued_job_can_only_become_earlier(
    before: int | None, after: int | None, status: dict[str, Any] | None, said: str, suspend: bool
) -> None:
    old, new = with_field(DEADLINE, before, status), with_field(DEADLINE, after, status)
    new["spec"]["suspend"] = old["spec"]["suspend"] = suspend
    sooner = after is not None and (before is None or after <= before) and (status or {}).get("phase") != "Failed"
    found = served.refusals(new, old)
    if not said or sooner or after == before:
        assert found == []
    else:
        (refusal,) = found
        assert f": activeDeadlineSeconds {said}" in refusal


@pytest.mark.parametrize(("field", "state", "status"), CELLS)
def test_field_changes_only_in_the_states_of_the_table(
    field: SpecField, state: State, status: dict[str, Any] | None
) -> None:
    for before, after in changes(field.path):
        old, new = with_field(field.path, before, status), with_field(field.path, after, status)
        found = served.refusals(new, old)
        if field.may_change(state) or is_sooner(field, state, before, after) or is_resumed(field, state, after):
            assert found == []
        else:
            (refusal,) = found
            assert refusal.startswith("spec: Invalid value")
            assert f": {named(field, state)} may not change" in refusal
            assert ("spec.suspend" if state == "admitted" else "submit a new job") in refusal


@pytest.mark.parametrize("after", [None, False])
@pytest.mark.parametrize("status", [each for statuses in STATUS.values() for each in statuses])
def test_cancellation_is_never_taken_back(status: dict[str, Any] | None, after: bool | None) -> None:
    old = with_field(CANCELLATION, True, status)
    (refusal,) = served.refusals(with_field(CANCELLATION, after, status), old)
    is_over = (status or {}).get("phase") in ("Succeeded", "Failed")
    assert ("cancel may not change after the job has finished" if is_over else NOT_TAKEN_BACK) in refusal


@pytest.mark.parametrize(("field", "state", "status"), CELLS)
def test_status_can_change_in_any_state(field: SpecField, state: State, status: dict[str, Any] | None) -> None:
    old = with_field(field.path, VALUES[field.path][0], status)
    for others in STATUS.values():
        for other in others:
            assert served.refusals(with_field(field.path, VALUES[field.path][0], other), old) == []


def test_field_table_lists_each_field_of_the_spec() -> None:
    top = {info.alias for info in TorchJobSpec.model_fields.values()} - {"schedulingPolicy"}
    policy = {f"schedulingPolicy.{info.alias}" for info in SchedulingPolicy.model_fields.values()}
    autoscaling = {f"{ELASTIC}.{name}" for name in ("autoscale", "resizeEverySeconds", "minGainPercent")}
    assert sorted(field.path for field in TABLE) == sorted(str(path) for path in top | policy | autoscaling)


def test_admitted_job_keeps_its_policy_when_autoscaling_changes_in_it() -> None:
    status = {"phase": "Running", "admission": ADMISSION}
    old = with_field(ELASTIC, {"numMinReplicas": 1, "numMaxReplicas": 4}, status)
    for policy, refused in (
        ({"numMinReplicas": 1, "numMaxReplicas": 4, "autoscale": "Idle"}, False),
        ({"numMinReplicas": 1, "numMaxReplicas": 5, "autoscale": "Idle"}, True),
        ({"numMinReplicas": 2, "numMaxReplicas": 4}, True),
        (None, True),
    ):
        found = served.refusals(with_field(ELASTIC, policy, status), old)
        assert bool(found) is refused
        assert all(": torchElasticPolicy may not change while the job is admitted" in each for each in found)


def test_refusal_names_all_changed_fields() -> None:
    status = {"phase": "Admitted", "admission": ADMISSION}
    old = with_field("restartScope", "Job", status)
    new = with_field("restartScope", "Task", status)
    new["spec"] |= {"minMembers": {"Worker": 1}, "backoffLimit": 3}
    (refusal,) = served.refusals(new, old)
    assert ": minMembers restartScope may not change while the job is admitted" in refusal


def resized(workers: int | None, policy: dict[str, Any] | None, phase: str = "Running", **also: Any) -> list[str]:
    """Return the refusals of a change of an admitted job of 3 workers. The change sets another number, and other fields
    of Worker.
    """
    status = {"phase": phase, "admission": ADMISSION}
    old = with_field("torchElasticPolicy", policy, status)
    old["spec"]["torchTaskSpecs"] = {"Master": task(), "Worker": task(numTasks=3)}
    new = copy.deepcopy(old)
    new["spec"]["torchTaskSpecs"]["Worker"].update(also)
    if workers is None:
        del new["spec"]["torchTaskSpecs"]["Worker"]["numTasks"]
    else:
        new["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] = workers
    return served.refusals(new, old)


BOUNDS = {"numMinReplicas": 2, "numMaxReplicas": 4}


@pytest.mark.parametrize(
    ("workers", "policy", "also", "allowed"),
    [
        (4, BOUNDS, {}, True),
        (2, BOUNDS, {}, True),
        (5, BOUNDS, {}, False),
        (1, BOUNDS, {}, False),
        (None, BOUNDS, {}, False),
        (None, {"numMaxReplicas": 4}, {}, True),
        (9, {"numMinReplicas": 2}, {}, True),
        (4, None, {}, False),
        (4, BOUNDS, {"restartPolicy": "Never"}, False),
        (4, BOUNDS, {"template": task()["template"] | {"metadata": {"labels": {"a": "b"}}}}, False),
    ],
)
def test_elastic_job_can_be_resized_only_within_its_bounds(
    workers: int | None, policy: dict[str, Any] | None, also: dict[str, Any], allowed: bool
) -> None:
    found = resized(workers, policy, **also)
    assert bool(found) is not allowed
    if not allowed:
        (refusal,) = found
        bounded = policy is not None and not also
        assert (f"must be from 2 to 4: {checks.WORKER_BOUNDS}" if bounded else f"{RESIZABLE} may not change") in refusal


@pytest.mark.parametrize("after", [None, False])
def test_a_finished_job_may_be_resumed_without_any_other_change(after: bool | None) -> None:
    old = with_field("suspend", True, {"phase": "Succeeded"})
    new = with_field("suspend", after, {"phase": "Succeeded"})
    assert served.refusals(new, old) == []
    new["spec"]["backoffLimit"] = 3
    (refusal,) = served.refusals(new, old)
    assert ": backoffLimit may not change after the job has finished" in refusal


def test_finished_job_cannot_be_resized() -> None:
    assert resized(4, BOUNDS, phase="Succeeded")


def test_resize_with_another_change_is_refused() -> None:
    old = with_field("torchElasticPolicy", BOUNDS, {"phase": "Running", "admission": ADMISSION})
    old["spec"]["torchTaskSpecs"] = {"Master": task(), "Worker": task(numTasks=3)}
    for changed in ({"Master": task(critical=True)}, {"Other": task()}, {"Master": None}):
        new = copy.deepcopy(old)
        tasks = new["spec"]["torchTaskSpecs"]
        new["spec"]["torchTaskSpecs"] = {k: v for k, v in (tasks | {"Worker": task(numTasks=4)} | changed).items() if v}
        assert served.refusals(new, old)
