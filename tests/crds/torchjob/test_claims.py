"""Resource claims in pod templates, and the queues that refuse jobs with them."""

from typing import Any

import pytest

from crds.torchjob import claims, torchjob
from tests.support.crds import builders

CLAIMING: dict[str, Any] = {"name": "c", "resources": {"claims": [{"name": "gpus"}]}}
PLAIN: dict[str, Any] = {"name": "p", "resources": {"limits": {builders.GPU: 1}}}


def claimed(**pod_spec: Any) -> str:
    tasks = {"Master": builders.task(), "Worker": builders.task(template={"spec": {"containers": [PLAIN], **pod_spec}})}
    return torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec.claims


@pytest.mark.parametrize(
    ("pod_spec", "field"),
    [
        ({}, ""),
        ({"resourceClaims": []}, ""),
        ({"resourceClaims": None, "resources": {"claims": None}}, ""),
        ({"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "eight"}]}, "resourceClaims"),
        ({"resources": {"claims": [{"name": "gpus"}]}}, "resources.claims"),
        ({"containers": [PLAIN, CLAIMING]}, "containers[1].resources.claims"),
        ({"initContainers": [CLAIMING]}, "initContainers[0].resources.claims"),
    ],
)
def test_claims_names_the_field_that_claims_resources(pod_spec: dict[str, Any], field: str) -> None:
    assert claimed(**pod_spec) == (f"spec.torchTaskSpecs.Worker.template.spec.{field}" if field else "")


def test_devices_omits_cpu_memory_storage_and_counts() -> None:
    others = [
        "cpu",
        "memory",
        "hugepages-2Mi",
        "ephemeral-storage",
        "storage",
        "pods",
        "jobs",
        "persistentvolumeclaims",
    ]
    classes = ["gold.storageclass.storage.k8s.io/requests.storage", "attachable-volumes-aws-ebs"]
    assert claims.devices([*others, *classes]) == ()
    named = ["example.com/nic", builders.GPU, "gpu", "gpus.deviceclass.resource.k8s.io/devices"]
    assert claims.devices([*named, *others]) == tuple(sorted(named))


def test_queue_with_a_device_quota_refuses_jobs_with_claims() -> None:
    assert claims.refusal("team", {"cpu": 1, "memory": 2, "jobs": 3}) == ""
    assert claims.refusal("team", {}) == ""
    assert "quota of queue team names nvidia.com/gpu" in claims.refusal("team", {"cpu": 1, builders.GPU: 0})
