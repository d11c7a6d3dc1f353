"""The fields of a TenantQueue: defaults, quota, limits and validation."""

from typing import Any

import pytest

from crds import tenantqueue
from crds.errors import InvalidObject
from crds.resources import resource_names
from tests.support.crds.builders import queue

NO_RESOURCES = (
    *("gpu", "GPU", "gpus", "mem", "cpus", "CPU", "storage", "persistentvolumeclaims", "attachable-volumes-x", "*", ""),
    *("requests.gpu", "requests.jobs", "requests.requests.cpu", "requests.requests.a.b/c", "hugepages-"),
    *("nvidia.com/", "/gpu", "Nvidia.com/gpu", "nvidia.com/a b"),
)


def test_empty_spec_gets_the_defaults() -> None:
    spec = tenantqueue.parse({"metadata": {"name": "a"}}).spec
    assert (spec.weight, spec.is_open, spec.ordering, spec.aging_seconds) == (1, True, "BestEffortFIFO", 600)
    assert spec.quota_amounts == {}


def test_quota_is_read_in_canonical_names_and_units() -> None:
    spec = tenantqueue.parse(queue(quota={"requests.cpu": "1500m", "memory": "1Gi", "jobs": 3})).spec
    assert spec.quota_amounts == {"cpu": 1500, "memory": 1 << 30, "jobs": 3}


@pytest.mark.parametrize("name", ["pods", "count/pods", "requests.pods"])
def test_quota_of_pods_accepts_the_names_of_a_resource_quota(name: str) -> None:
    assert tenantqueue.parse(queue(quota={name: "10"})).spec.quota_amounts == {"pods": 10}


@pytest.mark.parametrize(("policy", "is_open"), [("None", True), ("Hold", False), ("HoldAndDrain", False)])
def test_queue_is_open_only_without_a_stop_policy(policy: str, is_open: bool) -> None:
    assert tenantqueue.parse(queue(stopPolicy=policy)).spec.is_open is is_open


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (queue(weight=0), "spec.weight"),
        (queue(weight="5"), "spec.weight"),
        (queue(weigth=5), "spec.weigth"),
        (queue("a.b"), "metadata.name"),
        (queue("a" * 64), "metadata.name"),
        (queue(ordering="LIFO"), "spec.ordering"),
        (queue(quota={"cpu": "lots"}), "spec.quota.cpu"),
        (queue(quota={"cpu": -1}), "spec.quota.cpu"),
        (queue(quota={"cpu": "-1"}), "spec.quota.cpu"),
        *((queue(quota={name: 1}), "spec.quota") for name in NO_RESOURCES),
        *(
            (queue(quota={"nvidia.com/gpu": part}), "spec.quota.nvidia.com/gpu")
            for part in ("1.5", "1500m", "1e-1", 1.5)
        ),
        (queue(quota={"requests.nvidia.com/gpu": "0.5"}), "spec.quota.requests.nvidia.com/gpu"),
        (queue(quota={"jobs": "1.5"}), "spec.quota.jobs"),
        (queue(quota={"pods": "0.5"}), "spec.quota.pods"),
        (queue(quota={"count/pods": "1500m"}), "spec.quota.count/pods"),
        (queue(borrowingLimit={"gpu": 1}, cohort="c", quota={"cpu": 1}), "spec.borrowingLimit"),
        (queue(borrowingLimit={"jobs": "0.5"}, cohort="c", quota={"cpu": 1}), "spec.borrowingLimit.jobs"),
        (queue(quota={"limits.cpu": 1}), "spec.quota"),
        (queue(quota={"count/jobs": 1}), "spec.quota"),
        (queue(quota={"pods": 1, "count/pods": 1}), "spec.quota"),
        (queue(quota={"cpu": 1, "requests.cpu": 1}), "spec.quota"),
        (queue(borrowingLimit={"cpu": "lots"}, cohort="c", quota={"cpu": 1}), "spec.borrowingLimit.cpu"),
        (queue(cohort="c"), "spec.cohort"),
        (queue(cohort="c", quota={}), "spec.cohort"),
        (queue(borrowingLimit={"cpu": 1}, quota={"cpu": 1}), "spec.borrowingLimit"),
        (queue(namespaces=["Team"]), "spec.namespaces[0]"),
        (queue(gangQueues=[""]), "spec.gangQueues[0]"),
        (queue(gangQueues=["a", "b"], gangQueue="c"), "spec.gangQueue"),
        (queue(namespaceSelector={"matchLabels": {"tier": "?"}}), "spec.namespaceSelector.matchLabels.tier"),
        (queue(namespaceSelector={"matchExpressions": []}), "spec.namespaceSelector.matchExpressions"),
    ],
)
def test_refusal_names_the_invalid_field(manifest: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObject) as error:
        tenantqueue.parse(manifest)
    assert {problem.field for problem in error.value.problems} == {field}


@pytest.mark.parametrize(
    "quota",
    [
        {"cpu": "1.5", "memory": "1.5Gi", "ephemeral-storage": "0.5Gi", "requests.cpu-x/y": 1},
        {"nvidia.com/gpu": "8", "jobs": 20, "pods": "1k", "hugepages-2Mi": "1.5Gi"},
        {"requests.nvidia.com/gpu": "2000m", "count/pods": "1.0", "requests.hugepages-1Gi": "2Gi"},
        {"amd.com/gpu": "1.5k", "requests.pods": "1e1", "example.com/odd_Name.x": 8.0},
    ],
)
def test_quota_accepts_resources_that_jobs_can_request(quota: dict[str, Any]) -> None:
    assert tenantqueue.parse(queue(quota=quota)).spec.quota == quota


def test_stored_ineffective_limits_are_read_and_reported() -> None:
    stored = tenantqueue.read(queue(quota={"gpu": 8, "nvidia.com/gpu": "1.5", "jobs": 3}))
    assert stored.spec.quota_amounts == {"gpu": 8, "nvidia.com/gpu": 2, "jobs": 3}
    assert [(each.field, each.message) for each in tenantqueue.ineffective(stored)] == [
        ("spec.quota", 'Invalid value: "gpu": gpu is not a resource; did you mean nvidia.com/gpu?'),
        ("spec.quota.nvidia.com/gpu", f'Invalid value: "1.5": {resource_names.DIVIDED}'),
    ]
    with pytest.raises(InvalidObject):
        tenantqueue.read(queue(quota={"gpu": "lots"}))


@pytest.mark.parametrize(
    ("name", "quantity", "words"),
    [
        ("gpu", "8", "gpu is not a resource; did you mean nvidia.com/gpu?"),
        ("jbos", "8", "jbos is not a resource; did you mean jobs?"),
        ("frobs", "8", f"frobs is {resource_names.UNKNOWN}"),
        ("nvidia.com/gpu", "1.5", f"nvidia.com/gpu=1.5: {resource_names.DIVIDED}"),
        ("limits.cpu", "1", ""),
        ("memory", "1GB", "memory=1GB: '1GB' is not a quantity; did you mean 1G?"),
        ("cpu", "1500m", ""),
    ],
)
def test_limit_problem_explains_an_ineffective_limit(name: str, quantity: str, words: str) -> None:
    assert tenantqueue.limit_problem(name, quantity) == words
