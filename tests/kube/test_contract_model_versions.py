"""ModelVersions on an API server: one request writes spec and status, the spec never changes, and those of torch-on-k8s
and KubeDL are taken.
"""

import pytest

from crds import model_version
from crds.api_resources import MODEL_VERSIONS, TORCHJOBS
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import manifest

SPEC = ModelVersionSpec(model_name="digits", version="3f2a1", created_by_uid="u", path="team/t/model")
COUNTED = ModelVersionStatus(files=3, bytes=20 * 1024**3, digest="sha256:9c1e", result='{"a":1}')
ANCESTORS = {
    "apiVersion": MODEL_VERSIONS.api_version,
    "kind": "ModelVersion",
    "metadata": {"name": "mv-mnist-3f2a1"},
    "spec": {
        "modelName": "mnist",
        "createdBy": "mnist-job",
        "storage": {"nfs": {"server": "1.2.3.4", "path": "/models", "mountPath": "/mnt"}},
        "imageRepo": "registry.example/mnist",
        "imageTag": "v1",
    },
    "status": {"imageBuildPhase": "ImageBuildSucceeded", "message": "built"},
}


def test_one_request_writes_spec_and_status_and_the_spec_never_changes(
    cluster: KubernetesCluster, namespace: str
) -> None:
    made = cluster.create(MODEL_VERSIONS, model_version.manifest(SPEC, COUNTED), namespace)
    assert (made["metadata"]["name"], made["status"]["bytes"]) == ("digits-3f2a1", 20 * 1024**3)
    with pytest.raises(errors.Invalid, match=model_version.UNCHANGEABLE):
        cluster.patch(MODEL_VERSIONS, "digits-3f2a1", {"spec": {"path": "other"}}, namespace)
    with pytest.raises(errors.AlreadyExists):
        cluster.create(MODEL_VERSIONS, model_version.manifest(SPEC, ModelVersionStatus()), namespace)


def test_versions_of_torch_on_k8s_and_kubedl_are_kept_with_their_notes(
    cluster: KubernetesCluster, namespace: str
) -> None:
    made = cluster.create(MODEL_VERSIONS, ANCESTORS, namespace)
    assert (made["spec"], made["status"]) == (ANCESTORS["spec"], ANCESTORS["status"])


@pytest.mark.parametrize(
    "path", ["../other/model", "team/../other", "/etc", "team//model", "team/.hidden", "", "team/" + "x" * 600]
)
def test_path_of_a_model_that_leads_elsewhere_is_refused(cluster: KubernetesCluster, namespace: str, path: str) -> None:
    job = manifest("train", modelInputs=[{"modelName": "digits", "version": "1", "path": path}])
    with pytest.raises(errors.Invalid, match="modelInputs"):
        cluster.create(TORCHJOBS, job, namespace)


def test_model_that_is_named_twice_or_wrongly_is_refused(cluster: KubernetesCluster, namespace: str) -> None:
    one = {"modelName": "digits", "version": "1", "path": "team/t/model"}
    for spec in (
        {"modelInputs": [one, {**one, "version": "2"}]},
        {"modelOutput": {"modelName": "Digits"}},
        {"modelOutput": {"modelName": "d" * 64}},
    ):
        with pytest.raises(errors.Invalid, match="model"):
            cluster.create(TORCHJOBS, manifest("train", **spec), namespace)
