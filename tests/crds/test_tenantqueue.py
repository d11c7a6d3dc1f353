"""A TenantQueue's weight, quota and word on who may use it."""

from typing import Any

import pytest

from crds import tenantqueue
from crds.errors import InvalidObject
from tests.crds.builders import queue


def test_defaults() -> None:
    spec = tenantqueue.parse({"metadata": {"name": "a"}}).spec
    assert (spec.weight, spec.open, spec.ordering, spec.aging_seconds) == (1, True, "BestEffortFIFO", 600)
    assert spec.quota_amounts == {}


def test_a_quota_is_read_in_canonical_names_and_units() -> None:
    spec = tenantqueue.parse(queue(quota={"requests.cpu": "1500m", "memory": "1Gi", "jobs": 3})).spec
    assert spec.quota_amounts == {"cpu": 1500, "memory": 1 << 30, "jobs": 3}


@pytest.mark.parametrize("name", ["pods", "count/pods", "requests.pods"])
def test_a_quota_of_pods_has_the_names_of_a_resource_quota(name: str) -> None:
    assert tenantqueue.parse(queue(quota={name: "10"})).spec.quota_amounts == {"pods": 10}


@pytest.mark.parametrize(("policy", "is_open"), [("None", True), ("Hold", False), ("HoldAndDrain", False)])
def test_a_stopped_queue_is_not_open(policy: str, is_open: bool) -> None:
    assert tenantqueue.parse(queue(stopPolicy=policy)).spec.open is is_open


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
        (queue(quota={"limits.cpu": 1}), "spec.quota"),
        (queue(quota={"count/jobs": 1}), "spec.quota"),
        (queue(quota={"pods": 1, "count/pods": 1}), "spec.quota"),
        (queue(quota={"cpu": 1, "requests.cpu": 1}), "spec.quota"),
        (queue(borrowingLimit={"cpu": "lots"}, cohort="c", quota={"cpu": 1}), "spec.borrowingLimit.cpu"),
        (queue(cohort="c"), "spec.cohort"),
        (queue(cohort="c", quota={}), "spec.cohort"),
        (queue(borrowingLimit={"cpu": 1}, quota={"cpu": 1}), "spec.borrowingLimit"),
        (queue(namespaces=["Team"]), "spec.namespaces[0]"),
        (queue(namespaceSelector={"matchLabels": {"tier": "?"}}), "spec.namespaceSelector.matchLabels.tier"),
        (queue(namespaceSelector={"matchExpressions": []}), "spec.namespaceSelector.matchExpressions"),
    ],
)
def test_refused_by_field(manifest: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObject) as error:
        tenantqueue.parse(manifest)
    assert {problem.field for problem in error.value.problems} == {field}
