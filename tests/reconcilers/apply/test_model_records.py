"""The ModelVersion of a job: made once when the job succeeds, and what keeps a job from having one."""

from typing import Any

import pytest

from crds import model_version
from crds.api_resources import EVENTS, MODEL_VERSIONS
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from kube import errors
from kube.api import Manifest
from tests.reconcilers.test_results import MASTER, WORKER, begin, end, result
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task

MODEL: dict[str, Any] = {"modelOutput": {"modelName": "digits"}, "outputs": {"claimName": "models"}}
COUNT = '"torchq-model":{"files":3,"bytes":12,"digest":"sha256:9c1e"}'


def versions(bench: Bench) -> list[Manifest]:
    return bench.cluster.list(MODEL_VERSIONS, bench.namespace).items


def events(bench: Bench) -> list[tuple[str, str]]:
    found = bench.cluster.list(EVENTS, bench.namespace).items
    return [(each["reason"], each["message"]) for each in found if each["reason"].startswith("Model")]


def train(bench: Bench, said: str = f"{{{COUNT}}}", **spec: Any) -> None:
    """Run a job to its end, with this termination message of rank 0."""
    begin(bench, **{**MODEL, **spec})
    end(bench, MASTER, said)
    bench.reconcile(times=2)
    assert bench.job.status.phase == "Succeeded"


def test_success_makes_one_version_with_one_write_and_its_origin(bench: Bench) -> None:
    train(bench, f'{{"torchq-result":{{"accuracy":0.9}},{COUNT}}}')
    assert (bench.counting.calls["create ModelVersion"], bench.counting.calls["get Pod"]) == (1, 1)
    (found,) = versions(bench)
    uid, version = bench.key.uid, bench.key.uid[:5]
    assert found["metadata"]["name"] == f"digits-{version}"
    assert found["spec"] == {
        "modelName": "digits",
        "version": version,
        "createdBy": "digits",
        "createdByUid": uid,
        "queue": bench.namespace,
        "claimName": "models",
        "path": f"{bench.namespace}/digits-{uid}/model",
        "image": "torch:1",
        "nodes": 3,
    }
    status = found["status"]
    assert status.pop("finishTime")
    assert status == {"files": 3, "bytes": 12, "digest": "sha256:9c1e", "result": '{"accuracy":0.9}'}
    assert "ownerReferences" not in found["metadata"], "a version outlives its job"


def test_result_of_a_later_stage_and_the_count_of_an_earlier_one_are_both_kept(bench: Bench) -> None:
    publish = task(1, dependsOn=[{"taskType": "Master", "phase": "Succeeded"}])
    begin(bench, {"Master": task(), "Publish": publish}, successPolicy="AllTasks", **MODEL)
    end(bench, MASTER, f'{{"torchq-result":{{"accuracy":0.1}},{COUNT}}}')
    bench.reconcile(times=2)
    bench.move("Running", "digits-publish-0")
    end(bench, "digits-publish-0", result(0.9))
    bench.reconcile(times=2)
    (found,) = versions(bench)
    assert (found["status"]["files"], found["status"]["result"]) == (3, '{"accuracy":0.9}')


@pytest.mark.parametrize("said", ["done", result(0.9), '{"torchq-model":{"files":"many"}}'])
def test_code_that_counts_nothing_makes_a_version_without_a_digest(bench: Bench, said: str) -> None:
    train(bench, said)
    (found,) = versions(bench)
    assert "digest" not in found["status"]
    assert "files" not in found["status"]


def test_failure_makes_no_version(bench: Bench) -> None:
    begin(bench, {"Worker": task(1, restartPolicy="Never")}, **MODEL)
    end(bench, WORKER, f"{{{COUNT}}}", 1)
    bench.counting.log_end = lambda *_, **__: ""  # type: ignore[attr-defined]
    bench.reconcile(times=2)
    assert bench.job.status.phase == "Failed"
    assert (versions(bench), events(bench)) == ([], [])


def test_empty_folder_is_no_model(bench: Bench) -> None:
    train(bench, '{"torchq-model":{"files":0,"bytes":0,"digest":""}}')
    assert versions(bench) == []
    ((reason, message),) = events(bench)
    assert (reason, "TORCHQ_MODEL_PATH is empty" in message) == ("ModelEmpty", True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.NotFound("no such kind"), "has no CustomResourceDefinition modelversions.model.distributed.io"),
        (errors.Forbidden("may not create"), "may not create"),
        (errors.Invalid("of another program", ()), "of another program"),
    ],
)
def test_job_succeeds_with_one_event_where_the_cluster_takes_no_version(
    bench: Bench, error: Exception, words: str
) -> None:
    bench.counting.failing["create ModelVersion"] = error
    train(bench)
    ((reason, message),) = events(bench)
    assert reason == "ModelNotRecorded"
    assert words in message


def test_model_without_a_place_is_told(bench: Bench) -> None:
    train(bench, outputs=None)
    assert versions(bench) == []
    ((reason, message),) = events(bench)
    assert (reason, "spec.outputs names no claim" in message) == ("ModelNotRecorded", True)


def test_name_that_is_taken_leads_to_a_longer_one_and_a_repetition_finds_its_own(bench: Bench) -> None:
    begin(bench, **MODEL)
    uid = bench.key.uid
    for length in (5, 6):
        other = ModelVersionSpec(model_name="digits", version=uid[:length], created_by_uid="other")
        bench.cluster.create(MODEL_VERSIONS, model_version.manifest(other, ModelVersionStatus()), bench.namespace)
    end(bench, MASTER, f"{{{COUNT}}}")
    bench.counting.failing["patch TorchJob"] = errors.ServerError("killed between the two writes")
    with pytest.raises(errors.ServerError):
        bench.reconcile()
    del bench.counting.failing["patch TorchJob"]
    bench.reconcile(times=2)
    assert bench.job.status.phase == "Succeeded"
    assert sorted(each["metadata"]["name"] for each in versions(bench)) == [
        f"digits-{uid[:length]}" for length in (5, 6, 7)
    ]


def test_job_without_a_model_makes_no_request_about_models(bench: Bench) -> None:
    train(bench, modelOutput=None)
    assert not [name for name in bench.counting.calls if "ModelVersion" in name]
