"""A job whose pods a ResourceQuota refuses on a real API server gives its resources back at once."""

from typing import Any

import pytest

from crds.api_resources import EVENTS, POD_GROUPS, RESOURCE_QUOTAS
from kube.client import KubernetesCluster
from tests.reconcilers.conftest import benches
from tests.support.coordinator import kinds
from tests.support.reconcilers.bench import Bench
from tests.support.reconcilers.builders import task, template

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("server", ["real"], indirect=True)]
LIMITED = template(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "2Gi"}})


def quota(bench: Bench, used: dict[str, str] | None = None, name: str = "team", **hard: str) -> None:
    """Create a ResourceQuota and write its status, because no quota controller runs here."""
    limits = {each.replace("_", "."): amount for each, amount in hard.items()}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": limits}}
    bench.cluster.create(RESOURCE_QUOTAS, body, bench.namespace)
    raised(bench, limits, {each: "0" for each in limits} | (used or {}), name)


def raised(bench: Bench, hard: dict[str, str], used: dict[str, str] | None = None, name: str = "team") -> None:
    """Change the limits of the ResourceQuota."""
    status: dict[str, Any] = {"hard": hard} | ({"used": used} if used is not None else {})
    bench.cluster.patch(RESOURCE_QUOTAS, name, {"spec": {"hard": hard}}, bench.namespace)
    bench.cluster.patch(RESOURCE_QUOTAS, name, {"status": status}, bench.namespace, subresource="status")


def go(bench: Bench, times: int = 6) -> None:
    """Reconcile repeatedly and remove the terminating pods."""
    for _ in range(times):
        bench.reconcile()
        going = [pod.name for pod in bench.pods.indexed(bench.key.uid) if pod.deleting]
        bench.remove(*going)


def test_refused_job_is_queued_without_pods_and_names_the_quota(bench: Bench) -> None:
    quota(bench, pods="2")
    bench.submit({"Worker": task(4)})
    bench.pick()
    go(bench)
    assert bench.names() == []
    status = bench.job.status
    assert (status.phase, status.admission, status.attempt) == ("Queued", None, 1)
    reason, message = bench.true_condition("Queued")
    assert reason == "NamespaceQuota"
    assert "exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2" in message
    assert status.queue is not None
    assert status.queue.refused_by is not None
    assert (status.queue.refused_by.name, status.queue.refused_by.hard) == ("team", {"pods": "2"})
    assert status.queue.not_before is not None
    told = [each for each in bench.cluster.list(EVENTS, bench.namespace).items if each["reason"] == "NamespaceQuota"]
    assert len(told) == 1


def test_refusal_of_first_pod_costs_one_status_write(bench: Bench) -> None:
    quota(bench, limits_memory="1Gi")
    bench.submit({"Worker": task(2, template=LIMITED)})
    bench.pick()
    before = bench.counting.calls["patch TorchJob"]
    bench.reconcile()
    assert bench.true_condition("Queued")[0] == "NamespaceQuota"
    assert bench.counting.calls["patch TorchJob"] - before == 2, "Admitted and sent back are two writes"
    assert bench.names() == []
    go(bench)
    assert bench.names() == [], "the attempt is over"


def test_existing_service_and_pods_are_not_refused_by_full_quota(bench: Bench) -> None:
    quota(bench, services="1", pods="2")
    bench.submit({"Worker": task(2)})
    bench.pick()
    bench.reconcile(times=3)
    assert len(bench.names()) == 2
    assert bench.services() == ["digits-worker-0"]
    bench.move("Running")
    bench.reconcile()
    assert bench.job.status.phase == "Running"
    raised(bench, {"services": "1", "pods": "3"})  # the limit of services is reached, the limit of pods is not
    bench.change(suspend=True)
    go(bench, 3)
    raised(bench, {"services": "1", "pods": "3"}, {"services": "1", "pods": "0"})
    bench.change(suspend=False)
    bench.pick(attempt=2)
    go(bench, 3)
    assert bench.services() == ["digits-worker-0"]
    assert len(bench.names()) == 2
    assert bench.job.admission is not None


def test_refused_job_loses_its_services(bench: Bench) -> None:
    quota(bench, services="1", pods="1")
    bench.submit({"Worker": task(2)})
    bench.pick()
    go(bench)
    assert bench.services() == []
    assert bench.true_condition("Queued")[0] == "NamespaceQuota"


