"""Stray objects that no process looks after any more, and statuses that others have written, from objects as an API
server lists them.
"""

from typing import Any

import pytest

from coordinator.doctor.strays import Strays
from crds import labels
from crds.keys import JobKey

JOB = JobKey("team", "train", "u1")
OWNER = {"kind": "TorchJob", "name": "train", "uid": "u1", "controller": True}
NAMED = {labels.JOB_UID: "u1", labels.JOB_NAME: "train"}


def pod(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "train-worker-0", "labels": NAMED, **metadata}}


def config_map(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "torchq-code-1", "labels": {labels.CODE: "c0de"}, **metadata}}


def job(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "train", "uid": "u1", **metadata}}


def codes(strays: Strays, *jobs: JobKey) -> list[tuple[str, str]]:
    return [(each.code, each.subject) for each in strays.findings(frozenset(jobs))]


def test_a_pod_that_lost_its_job_and_its_owner_is_found_and_no_other_one() -> None:
    strays = Strays()
    strays.note_pod(pod())
    assert codes(strays) == [("stray-pod", "team/train-worker-0")]
    assert codes(strays, JOB) == [], "its job exists, so a worker looks after the pods of its name"
    for other in (pod(ownerReferences=[OWNER]), pod(deletionTimestamp="2027-01-15T08:00:00Z"), pod(labels={})):
        strays = Strays()
        strays.note_pod(other)
        assert codes(strays) == []


@pytest.mark.parametrize(
    ("owners", "job_labels", "is_stray"),
    [
        ([], {}, True),
        ([{**OWNER, "uid": "gone"}], {}, True),
        ([OWNER], {}, False),
        ([], {labels.CODE: "c0de"}, False),
        ([], {labels.CODE: "another"}, True),
    ],
)
def test_code_is_stray_if_no_job_owns_or_names_it(
    owners: list[dict[str, Any]], job_labels: dict[str, str], is_stray: bool
) -> None:
    strays = Strays()
    strays.note_code(config_map(ownerReferences=owners))
    strays.note_job(JOB, job(labels=job_labels))
    assert codes(strays, JOB) == ([("stray-code", "ConfigMap team/torchq-code-1")] if is_stray else [])


def test_a_status_that_others_have_written_is_named_with_its_writer() -> None:
    strays = Strays()
    mine = {"manager": "torchq-worker", "subresource": "status", "fieldsV1": {"f:status": {}}}
    theirs = {"manager": "kubectl-edit", "time": "2027-01-15T08:00:00Z"}
    edit = {**theirs, "subresource": "status", "fieldsV1": {"f:status": {}}}
    strays.note_job(JOB, job(managedFields=[mine, {**theirs, "fieldsV1": {"f:spec": {"f:suspend": {}}}}]))
    assert codes(strays, JOB) == []
    strays.note_job(JOB, job(managedFields=[mine, edit]))
    (found,) = strays.findings(frozenset([JOB]))
    assert (found.code, found.subject) == ("edited-status", str(JOB))
    assert found.message == "kubectl-edit has written its status at 2027-01-15T08:00:00Z, and torchq has not since"
