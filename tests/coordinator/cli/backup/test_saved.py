"""The content of a backup: the part of each object that the new object gets, and a message for every other part."""

from typing import Any

import pytest

from coordinator.cli.backup import saved
from coordinator.cli.manifest_files import BadManifest
from crds import labels
from tests.support.coordinator.desk import manifest

WHEN = "2026-01-01T00:00:00Z"


def old_job(name: str = "train", created: str = WHEN, phase: str = "Succeeded", **metadata: Any) -> dict[str, Any]:
    """Return a job as it stands in a backup."""
    found = {"namespace": "team", "uid": f"old-{name}", "creationTimestamp": created, **metadata}
    body = manifest(name, "a")
    return body | {"metadata": body["metadata"] | found, "status": {"phase": phase, "completionTime": WHEN}}


def read(*items: Any) -> saved.Backup:
    return saved.read([("FILE", {"apiVersion": "v1", "kind": "List", "items": list(items)})])


def test_a_new_object_gets_nothing_that_belongs_to_the_old_cluster() -> None:
    body = old_job(
        generateName="tra",
        resourceVersion="7",
        generation=3,
        managedFields=[{"manager": "kubectl"}],
        ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "gone"}],
        finalizers=["example.com/keep"],
        labels={"team": "vision"},
        annotations={"note": "mine", labels.RETRY_AT: WHEN, labels.RESTART_REQUEST: "{}"},
    )
    (job,) = read(body).jobs
    annotations = {"note": "mine", labels.RESTORED: "old-train"}
    assert job.body["metadata"] == {
        "name": "train",
        "namespace": "team",
        "labels": {"team": "vision"},
        "annotations": annotations,
    }
    assert job.body.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert job.body["spec"] == body["spec"] | {"suspend": True}, "a finished job must never run"


def test_a_finished_job_tells_what_it_was_at_first_however_often_it_is_restored() -> None:
    first, waiting = old_job(), old_job("later", phase="Queued")
    again = old_job(uid="new") | {"status": {"phase": "Failed", "restoredFrom": {"uid": "old-train", "created": WHEN}}}
    for body in (first, again):
        (job,) = read(body).jobs
        assert (job.status or {})["restoredFrom"] == {"uid": "old-train", "created": WHEN}
    (job,) = read(waiting).jobs
    assert job.status is None, "it is another job in the history, because it runs again"
    (job,) = read(old_job(uid=None)).jobs
    assert "restoredFrom" not in (job.status or {})


def test_a_finished_job_is_not_created_cancelled_because_it_would_end_as_cancelled() -> None:
    finished, waiting = old_job("train"), old_job("later", "2026-01-01T00:00:02Z", "Queued")
    for body in (finished, waiting):
        body["spec"]["cancel"] = True
    ended, waits = read(finished, waiting).jobs
    assert ("cancel" in ended.body["spec"], "cancel" in waits.body["spec"]) == (False, True)


def test_jobs_are_in_the_order_of_their_old_creation_and_submission() -> None:
    second = {"created": "2026-01-01T00:00:01Z", "phase": "Queued"}
    names = [
        old_job("late", "2026-01-01T00:00:02Z", "Queued"),
        old_job("b", **second, annotations={labels.SUBMITTED: "1764000000000002.9"}),
        old_job("a", **second, annotations={labels.SUBMITTED: "1764000000000002.10"}),
        old_job("early"),
    ]
    assert [job.name for job in read(*names).jobs] == ["early", "b", "a", "late"]


def test_lists_documents_and_single_objects_are_read_alike() -> None:
    queue = {"apiVersion": labels.GROUP + "/v1alpha1", "kind": "TenantQueue", "metadata": {"name": "a"}, "spec": {}}
    request = {"apiVersion": labels.GROUP + "/v1alpha1", "kind": "ScaleOut", "metadata": {"name": "grow"}}
    jobs = {"apiVersion": labels.GROUP + "/v1alpha1", "kind": "TorchJobList", "items": [old_job()]}
    found = saved.read([("one", queue), ("two", jobs), ("three", request)])
    assert ([queue.name for queue in found.queues], [job.source for job in found.jobs]) == (["a"], ["two, item 1"])
    assert found.requests == 1


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}], "item 1: Pod of v1 is neither a TorchJob"),
        ([old_job() | {"apiVersion": labels.GROUP + "/v2"}], "is neither a TorchJob nor a TenantQueue of"),
        (["text"], "item 1: not a Kubernetes object"),
        ([old_job(), old_job(uid="other")], "item 2: torchjob team/train is already in FILE, item 1"),
        ([old_job(name="", generateName="tra")], "item 1: no metadata.name"),
        ([manifest("submitted")], "item 1: no metadata.namespace"),
        ([old_job() | {"spec": ["x"]}], "item 1: spec: must be a map"),
        ([old_job() | {"status": {"phase": "Failed", "restartCount": "many"}}], "item 1: status: restartCount"),
    ],
)
def test_what_is_no_backup_is_named_with_its_place(items: list[Any], words: str) -> None:
    with pytest.raises(BadManifest, match=words):
        read(*items)
