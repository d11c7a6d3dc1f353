"""The rules that bound the number of workers: the rules refuse new values, and leave stored jobs as they are."""

import copy
from typing import Any

import pytest

from crds.errors import InvalidObject
from crds.torchjob import checks, torchjob
from tests.support.crds import served
from tests.support.crds.builders import job, task, template

STATUS = {"phase": "Running", "admission": {"queue": "team", "attempt": 1, "epoch": 1, "workers": 3}}
SIZE = "spec.torchTaskSpecs[Worker].numTasks"


def elastic(workers: int | None, policy: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """Return a job of this number of workers with a policy."""
    spec: dict[str, Any] = {} if policy is None else {"torchElasticPolicy": policy}
    number = {} if workers is None else {"numTasks": workers}
    return job(torchTaskSpecs={"Master": task(), "Worker": task(**number)}, **spec, **fields)


def refusal(manifest: dict[str, Any]) -> str:
    """Return the only problem of a submitted job."""
    with pytest.raises(InvalidObject) as refused:
        torchjob.parse_submitted(manifest)
    (problem,) = refused.value.problems
    return str(problem)


BROKEN = [
    pytest.param(elastic(5, {"numMinReplicas": 2, "numMaxReplicas": 4}), "must be from 2 to 4: ", id="many"),
    pytest.param(elastic(None, {"numMinReplicas": 2, "numMaxReplicas": 4}), "must be from 2 to 4: ", id="default"),
    pytest.param(elastic(1, {"numMinReplicas": 2}), "must be 2 or more: ", id="few"),
    pytest.param(elastic(5, {"numMaxReplicas": 4}), "must be at most 4: ", id="no least number"),
    pytest.param(
        elastic(3, {"numMinReplicas": 2, "numMaxReplicas": 8, "replicaStep": 2}),
        "must be from 2 to 8, in steps of 2: ",
        id="off the grid",
    ),
    pytest.param(elastic(5, {"numMinReplicas": 2, "replicaStep": 2}), "must be 2 or more, in steps of 2: ", id="step"),
]


@pytest.mark.parametrize(("manifest", "words"), BROKEN)
def test_number_of_workers_outside_the_policy_is_refused_with_its_bounds(manifest: dict[str, Any], words: str) -> None:
    (refused,) = served.refusals(manifest)
    assert refused == f"{SIZE}: Invalid value: {words}{checks.WORKER_BOUNDS}"
    found = refusal(manifest)
    assert found.startswith(f"{WORKERS}.numTasks: Invalid value: ")
    assert found.endswith(f": {words}{checks.WORKER_BOUNDS}")


def test_policy_without_any_allowed_number_is_refused_for_that_alone() -> None:
    empty = elastic(3, {"numMinReplicas": 4, "numMaxReplicas": 2})
    assert served.refusals(empty) == [f"spec.torchElasticPolicy.numMinReplicas: Invalid value: {checks.ELASTIC_RANGE}"]


WORKERS = "spec.torchTaskSpecs.Worker"
OTHERS = [
    pytest.param(
        elastic(4, {"numMinReplicas": 2}, minMembers={"Worker": 3}),
        "spec.minMembers[Worker]",
        f"spec.minMembers.Worker: Invalid value: 3: {checks.MANY_LEAST_WORKERS}",
        id="many least workers",
    ),
    pytest.param(
        job(torchTaskSpecs={"Master": task()}, torchElasticPolicy={"numMinReplicas": 1}),
        "spec.torchElasticPolicy",
        f'spec.torchElasticPolicy: Invalid value: "object": {checks.NO_WORKER}',
        id="no worker",
    ),
]


@pytest.mark.parametrize(("manifest", "field", "problem"), OTHERS)
def test_policy_that_does_not_fit_the_job_is_refused(manifest: dict[str, Any], field: str, problem: str) -> None:
    (refused,) = served.refusals(manifest)
    assert refused.startswith(f"{field}: Invalid value")
    assert refused.endswith(problem.rpartition(": ")[2])
    assert refusal(manifest) == problem


STORED = [param.values[0] for param in (*BROKEN, *OTHERS)]


@pytest.mark.parametrize("stored", STORED)
def test_job_that_was_stored_before_the_rules_runs_and_changes_elsewhere(stored: dict[str, Any]) -> None:
    parsed = torchjob.parse(stored).spec
    assert 0 <= parsed.least_workers <= parsed.worker_count
    running = {**stored, "status": STATUS}
    assert served.refusals(running, stored) == []
    assert served.refusals({**running, "spec": {**stored["spec"], "suspend": True}}, running) == []
    assert served.refusals({**stored, "spec": {**stored["spec"], "backoffLimit": 3}}, stored) == []


@pytest.mark.parametrize("stored", STORED)
def test_rules_hold_for_a_stored_job_once_its_policy_changes(stored: dict[str, Any]) -> None:
    changed = copy.deepcopy(stored)
    changed["spec"]["torchElasticPolicy"]["joinTimeoutSeconds"] = 60
    assert len(served.refusals(changed, stored)) == 1


def test_stored_number_of_workers_changes_only_to_an_allowed_one() -> None:
    stored = elastic(9, {"numMinReplicas": 2, "numMaxReplicas": 4})
    for workers, refused in ((8, True), (4, False)):
        changed = copy.deepcopy(stored)
        changed["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] = workers
        assert bool(served.refusals(changed, stored)) is refused


@pytest.mark.parametrize(("grace", "limit"), [("absent", 30), (None, 30), (90, 90), ("90", 30), (3600, 3600), (0, 0)])
def test_shutdown_timeout_must_be_shorter_than_the_grace_period(grace: Any, limit: int) -> None:
    pod = template()
    pod["spec"] |= {} if grace == "absent" else {"terminationGracePeriodSeconds": grace}

    def elastic_job(**policy: int) -> dict[str, Any]:
        return job(torchTaskSpecs={"Worker": task(numTasks=2, template=pod)}, torchElasticPolicy=policy)

    assert torchjob.parse(elastic_job()).spec.shutdown_timeout("Worker") == max(limit - 5, 0)
    if limit:
        accepted = elastic_job(shutdownTimeoutSeconds=limit - 1)
        assert torchjob.parse(accepted).spec.shutdown_timeout("Worker") == limit - 1
        assert served.refusals(accepted) == []
    refused = elastic_job(shutdownTimeoutSeconds=limit + 7)
    field, words = "spec.torchElasticPolicy.shutdownTimeoutSeconds", f"{limit + 7} is not less than {limit}"
    with pytest.raises(InvalidObject) as found:
        torchjob.parse(refused)
    assert str(found.value.problems[0]) == f"{field}: Invalid value: {limit + 7}: {checks.LONG_SHUTDOWN}: {words}"
    assert served.refusals(refused) == [f"{field}: Invalid value: {checks.LONG_SHUTDOWN}: {words}"]
    without_limit = elastic_job(shutdownTimeoutSeconds=limit)
    assert len(served.refusals(without_limit)) == 1
    without_limit["spec"]["torchElasticPolicy"] = {}
    assert served.refusals(without_limit) == []
