"""From files to jobs: either all jobs are created or none, and an invalid file yields the reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.cli import submission
from coordinator.cli.jobs.making import PartlySubmitted
from coordinator.cli.manifest_files import BadManifest
from coordinator.runs import submitter
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import manifest, task


def file(folder: Path, *bodies: Any, name: str = "jobs.yaml") -> str:
    path = folder / name
    path.write_text(yaml.safe_dump_all(bodies))
    return str(path)


def names(cluster: KubernetesCluster, namespace: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.list(TORCHJOBS, namespace).items)


def submit(cluster: KubernetesCluster, paths: list[str], namespace: str, dry_run: bool = False) -> list[str]:
    documents = submission.read(paths, namespace, "/home/me")
    return [str(key) for key in submission.submit(cluster, documents, dry_run=dry_run)]


def test_submit_creates_a_job_for_each_document_of_each_file(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    files = [
        file(tmp_path, manifest("one"), None, manifest("two")),
        file(tmp_path, manifest("three"), name="more.yaml"),
    ]
    made = submit(cluster, files, namespace)
    assert [each.rpartition("/")[0] for each in made] == [f"{namespace}/{name}" for name in ("one", "two", "three")]
    stored = cluster.get(TORCHJOBS, "one", namespace)["metadata"]
    assert made[0] == f"{namespace}/one/{stored['uid']}"
    assert stored["annotations"][labels.SUBMIT_DIRECTORY] == "/home/me"


def test_a_job_names_who_submits_it_as_the_server_says_and_not_as_its_file_does(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    body = manifest("one")
    body["metadata"]["annotations"] = {labels.SUBMITTED_BY: "somebody else", "note": "mine"}
    submit(cluster, [file(tmp_path, body)], namespace)
    found = cluster.get(TORCHJOBS, "one", namespace)["metadata"]["annotations"]
    assert (found[labels.SUBMITTED_BY], found["note"]) == (submitter.find(cluster), "mine")
    assert found[labels.SUBMITTED_BY] not in ("", "somebody else")


class Silent:
    """A cluster whose API server does not say who asks."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create(self, resource: Any, *arguments: Any, **options: Any) -> Any:
        if resource == submitter.SELF_SUBJECT_REVIEWS:
            raise errors.NotFound("no such resource")
        return self._cluster.create(resource, *arguments, **options)


def test_a_job_names_nobody_if_the_server_does_not_say_who_asks(
    embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    body = manifest("one")
    body["metadata"]["annotations"] = {labels.SUBMITTED_BY: "somebody else"}
    submit(Silent(embedded_cluster), [file(tmp_path, body)], namespace)  # type: ignore[arg-type]
    annotations = embedded_cluster.get(TORCHJOBS, "one", namespace)["metadata"]["annotations"]
    assert labels.SUBMITTED_BY not in annotations


def test_a_dry_run_creates_nothing(cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> None:
    assert submit(cluster, [file(tmp_path, manifest("one"))], namespace, dry_run=True) == []
    assert names(cluster, namespace) == []
    assert cluster.list(PODS, namespace).items == []


def wrong(**task_fields: Any) -> dict[str, Any]:
    return manifest("wrong", tasks={"Master": task(), "Worker": {**task(), **task_fields}})


CYCLE = {
    "A": {**task(), "dependsOn": [{"taskType": "B", "phase": "Succeeded"}]},
    "B": {**task(), "dependsOn": [{"taskType": "A", "phase": "Succeeded"}]},
}


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        pytest.param(
            wrong(numTasks=-1),
            "spec.torchTaskSpecs.Worker.numTasks",
            "must be at least",
            id="a negative number",
        ),
        pytest.param(
            wrong(restartPolicy="Sometimes"),
            "spec.torchTaskSpecs.Worker.restartPolicy",
            "Sometimes",
            id="an unknown value",
        ),
        pytest.param(manifest("wrong", minMembers={"Worker": 3}), "spec", "numTasks", id="more members than tasks"),
        pytest.param(
            manifest("wrong", tasks={"Master": task(2)}), "spec.torchTaskSpecs", "exactly one Master", id="two masters"
        ),
        pytest.param(
            wrong(dependsOn=[{"taskType": "Nobody", "phase": "Running"}]),
            "spec.torchTaskSpecs",
            "taskType",
            id="unknown task",
        ),
        pytest.param(
            manifest("wrong", tasks=CYCLE),
            "spec.torchTaskSpecs",
            "dependency cycle A -> B -> A",
            id="a dependency cycle",
        ),
        pytest.param(
            wrong(template={"spec": {"containers": [{"image": "x"}]}}),
            "spec.torchTaskSpecs.Worker.template.spec.containers[0].name",
            "is required",
            id="a container without a name",
        ),
        pytest.param(
            wrong(template={"spec": {"containers": [{"name": "a", "image": "x", "comand": ["x"]}]}}),
            "spec.torchTaskSpecs.Worker.template.spec.containers[0].comand",
            "unknown field",
            id="a misspelled field of a container",
        ),
        pytest.param(
            wrong(
                template={
                    "spec": {
                        "containers": [
                            {"name": "a", "image": "x", "resources": {"requests": {"example.org/bytes": "9E"}}}
                        ]
                    }
                }
            ),
            "spec.torchTaskSpecs",
            "too large",
            id="more than can be counted",
        ),
    ],
)
def test_an_invalid_job_names_its_field_and_no_job_is_created(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path, body: Any, field: str, words: str
) -> None:
    path = file(tmp_path, manifest("right"), body)
    with pytest.raises(errors.Invalid) as caught:
        submit(cluster, [path], namespace)
    assert str(caught.value).startswith(f"{path}, document 2: ")
    assert any(cause.field.startswith(field) and words in cause.message for cause in caught.value.causes), (
        caught.value.causes
    )
    assert names(cluster, namespace) == []


