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


CLASS = "gpu.example.com.deviceclass.resource.k8s.io/devices"
NIC = "nic.example.com.deviceclass.resource.k8s.io/devices"


@pytest.mark.parametrize(
    ("quota", "counted", "missing"),
    [
        ({}, (), ""),
        ({"cpu": 1, "memory": 2, "jobs": 3}, ("cpu", CLASS), ""),
        ({"cpu": 1, builders.GPU: 0}, (), "CLASS.deviceclass.resource.k8s.io/devices"),
        ({builders.GPU: 8}, ("jobs", CLASS), CLASS),
        ({builders.GPU: 8, CLASS: 2}, (), ""),
        ({builders.GPU: 8, CLASS: 2}, (CLASS,), ""),
        ({CLASS: 2}, (CLASS, NIC), NIC),
    ],
)
def test_queue_that_limits_devices_refuses_claims_of_other_classes(
    quota: dict[str, int], counted: tuple[str, ...], missing: str
) -> None:
    refusal = claims.refusal("team", quota, counted)
    assert f"but not {missing}: ask" in refusal if missing else refusal == ""


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([], {}),
        ([{"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}}], {CLASS: 1}),
        ([{"name": "a", "deviceClassName": "gpu.example.com", "count": 3}], {CLASS: 3}),  # the form of v1beta1
        ([{"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}}], {CLASS: 32}),
        (
            [
                {"name": "a", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}},
                {"name": "b", "exactly": {"deviceClassName": "gpu.example.com", "count": 4}},
                {"name": "c", "exactly": {"deviceClassName": "nic.example.com"}},
            ],
            {CLASS: 6, NIC: 1},
        ),
        (
            [
                {
                    "name": "a",
                    "firstAvailable": [
                        {"name": "x", "deviceClassName": "gpu.example.com", "count": 1},
                        {"name": "y", "deviceClassName": "gpu.example.com", "count": 2},
                        {"name": "z", "deviceClassName": "nic.example.com"},
                    ],
                }
            ],
            {CLASS: 2, NIC: 1},
        ),
    ],
)
def test_devices_of_a_claim_are_counted_as_by_a_resource_quota(
    requests: list[dict[str, Any]], devices: dict[str, int]
) -> None:
    assert claims.requested_devices({"devices": {"requests": requests}}) == devices


def test_claim_that_was_made_from_a_template_is_named_by_the_status() -> None:
    spec = {
        "resourceClaims": [
            {"name": "a", "resourceClaimTemplateName": "eight"},
            {"name": "b", "resourceClaimTemplateName": "one"},
            {"name": "c", "resourceClaimName": "shared"},
        ]
    }
    status = {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "pod-a-x7k2p"}]}
    assert claims.references(spec, status) == (
        claims.ClaimReference("pod-a-x7k2p"),
        claims.ClaimReference("one", is_template=True),
        claims.ClaimReference("shared"),
    )
