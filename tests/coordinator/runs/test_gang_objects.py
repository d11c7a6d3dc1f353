"""The warnings about jobs whose gang scheduler, or whose queue of the gang scheduler, does not exist in the cluster."""

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli import submission
from coordinator.runs import obstacles
from coordinator.runs.submission_findings import Vetting
from crds.api_resources import ALPHA_POD_GROUPS, GANG_QUEUES, POD_GROUPS, Resource
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import manifest

CLOSED = {"closed": {"status": {"state": "Closed"}}, "open": {"status": {"state": "Open"}}}


def cluster_with(*served: Resource, queues: dict[str, Any] | None = None) -> Any:
    """Return a cluster. Without `queues`, the cluster forbids reading queues."""

    def get(resource: Resource, name: str) -> Any:
        assert resource == GANG_QUEUES
        if queues is None:
            raise errors.Forbidden("not allowed")
        if name not in queues:
            raise errors.NotFound(name)
        return queues[name]

    return SimpleNamespace(serves=lambda resource: resource in served, get=get)


@pytest.mark.parametrize(
    ("policy", "served", "queues", "codes"),
    [
        ({}, (), CLOSED, []),
        ({"gangScheduler": "none"}, (), CLOSED, []),
        ({"gangScheduler": "koordinator"}, (), CLOSED, []),
        ({"gangScheduler": "coscheduling"}, (POD_GROUPS,), CLOSED, ["PodGroupMissing"]),
        ({"gangScheduler": "kubernetes"}, (ALPHA_POD_GROUPS,), CLOSED, []),
        ({"gangScheduler": "kubernetes"}, (), CLOSED, ["PodGroupMissing"]),
        ({"gangScheduler": "volcano", "gangQueue": "nowhere"}, (POD_GROUPS,), CLOSED, ["GangQueueMissing"]),
        ({"gangQueue": "nowhere"}, (POD_GROUPS,), CLOSED, ["GangQueueMissing"]),
        ({"gangQueue": "nowhere"}, (), CLOSED, []),
        ({"gangQueue": "closed"}, (POD_GROUPS,), CLOSED, ["GangQueueClosed"]),
        ({"gangQueue": "open"}, (POD_GROUPS,), CLOSED, []),
        ({"gangQueue": "nowhere"}, (POD_GROUPS,), None, []),
    ],
)
def test_only_what_a_gang_lacks_is_found(
    policy: dict[str, str], served: tuple[Resource, ...], queues: dict[str, Any] | None, codes: list[str]
) -> None:
    body = {"spec": {"schedulingPolicy": policy}}
    found = list(obstacles.of_gangs(cluster_with(*served, queues=queues), body))
    assert [each.code for each in found] == codes
    assert not any(each.firm for each in found)


def test_submission_warns_and_takes_the_job(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    kinds.install_gangs(embedded_cluster)
    bodies = [
        manifest("one", schedulingPolicy={"gangScheduler": "coscheduling"}),
        manifest("two", schedulingPolicy={"gangScheduler": "volcano", "gangQueue": "nowhere"}),
    ]
    told: list[str] = []
    documents = submission.parse([("jobs.yaml", body) for body in bodies], namespace, "/home/me")
    assert len(submission.submit(embedded_cluster, documents, Vetting(tell=told.append), dry_run=False)) == 2
    assert [each.partition(": spec.schedulingPolicy.")[2].partition(":")[0] for each in told] == [
        "gangScheduler",
        "gangQueue",
    ]
    assert "the cluster has no podgroups.scheduling.x-k8s.io" in told[0]
    assert "Volcano has no queue nowhere" in told[1]