@pytest.mark.parametrize("hard", [{"services": "0"}, {"count/services": "0"}, {"count/pods": "1"}])
def test_quota_on_object_counts_sends_job_back(bench: Bench, hard: dict[str, str]) -> None:
    quota(bench, **hard)
    bench.submit({"Worker": task(2)})
    bench.pick()
    go(bench)
    assert bench.names() == []
    assert bench.true_condition("Queued")[0] == "NamespaceQuota"


def test_quota_that_requires_missing_limits_sends_job_back(bench: Bench) -> None:
    quota(bench, limits_memory="100Gi")
    bench.submit({"Worker": task()})
    bench.pick()
    go(bench)
    reason, message = bench.true_condition("Queued")
    assert reason == "NamespaceQuota"
    assert "must specify limits.memory" in message
    waits = bench.job.status.queue
    assert waits is not None
    assert waits.refused_by is not None
    assert waits.refused_by.hard == {"limits.memory": "for: torch"}


def test_running_job_is_sent_back_when_quota_refuses_a_replacement_pod(bench: Bench) -> None:
    quota(bench, pods="2")
    bench.submit({"Worker": task(2)})
    bench.pick()
    bench.reconcile(times=3)
    bench.move("Running")
    bench.reconcile()
    assert bench.job.status.phase == "Running"
    raised(bench, {"pods": "1"})
    bench.move("Failed", "digits-worker-1", exit_code=1)
    go(bench, 8)
    assert bench.names() == []
    assert bench.true_condition("Queued")[0] == "NamespaceQuota"
    assert bench.job.status.restart_count == 1


def test_job_with_its_minimum_of_pods_keeps_its_admission(bench: Bench) -> None:
    quota(bench, pods="3")
    bench.submit({"Worker": task(4)}, minMembers={"Worker": 2})
    bench.pick()
    bench.reconcile(times=3)
    assert len(bench.names()) == 3
    reason, message = bench.true_condition("Admitted")
    assert reason == "PodsForbidden"
    assert "exceeded quota" in message
    bench.move("Running")
    bench.reconcile(times=2)
    assert bench.job.status.phase == "Running"
    before = bench.counting.calls["patch TorchJob"]
    again = bench.reconcile(times=3)
    assert bench.counting.calls["patch TorchJob"] - before <= 1
    assert again is not None
    assert again <= 60
    raised(bench, {"pods": "4"})
    bench.reconcile(times=2)
    assert len(bench.names()) == 4


def test_pauses_double_while_the_same_limits_refuse_job(bench: Bench) -> None:
    quota(bench, limits_memory="100Gi")  # the template does not have this limit
    bench.submit({"Worker": task()})
    pauses, times = [], []
    for attempt in range(1, 5):
        bench.pick(attempt=attempt)
        go(bench, 2)
        waits = bench.job.status.queue
        assert waits is not None
        assert waits.refused_by is not None
        assert waits.since is not None
        assert waits.not_before is not None
        times.append(waits.refused_by.times)
        pauses.append((waits.not_before - waits.since).total_seconds())
    assert times == [1, 2, 3, 4]
    longest = [min(600, 60 * 2**n) for n in range(4)]
    assert all(0.75 * most - 1 <= pause <= most for most, pause in zip(longest, pauses, strict=True)), pauses


@pytest.mark.parametrize("name", ["count/podgroups.scheduling.volcano.sh", "pods"])
def test_refused_gang_loses_its_group_and_admission(cluster: KubernetesCluster, namespace: str, name: str) -> None:
    kinds.install_gangs(cluster)
    for bench in benches(cluster, namespace, gang_scheduler="volcano"):
        quota(bench, **{name: "0"})
        bench.submit({"Worker": task(2)})
        bench.pick()
        bench.reconcile()
        for group in cluster.list(POD_GROUPS, namespace).items:
            change = {"status": {"phase": "Inqueue"}}
            cluster.patch(POD_GROUPS, group["metadata"]["name"], change, namespace)
        go(bench)
        assert bench.true_condition("Queued")[0] == "NamespaceQuota"
        assert bench.names() == []
        assert cluster.list(POD_GROUPS, namespace).items == []
        assert bench.job.admission is None
