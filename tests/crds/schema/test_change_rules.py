"""Every cell of the field table, judged by the rules made from it."""

import copy
from typing import Any

import pytest

from crds.schema.change_rules import DEADLINE, TABLE, Field, State
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
    "torchElasticPolicy": ({"numMinReplicas": 1}, {"numMinReplicas": 2}),
    "nprocPerNode": (4, "gpu"),
    "restartScope": ("Job", "Task"),
    "backoffLimit": (1, 2),
    "activeDeadlineSeconds": (1, 2),
    "ttlSecondsAfterFinished": (1, 2),
    "cleanPodPolicy": ("All", "None"),
    "suspend": (False, True),
}
CELLS = [
    pytest.param(field, state, status, id=f"{field.path}-{state}-{index}")
    for field in TABLE
    for state, statuses in STATUS.items()
    for index, status in enumerate(statuses)
    if (field.path, status) != (DEADLINE, {"phase": "Queued"})  # `test_a_deadline_only_comes_sooner`
]


def with_field(path: str, value: Any, status: dict[str, Any] | None) -> dict[str, Any]:
    """A job with one field set; without it if the value is None."""
    manifest = copy.deepcopy(job(status=status))
    at = manifest["spec"]
    *steps, last = path.split(".")
    for step in steps:
        at = at.setdefault(step, {})
    if value is not None:
        at[last] = value
    return manifest


def changes(path: str) -> list[tuple[Any, Any]]:
    """From one value to another, from nothing to a value and back, as far as the field may be absent."""
    one, other = VALUES[path]
    return [(one, other)] if path == "torchTaskSpecs" else [(one, other), (None, one), (one, None)]


def is_sooner(field: Field, state: State, before: Any, after: Any) -> bool:
    """Whether the change moves the deadline of an unfinished job to an earlier moment."""
    sooner = after is not None and (before is None or after < before) if field.path == DEADLINE else False
    return sooner and state != "finished"


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
def test_a_deadline_only_comes_sooner(
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
def test_a_field_changes_only_where_the_table_says_so(
    field: Field, state: State, status: dict[str, Any] | None
) -> None:
    for before, after in changes(field.path):
        old, new = with_field(field.path, before, status), with_field(field.path, after, status)
        found = served.refusals(new, old)
        if field.may_change(state) or is_sooner(field, state, before, after):
            assert found == []
        else:
            (refusal,) = found
            assert refusal.startswith("spec: Invalid value")
            assert f": {field.path} may not change" in refusal
            assert ("spec.suspend" if state == "admitted" else "submit a new job") in refusal


@pytest.mark.parametrize(("field", "state", "status"), CELLS)
def test_a_status_may_change_whatever_the_spec_holds(field: Field, state: State, status: dict[str, Any] | None) -> None:
    old = with_field(field.path, VALUES[field.path][0], status)
    for others in STATUS.values():
        for other in others:
            assert served.refusals(with_field(field.path, VALUES[field.path][0], other), old) == []


def test_the_table_names_every_field_of_the_spec() -> None:
    top = {info.alias for info in TorchJobSpec.model_fields.values()} - {"schedulingPolicy"}
    policy = {f"schedulingPolicy.{info.alias}" for info in SchedulingPolicy.model_fields.values()}
    assert sorted(field.path for field in TABLE) == sorted(str(path) for path in top | policy)


def test_all_fields_that_changed_are_named() -> None:
    status = {"phase": "Admitted", "admission": ADMISSION}
    old = with_field("restartScope", "Job", status)
    new = with_field("restartScope", "Task", status)
    new["spec"] |= {"minMembers": {"Worker": 1}, "backoffLimit": 3}
    (refusal,) = served.refusals(new, old)
    assert ": minMembers restartScope may not change while the job is admitted" in refusal


def resized(workers: int | None, policy: dict[str, Any] | None, phase: str = "Running", **also: Any) -> list[str]:
    """What is said when an admitted job of 3 workers gets another number of them, and its Worker other fields."""
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
def test_an_elastic_job_changes_its_size_within_its_bounds(
    workers: int | None, policy: dict[str, Any] | None, also: dict[str, Any], allowed: bool
) -> None:
    found = resized(workers, policy, **also)
    assert bool(found) is not allowed
    if not allowed:
        (refusal,) = found
        assert "torchTaskSpecs may not change while the job is admitted" in refusal
        assert "numMinReplicas to numMaxReplicas" in refusal


def test_a_job_that_is_over_has_its_size_for_ever() -> None:
    assert resized(4, BOUNDS, phase="Succeeded")


def test_with_its_size_nothing_else_changes() -> None:
    old = with_field("torchElasticPolicy", BOUNDS, {"phase": "Running", "admission": ADMISSION})
    old["spec"]["torchTaskSpecs"] = {"Master": task(), "Worker": task(numTasks=3)}
    for changed in ({"Master": task(critical=True)}, {"Other": task()}, {"Master": None}):
        new = copy.deepcopy(old)
        tasks = new["spec"]["torchTaskSpecs"]
        new["spec"]["torchTaskSpecs"] = {k: v for k, v in (tasks | {"Worker": task(numTasks=4)} | changed).items() if v}
        assert served.refusals(new, old)
