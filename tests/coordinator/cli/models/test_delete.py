"""`torchq model delete`: which files go with a version, and which jobs keep it."""

from pathlib import Path

import pytest

from coordinator.local.job_files import OUTPUTS
from coordinator.local.target import ClusterTarget
from crds import model_version
from crds.api_resources import MODEL_VERSIONS, TORCHJOBS
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest


def record(cluster: KubernetesCluster, namespace: str, version: str, path: str, claim: str | None = None) -> None:
    spec = ModelVersionSpec(model_name="m", version=version, path=f"{namespace}/{path}", claim_name=claim)
    cluster.create(MODEL_VERSIONS, model_version.manifest(spec, ModelVersionStatus()), namespace)


def test_files_that_another_version_has_too_stay(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClusterTarget, "data", tmp_path)
    monkeypatch.setattr(ClusterTarget, "runs", True)
    model = tmp_path / OUTPUTS / namespace / "train" / "model"
    model.mkdir(parents=True)
    record(embedded_cluster, namespace, "1", "train")
    record(embedded_cluster, namespace, "2", "train/model")

    said = torchq("model", "delete", "m@1", "--yes").output
    assert said == "deleted m@1\nits files stay: m@2 has some of them\n"
    assert model.is_dir()
    assert torchq("model", "delete", "m@2", "--yes").output == f"deleted m@2\ndeleted {model}\n"
    assert (model.parent.is_dir(), model.exists()) == (True, False)


def test_job_keeps_the_version_that_it_reads_by_name_or_by_files(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    for version, claim in (("1", "a"), ("2", "b"), ("3", "a")):
        record(embedded_cluster, namespace, version, "train", claim)
    by_name = {"modelName": "m", "version": "1", "claimName": "old", "path": f"{namespace}/before"}
    by_files = {"modelName": "x", "version": "1", "claimName": "b", "path": f"{namespace}/train/part"}
    for name, each in (("by-name", by_name), ("by-files", by_files)):
        embedded_cluster.create(TORCHJOBS, manifest(name, "a", modelInputs=[each]), namespace)

    assert f"m@1 is read by {namespace}/by-name:" in torchq("model", "delete", "m@1", "--yes", code=1).output
    assert f"m@2 is read by {namespace}/by-files:" in torchq("model", "delete", "m@2", "--yes", code=1).output
    assert "its files stay: m@1 has some of them" in torchq("model", "delete", "m@3", "--yes").output


@pytest.mark.parametrize("path", ["train//model", "/etc", "train/../other", "train/model/", "train/a\0b"])
def test_path_has_one_form(embedded_cluster: KubernetesCluster, namespace: str, path: str) -> None:
    spec = {"modelName": "m", "path": path}
    body = model_version.manifest(ModelVersionSpec(model_name="m", version="1"), ModelVersionStatus())
    with pytest.raises(errors.Invalid, match=r"spec\.path"):
        embedded_cluster.create(MODEL_VERSIONS, body | {"spec": spec}, namespace)
