"""Pods without requests take room: each pod counts against quotas and pools that limit pods."""

from typing import Any

import pytest

from coordinator.cache import views
from crds import labels
from crds.api_resources import NODES
from kube.client import KubernetesCluster
from tests.support.clock import Clock
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk

BARE = {"numTasks": 3, "template": {"spec": {"containers": [{"name": "torch", "image": "torch:1"}]}}}


def three_pods(**more: Any) -> dict[str, Any]:
    return {"tasks": {"Worker": {**BARE, "dependsOn": [], **more}}}


@pytest.mark.parametrize("name", ["pods", "count/pods"])
def test_a_quota_of_pods_limits_jobs_without_requests(desk: Desk, namespace: str, name: str) -> None:
    desk.queue("a", quota={name: 4})
    desk.begin()
    first = desk.submit("first", namespace, "a", **three_pods())
    desk.until(lambda: desk.reserved() == {first})
    second = desk.submit("second", namespace, "a", **three_pods())
    desk.until(lambda: desk.waiting() == {second} and len(desk.pods_of(first)) == 3)
    assert desk.reserved() == {first}
    single = desk.submit("third", namespace, "a", **three_pods(numTasks=1))
    desk.until(lambda: desk.reserved() == {first, single})
    assert desk.content.usage["a"]["pods"] == 4


def test_a_pool_of_nodes_limits_the_number_of_pods(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    status = {"allocatable": {"cpu": "64", "pods": "5"}, "conditions": [{"type": "Ready", "status": "True"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": status}
    embedded_cluster.create(NODES, node)
    try:
        with Desk(embedded_cluster, clock, pool="nodes") as desk:
            desk.queue("a", quota={"jobs": 9})
            desk.begin()
            first = desk.submit("first", namespace, "a", **three_pods())
            desk.until(lambda: desk.reserved() == {first})
            second = desk.submit("second", namespace, "a", **three_pods())
            desk.until(lambda: desk.waiting() == {second})
            assert desk.reserved() == {first}
    finally:
        embedded_cluster.delete(NODES, "small")


def test_a_pod_of_an_earlier_version_counts_as_one_pod() -> None:
    owner = {"apiVersion": "train.distributed.io/v1alpha1", "kind": "TorchJob", "name": "train", "uid": "u1"}
    metadata = {
        "namespace": "team",
        "name": "train-master-0",
        "labels": {labels.JOB_NAME: "train", labels.JOB_UID: "u1", labels.QUEUE: "a", labels.ATTEMPT: "1"},
        "annotations": {labels.CHARGE: '{"cpu":1000}'},
        "ownerReferences": [owner | {"controller": True}],
    }
    body = {"metadata": metadata, "spec": desks.task()["template"]["spec"]}
    assert views.pod_view(body).demand == {"cpu": 1000, "pods": 1}
