"""ModelVersions of a backup: they are restored whole, and left alone where they exist."""

from crds import model_version
from crds.api_resources import MODEL_VERSIONS
from crds.model_version import ModelVersionSpec, ModelVersionStatus
from kube.client import KubernetesCluster
from tests.support.coordinator.backups import run

SPEC = ModelVersionSpec(model_name="digits", version="3f2a1", created_by_uid="old", path="team/train-old/model")
STATUS = ModelVersionStatus(files=3, bytes=12, digest="sha256:9c1e", result='{"accuracy":0.9}')


def test_a_model_is_restored_with_its_record_and_left_alone_the_second_time(
    cluster: KubernetesCluster, namespace: str
) -> None:
    body = model_version.manifest(SPEC, STATUS)
    saved = body | {"metadata": {"name": "digits-3f2a1", "namespace": namespace, "uid": "old"}}
    assert run(cluster, saved) == [f"modelversion {namespace}/digits-3f2a1: restored"]
    found = cluster.get(MODEL_VERSIONS, "digits-3f2a1", namespace)
    assert (found["spec"], found["status"]) == (body["spec"], body["status"])
    assert run(cluster, saved) == [f"modelversion {namespace}/digits-3f2a1: exists: left as it is"]
