"""On a real API server, a job that exceeds a ResourceQuota of its namespace stays out of the order until the quota has
room for the job.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.doctor import state_checks
from coordinator.doctor.collect import Collector
from crds.api_resources import RESOURCE_QUOTAS, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob.status import QueueStatus
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import Clock, Desk, task
from tests.support.waiting import until

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("server", ["real"], indirect=True)]


class Quota:
    """A ResourceQuota whose status the test writes, since the controller of quotas does not run here."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, **hard: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.hard: dict[str, str | None] = {**_named(hard)}
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": self.hard}}
        cluster.create(RESOURCE_QUOTAS, body, namespace)
        self.write(hard=self.hard, used=dict.fromkeys(self.hard, "0"))

    def raise_to(self, **hard: str) -> None:
        self.hard = dict.fromkeys(self.hard) | _named(hard)
        self.cluster.patch(RESOURCE_QUOTAS, "team", {"spec": {"hard": self.hard}}, self.namespace)
        self.write(hard=self.hard)

    def use(self, **used: str) -> None:
        """Set the used amounts in the status."""
        self.write(used=_named(used))

    def write(self, **status: Any) -> None:
        self.cluster.patch(RESOURCE_QUOTAS, "team", {"status": status}, self.namespace, subresource="status")

    def delete(self) -> None:
        self.cluster.delete(RESOURCE_QUOTAS, "team", self.namespace)


def _named(amounts: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): amount for name, amount in amounts.items()}


@pytest.fixture
def desk(cluster: KubernetesCluster, clock: Clock) -> Iterator[Desk]:
    with Desk(cluster, clock) as desk:
        yield desk


def limited(count: int, memory: str) -> dict[str, Any]:
    """Return workers with a limit, which is not part of a charge."""
    found = task(count)
    found["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1", "memory": memory}
    return {"Worker": found}


def waits(desk: Desk, key: JobKey) -> QueueStatus:
    found = desk.job(key).status.queue
    return found or QueueStatus()


def told(desk: Desk, key: JobKey) -> str:
    desk.write_reasons()
    return waits(desk, key).reason


def kept_out(desk: Desk, key: JobKey) -> bool:
    """Return whether a job holds no room, is in no order, and has NamespaceQuota as the reason in its status."""
    return key not in desk.reserved() | desk.waiting() and told(desk, key) == "NamespaceQuota"


def test_a_refused_job_gives_its_room_back_and_runs_once_the_quota_has_room(
    desk: Desk, namespace: str, clock: Clock
) -> None:
    desk.queue("a", quota={"jobs": 1}, ordering="StrictFIFO")
    quota = Quota(desk.cluster, namespace, limits_memory="4Gi")
    desk.begin()
    large = desk.submit("large", namespace, "a", tasks=limited(3, "2Gi"))
    desk.until(lambda: kept_out(desk, large))
    assert not desk.pods_of(large)
    assert desk.job(large).status.attempt == 1
    message = waits(desk, large).message
    assert "ResourceQuota team" in message
    assert "limits.memory: asks 6Gi" in message
    assert "hard 4Gi" in message
    assert "can never hold" in message

    quota.use(limits_memory="0")
    other = desk.submit("other", namespace, "a", tasks=limited(1, "1Gi"))
    desk.until(lambda: len(desk.pods_of(other)) == 1)
    desk.move(other, "Running")
    desk.until(lambda: desk.phase(other) == "Running")
    clock.step(3600)
    desk.term.resync()
    desk.until(lambda: not desk.watches.quota_jobs.take_due() and desk.reserved() == {other})
    assert desk.job(large).status.attempt == 1, "the job is not picked while the quota has no room for it"
    assert not desk.waiting()

    desk.cluster.delete(TORCHJOBS, "other", namespace)
    desk.until(lambda: desk.reserved() == set())
    quota.raise_to(limits_memory="6Gi")
    quota.use(limits_memory="0")
    desk.until(lambda: len(desk.pods_of(large)) == 3)
    assert desk.job(large).status.attempt == 2
    desk.move(large, "Running")
    desk.until(lambda: desk.phase(large) == "Running")
    assert desk.job(large).status.queue is None


def test_a_job_whose_requests_exceed_the_quota_is_not_picked(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    quota = Quota(desk.cluster, namespace, requests_cpu="3")
    quota.use(requests_cpu="2")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: kept_out(desk, key))
    assert desk.job(key).status.attempt == 0
    assert "requests.cpu: asks 2, used 2, hard 3" in waits(desk, key).message
    quota.use(requests_cpu="1")
    desk.until(lambda: len(desk.pods_of(key)) == 2)
    assert desk.job(key).status.attempt == 1


