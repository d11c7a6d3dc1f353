"""Scale requests on an API server: the leader makes the keys of requests due, and a worker carries the requests out."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crds import labels, scale_request, timestamps
from crds.api_resources import PODS, SCALE_INS, SCALE_OUTS, TORCHJOBS, Resource
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from reconcilers.views.containers import GATE
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk

POLICY = {"mode": "InPlaceRestart", "numMinReplicas": 1, "numMaxReplicas": 6}


@pytest.fixture
def desk(cluster: KubernetesCluster, namespace: str) -> Iterator[Desk]:
    # The API server sets the times at which requests are created.
    clock = Clock()
    clock.step(time.time() - clock.now)
    with Desk(cluster, clock, pool="cpu=8") as found:
        found.queue("a")
        found.begin()
        yield found
    desks.clear(cluster)


def until(desk: Desk, condition: Callable[[], object]) -> None:
    """Let coordinator and worker work until the condition holds. Time passes slowly: the cache of the worker may be
    behind that of the coordinator."""

    def look() -> object:
        desk.clock.step(0.05)
        return condition()

    desk.until(look)


def ask(desk: Desk, namespace: str, resource: Resource, name: str = "r", job: str = "train", **spec: Any) -> None:
    body = scale_request.manifest(resource.kind, job, **spec) | {"metadata": {"name": name}}  # type: ignore[arg-type]
    desk.cluster.create(resource, body, namespace)


def status(desk: Desk, namespace: str, resource: Resource, name: str = "r") -> Manifest:
    found: Manifest = desk.cluster.get(resource, name, namespace).get("status") or {}
    return found


def phase(desk: Desk, namespace: str, resource: Resource, name: str = "r") -> tuple[str, str]:
    found = status(desk, namespace, resource, name)
    return found.get("phase", ""), found.get("reason", "")


def run(desk: Desk, key: JobKey) -> None:
    """Let the waiting pods of a job run, and end the pods that are being deleted."""
    for name in desk.pods_of(key):
        pod = desk.cluster.get(PODS, name, key.namespace)
        if "deletionTimestamp" in pod["metadata"]:
            desks.remove(desk.cluster, PODS, name, key.namespace)
        elif pod["status"].get("phase") != "Running":
            is_shut = labels.START not in pod["metadata"]["annotations"] and "initContainers" in pod["spec"]
            at_gate = {"name": GATE, "state": {"running": {"startedAt": timestamps.format_time(desk.clock.now)}}}
            change = {"status": {"initContainerStatuses": [at_gate]} if is_shut else {"phase": "Running"}}
            desk.cluster.patch(PODS, name, change, key.namespace, subresource="status")


def running(desk: Desk, namespace: str, workers: int) -> JobKey:
    """Return an elastic job whose workers run."""
    key = desk.submit("train", namespace, "a", tasks={"Worker": desks.task(workers)}, torchElasticPolicy=POLICY)
    until(desk, lambda: len(desk.pods_of(key)) == workers)
    run(desk, key)
    until(desk, lambda: desk.phase(key) == "Running")
    return key


def wish(desk: Desk, key: JobKey) -> int:
    return desk.job(key).spec.worker_count


def until_over(desk: Desk, key: JobKey, resource: Resource, name: str = "r") -> Manifest:
    def look() -> bool:
        run(desk, key)
        return status(desk, key.namespace, resource, name).get("phase") in scale_request.OVER

    until(desk, look)
    return status(desk, key.namespace, resource, name)


def test_scale_out_and_scale_in_by_name_are_carried_out(desk: Desk, namespace: str) -> None:
    key = running(desk, namespace, 2)
    started = desk.job(key).status.start_time
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 2})
    found = until_over(desk, key, SCALE_OUTS)
    assert (found["phase"], found["from"], found["to"]) == ("Succeeded", 2, 4)
    assert found["pods"] == ["train-worker-2", "train-worker-3"]
    ask(desk, namespace, SCALE_INS, toDelete={"podNames": ["train-worker-1", "train-worker-3"]})
    found = until_over(desk, key, SCALE_INS)
    assert (found["phase"], found["from"], found["to"]) == ("Succeeded", 4, 2)
    assert desk.pods_of(key) == ["train-worker-0", "train-worker-2"]
    job = desk.job(key)
    assert (job.status.start_time, job.status.restart_count, job.status.disruptions) == (started, 0, 0)
    until(desk, lambda: desk.content.reservations[key].charge["cpu"] == 2000)


def test_scale_out_that_finds_no_room_is_undone(desk: Desk, namespace: str) -> None:
    key = running(desk, namespace, 4)
    other = desk.submit("other", namespace, "a", tasks={"Worker": desks.task(4)})
    until(desk, lambda: other in desk.reserved() and len(desk.pods_of(other)) == 4)
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 2}, timeoutSeconds=100)
    until(desk, lambda: wish(desk, key) == 6 and key in desk.waiting())
    desk.clock.step(101)
    assert until_over(desk, key, SCALE_OUTS)["reason"] == "TimedOut"
    until(desk, lambda: key not in desk.waiting())
    assert (wish(desk, key), len(desk.pods_of(key)), desk.phase(key)) == (4, 4, "Running")


def test_deleted_scale_out_is_undone_before_it_goes(desk: Desk, namespace: str) -> None:
    key = running(desk, namespace, 2)
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 2})
    until(desk, lambda: len(desk.pods_of(key)) == 4)
    desk.cluster.delete(SCALE_OUTS, "r", namespace)

    def is_undone() -> bool:
        run(desk, key)
        return not desk.cluster.list(SCALE_OUTS, namespace).items and len(desk.pods_of(key)) == 2

    until(desk, is_undone)
    assert wish(desk, key) == 2


def test_request_waits_for_its_job(desk: Desk, namespace: str) -> None:
    ask(desk, namespace, SCALE_INS, toDelete={"count": 1}, timeoutSeconds=100)
    until(desk, lambda: phase(desk, namespace, SCALE_INS) == ("Pending", ""))
    key = desk.submit("train", namespace, "a", tasks={"Worker": desks.task(2)}, torchElasticPolicy=POLICY)
    assert until_over(desk, key, SCALE_INS)["phase"] == "Succeeded"
    until(desk, lambda: len(desk.pods_of(key)) == wish(desk, key) == 1)


def test_request_without_a_job_fails_at_its_timeout_and_goes_after_its_time_to_live(desk: Desk, namespace: str) -> None:
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 1}, timeoutSeconds=100, ttlSecondsAfterFinished=50)
    until(desk, lambda: phase(desk, namespace, SCALE_OUTS) == ("Pending", ""))
    desk.clock.step(101)
    until(desk, lambda: phase(desk, namespace, SCALE_OUTS) == ("Failed", "UnknownJob"))
    desk.clock.step(51)
    until(desk, lambda: not desk.cluster.list(SCALE_OUTS, namespace).items)


def test_lost_work_queue_forgets_no_request(desk: Desk, namespace: str) -> None:
    """Only the work queue knows when the timeout of such a request is over. The leader offers the request to the queue
    again.
    """
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 1}, timeoutSeconds=100)
    until(desk, lambda: phase(desk, namespace, SCALE_OUTS) == ("Pending", ""))
    desk.lose()
    desk.begin(2)
    desk.clock.step(101)
    until(desk, lambda: phase(desk, namespace, SCALE_OUTS) == ("Failed", "UnknownJob"))


def test_finished_and_suspended_jobs_fail_their_requests(desk: Desk, namespace: str) -> None:
    key = desk.submit("train", namespace, "a", tasks={"Worker": desks.task(2)}, torchElasticPolicy=POLICY, suspend=True)
    until(desk, lambda: desk.phase(key) == "Suspended")
    ask(desk, namespace, SCALE_INS, "one", toDelete={"count": 1})
    until(desk, lambda: phase(desk, namespace, SCALE_INS, "one") == ("Failed", "JobSuspended"))
    desk.cluster.patch(TORCHJOBS, "train", {"status": {"phase": "Failed"}}, namespace, subresource="status")
    until(desk, lambda: desk.watches.jobs.get(namespace, "train").finished)  # type: ignore[union-attr]
    ask(desk, namespace, SCALE_INS, "two", toDelete={"count": 1})
    until(desk, lambda: phase(desk, namespace, SCALE_INS, "two") == ("Failed", "JobFinished"))


def test_requests_go_with_their_job(desk: Desk, namespace: str) -> None:
    key = running(desk, namespace, 2)
    ask(desk, namespace, SCALE_OUTS, toAdd={"count": 6 - 2})
    until(desk, lambda: wish(desk, key) == 6)
    found = desk.cluster.get(SCALE_OUTS, "r", namespace)["metadata"]
    assert found["finalizers"]
    desk.cluster.delete(TORCHJOBS, "train", namespace)
    # A real garbage collector runs in kube-controller-manager, which does not run in this test.
    with contextlib.suppress(errors.NotFound):
        desk.cluster.delete(SCALE_OUTS, "r", namespace)
    until(desk, lambda: not desk.cluster.list(SCALE_OUTS, namespace).items)