def test_resource_claims_are_rejected_if_the_quota_of_the_queue_names_a_device(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    """Resource claims are not counted, so a job could use all devices of the cluster without any charge."""
    claim = {"resources": {"claims": [{"name": "gpus"}]}}
    spec = {"containers": [{"name": "a", "image": "x", **claim}], "resourceClaims": [{"name": "gpus"}]}
    path = file(tmp_path, manifest("right"), wrong(template={"spec": spec}))
    queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": namespace}}
    cluster.create(TENANT_QUEUES, {**queue, "spec": {"quota": {"requests.nvidia.com/gpu": 8}}})
    try:
        with pytest.raises(errors.Invalid, match="document 2: ") as caught:
            submit(cluster, [path], namespace)
    finally:
        cluster.delete(TENANT_QUEUES, namespace)
    (cause,) = caught.value.causes
    assert cause.field.startswith("spec.torchTaskSpecs.Worker.template.spec.resourceClaims (line ")
    assert f"queue {namespace} names nvidia.com/gpu" in cause.message
    assert names(cluster, namespace) == []


def test_an_unknown_field_is_rejected_with_its_path(cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid) as caught:
        submit(cluster, [file(tmp_path, manifest("wrong", priorty=3))], namespace)
    assert "spec.priorty" in f"{caught.value} {caught.value.causes}"


def test_an_existing_name_is_rejected_before_any_job_is_created(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    submit(cluster, [file(tmp_path, manifest("taken"))], namespace)
    path = file(tmp_path, manifest("new"), manifest("taken"))
    with pytest.raises(errors.AlreadyExists, match="document 2"):
        submit(cluster, [path], namespace)
    assert names(cluster, namespace) == ["taken"]


def test_two_jobs_of_one_name_are_rejected_before_any_job_is_created(
    embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    path = file(tmp_path, manifest("one"), manifest("two"), manifest("one"))
    with pytest.raises(BadManifest, match=rf"document 3: job {namespace}/one is already in .*jobs.yaml"):
        submit(embedded_cluster, [path], namespace)
    with pytest.raises(BadManifest, match=rf"job {namespace}/one"):
        submit(embedded_cluster, [file(tmp_path, manifest("one"))] * 2, namespace)
    assert names(embedded_cluster, namespace) == []


class Full:
    """A cluster that refuses to create the third job and, if `stuck` is set, refuses all deletions."""

    def __init__(self, cluster: KubernetesCluster, stuck: bool) -> None:
        self._cluster, self._stuck, self._created = cluster, stuck, 0

    def create(self, resource: Any, *args: Any, dry_run: bool = False) -> Any:
        if resource == TORCHJOBS and not dry_run:
            self._created += 1
            if self._created == 3:
                raise errors.Forbidden("exceeded quota: at most 2 jobs")
        return self._cluster.create(resource, *args, dry_run=dry_run)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        return self._cluster.get(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> None:
        if self._stuck:
            raise errors.Unreachable("the API server is away")
        self._cluster.delete(*args, **kwargs)


def test_jobs_are_deleted_again_if_a_later_job_is_refused(
    embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    path = file(tmp_path, *(manifest(f"job-{index}") for index in range(4)))
    with pytest.raises(errors.Forbidden, match="exceeded quota"):
        submit(Full(embedded_cluster, stuck=False), [path], namespace)
    assert names(embedded_cluster, namespace) == []


def test_jobs_that_cannot_be_deleted_again_are_named(
    embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    path = file(tmp_path, *(manifest(f"job-{index}") for index in range(4)))
    with pytest.raises(
        PartlySubmitted, match=r"exceeded quota.*could not be deleted.*torchq job delete \S+/job-0 \S+/job-1"
    ):
        submit(Full(embedded_cluster, stuck=True), [path], namespace)
    assert names(embedded_cluster, namespace) == ["job-0", "job-1"]


class NoPods:
    """A cluster as seen by an account that may create jobs but no pods."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def create(self, resource: Any, *args: Any, **kwargs: Any) -> Any:
        if resource == PODS:
            raise errors.Forbidden("pods is forbidden")
        return self._cluster.create(resource, *args, **kwargs)


def test_an_account_without_permission_for_pods_may_submit_jobs(
    embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    submit(NoPods(embedded_cluster), [file(tmp_path, manifest("one"))], namespace)
    assert names(embedded_cluster, namespace) == ["one"]


HEAD = "apiVersion: train.distributed.io/v1alpha1\nkind: TorchJob\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: [1", ("not YAML", "line 2"), id="invalid YAML"),
        pytest.param("a: !!python/object:os.system {}", ("not YAML", "line 1"), id="a Python object"),
        pytest.param("just words", ("not a TorchJob", "kind: TorchJob"), id="a plain string"),
        pytest.param("kind: Pod\napiVersion: v1", ("not a TorchJob",), id="another kind"),
        pytest.param(HEAD + "metadata: [x]", ("metadata: must be a map",), id="metadata that is a list"),
        pytest.param(
            HEAD + "metadata: {annotations: [x]}",
            ("metadata.annotations: must be a map",),
            id="annotations that are a list",
        ),
        pytest.param(HEAD + "spec: {on: 1}", ("JSON", "quotes"), id="a key that YAML takes for true"),
        pytest.param(HEAD + "spec: {a: 123456789012345678901234567890}", ("JSON",), id="a number too long"),
        pytest.param(HEAD + "spec: {a: !!binary aGk=}", ("JSON",), id="bytes"),
        pytest.param(HEAD + "spec: &a [*a]", ("line 3", "contains it"), id="a reference to itself"),
        pytest.param(HEAD + "spec: {a: 2024-13-45}", ("month",), id="an invalid date"),
        pytest.param(HEAD + "spec: " + "[" * 3000, ("YAML",), id="too deep"),
        pytest.param("a: b\x00", ("not YAML",), id="a control character"),
    ],
)
def test_an_invalid_file_is_named_with_the_reason(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text)
    with pytest.raises(BadManifest) as caught:
        submission.read([str(path)], "default", "/")
    message = str(caught.value)
    assert message.startswith(str(path))
    assert all(word in message for word in words), message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\xff\xfe\x00", "not UTF-8")],
)
def test_an_unreadable_file_is_named_with_the_reason(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "jobs.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadManifest, match=words):
        submission.read([str(path)], "default", "/")
    with pytest.raises(BadManifest, match="Is a directory"):
        submission.read([str(tmp_path)], "default", "/")


def test_namespace_and_folder_in_the_file_take_precedence(tmp_path: Path) -> None:
    body = manifest("one")
    body["metadata"] |= {"namespace": "theirs", "annotations": {labels.SUBMIT_DIRECTORY: "/there"}}
    (document,) = submission.read([file(tmp_path, body)], "mine", "/here")
    assert document.namespace == "theirs"
    assert document.body["metadata"]["annotations"] == {labels.SUBMIT_DIRECTORY: "/there"}