@pytest.mark.parametrize("how", ["deleted", "raised", "edited"])
def test_a_job_refused_for_an_unpredictable_reason_pauses_until_a_change(
    desk: Desk, namespace: str, clock: Clock, how: str
) -> None:
    """The template sets no limits although this ResourceQuota requires them, and this refusal shows only when a pod is
    created.
    """
    desk.queue("a", quota={"jobs": 1})
    quota = Quota(desk.cluster, namespace, limits_memory="100Gi")
    desk.begin()
    key = desk.submit("train", namespace, "a", tasks={"Worker": task()})
    for attempt in range(1, 4):
        desk.until(lambda: kept_out(desk, key) and desk.job(key).status.attempt == attempt)  # noqa: B023
        assert "must specify limits.memory" in desk.job(key).status.conditions[0].message
        if attempt < 3:
            assert "must specify limits.memory for: " in waits(desk, key).message
            clock.step(0.7 * 60 * 2 ** (attempt - 1))
            desk.until(lambda: not desk.term.step())
            assert kept_out(desk, key)
            clock.step(60 * 2 ** (attempt - 1))
    if how == "deleted":
        quota.delete()
    elif how == "raised":
        quota.raise_to(requests_cpu="5")
        quota.use(requests_cpu="0")
    else:
        desk.cluster.patch(TORCHJOBS, "train", {"spec": {"torchTaskSpecs": limited(1, "1Gi")}}, namespace)
    desk.until(lambda: len(desk.pods_of(key)) == 1)
    assert desk.job(key).status.attempt == 4


def test_as_many_refused_jobs_run_as_fit_the_quota_together(desk: Desk, namespace: str, clock: Clock) -> None:
    desk.queue("a")
    quota = Quota(desk.cluster, namespace, limits_memory="4Gi")
    quota.use(limits_memory="4Gi")
    desk.begin()
    keys = [desk.submit(f"j{number}", namespace, "a", tasks=limited(2, "1Gi")) for number in range(5)]
    desk.until(lambda: all(kept_out(desk, key) for key in keys))
    assert [desk.job(key).status.attempt for key in keys] == [1] * 5
    clock.step(10)
    quota.use(limits_memory="0")
    desk.until(lambda: sum(len(desk.pods_of(key)) for key in keys) == 4)
    desk.until(lambda: not desk.term.step())
    assert [desk.job(key).status.attempt for key in keys] == [2, 2, 1, 1, 1]
    for key in keys[:2]:
        desk.move(key, "Running")
    desk.until(lambda: all(desk.phase(key) == "Running" for key in keys[:2]))
    desk.cluster.delete(TORCHJOBS, "j0", namespace)
    quota.use(limits_memory="2Gi")
    desk.until(lambda: len(desk.pods_of(keys[2])) == 2)
    assert [desk.job(key).status.attempt for key in keys[1:]] == [2, 2, 1, 1]


def test_a_refused_job_stays_out_of_the_order_after_a_loss_of_the_queues(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    quota = Quota(desk.cluster, namespace, limits_memory="4Gi")
    quota.use(limits_memory="3Gi")
    desk.begin()
    key, then = (desk.submit(name, namespace, "a", tasks=limited(2, "1Gi")) for name in ("first", "second"))
    desk.until(lambda: kept_out(desk, key) and kept_out(desk, then))
    desk.lose()
    desk.begin(2)
    assert desk.waiting() == set()
    assert desk.reserved() == set()
    desk.until(lambda: not desk.term.step())
    assert desk.job(key).status.attempt == 1
    looker = Collector(desk.cluster, desk.store, desk.work, "default")
    codes = {each.code for each in state_checks.compare(looker.collect())}
    assert not codes & {"missing-entry", "stray-entry"}


def test_a_quota_without_a_computed_status_has_no_room(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}}
    desk.cluster.create(RESOURCE_QUOTAS, {**body, "spec": {"hard": {"pods": "4"}}}, namespace)
    desk.cluster.patch(RESOURCE_QUOTAS, "team", {"status": {"hard": {"pods": "4"}}}, namespace, subresource="status")
    desk.begin()
    key = desk.submit("train", namespace, "a")
    desk.until(lambda: kept_out(desk, key))
    assert "pods: asks 2, used not known yet, hard 4" in waits(desk, key).message
    status = {"status": {"used": {"pods": "0"}}}
    desk.cluster.patch(RESOURCE_QUOTAS, "team", status, namespace, subresource="status")
    desk.until(lambda: len(desk.pods_of(key)) == 2)


def test_a_queue_pays_for_a_refused_job(cluster: KubernetesCluster, clock: Clock, namespace: str) -> None:
    with Desk(cluster, clock, pool="cpu=1") as desk:
        desk.queue("a")
        desk.queue("b")
        Quota(cluster, namespace, limits_memory="1Gi")
        refused = desk.submit("a-1", namespace, "a", tasks=limited(1, "2Gi"))
        same = desk.submit("a-2", namespace, "a", tasks=limited(1, "1Mi"))
        other = desk.submit("b-first", namespace, "b", tasks=limited(1, "1Mi"))
        until(lambda: len(desk.watches.jobs.values()) == 3 and len(desk.watches.queues.values()) == 2)
        desk.begin()
        desk.until(lambda: desk.job(refused).status.attempt == 1)
        desk.until(lambda: desk.reserved() - {refused})
        assert desk.reserved() == {other}
        assert desk.waiting() == {same}
        assert kept_out(desk, refused)
