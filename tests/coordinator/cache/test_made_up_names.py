"""Invented names in jobs: resources that no node has, and queues that do not exist. The cost of such a name stays with
its job.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cache import job_waits
from coordinator.cache.watches import Watches
from crds.api_resources import NODES, TORCHJOBS
from kube.api import WatchEvent
from kube.client import KubernetesCluster
from tests.support.clock import Clock
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Desk


def watches() -> Watches:
    server: Any = SimpleNamespace(serves=bool)
    return Watches(server, nodes=False, clock=Clock())


def job(number: int, queue: str, resource: str, **policy: Any) -> dict[str, Any]:
    container = {"name": "torch", "image": "torch:1", "resources": {"requests": {resource: 1}}}
    tasks = {"Master": {"numTasks": 1, "template": {"spec": {"containers": [container]}}}}
    found = desks.manifest(f"job-{number}", queue, tasks, schedulingPolicy=policy)
    identity = {
        "uid": str(number),
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return found | {"metadata": found["metadata"] | identity}


def show(seen: Watches, manifest: dict[str, Any]) -> None:
    seen.jobs._reflector._sink.apply(
        WatchEvent("MODIFIED", manifest | {"metadata": manifest["metadata"] | {"namespace": "team"}})
    )


@pytest.mark.parametrize("held", [False, True])
def test_invented_resources_change_no_settings(held: bool) -> None:
    seen = watches()
    show(seen, job(0, "default", "cpu"))
    assert seen.take_settings_changed(0.0)
    for number in range(1, 50):
        show(seen, job(number, "default", f"example.org/made-up-{number}", hold=held))
    assert not seen.take_settings_changed(0.0)


def test_the_cache_of_shared_values_does_not_grow_with_invented_names() -> None:
    job_waits._shared.cache_clear()
    for number in range(20):
        many = {f"example.org/{number}-{at}": 1 for at in range(60)}
        assert job_waits.shared_charge(many) == many
    assert job_waits._shared.cache_info().currsize == 0
    assert job_waits.shared_charge({"cpu": 1}) is job_waits.shared_charge({"cpu": 1})


def test_a_queue_is_implied_only_by_jobs_that_are_not_held() -> None:
    seen = watches()
    for number in range(50):
        show(seen, job(number, "team", "cpu", hold=True))
    assert not seen.take_settings_changed(0.0)
    assert seen.implied.recount(seen.jobs.values()) == frozenset()
    show(seen, job(7, "team", "cpu"))
    assert seen.take_settings_changed(0.0)
    assert seen.implied.recount(seen.jobs.values()) == {"team"}
    show(seen, job(7, "team", "cpu", hold=True))
    assert seen.implied.recount(seen.jobs.values()) == frozenset()


def test_an_invented_queue_is_not_implied_and_changes_no_settings() -> None:
    seen = watches()
    for number in range(50):
        show(seen, job(number, f"queue-{number}", "cpu"))
    assert not seen.take_settings_changed(0.0)
    assert seen.implied.recount(seen.jobs.values()) == frozenset()
    for number, queue in enumerate(("team", "default")):
        show(seen, job(100 + number, queue, "cpu"))
    assert seen.implied.recount(seen.jobs.values()) == {"team", "default"}


def test_an_admitted_job_keeps_its_invented_queue() -> None:
    seen, held = watches(), job(1, "invented", "cpu")
    admission = {"queue": "invented", "attempt": 1, "epoch": 1, "charge": {"cpu": 1000, "jobs": 1, "pods": 2}}
    show(
        seen, held | {"status": {"phase": "Running", "admission": {**admission, "admittedAt": "2026-01-01T00:00:00Z"}}}
    )
    assert seen.implied.recount(seen.jobs.values()) == {"invented"}
    show(seen, held | {"status": {"phase": "Queued"}})
    assert seen.implied.recount(seen.jobs.values()) == frozenset()


def test_without_implicit_queues_an_invented_queue_changes_no_settings(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    with Desk(embedded_cluster, clock) as desk:
        desk.begin()
        desk.until(lambda: not desk.term.step())
        desk.watches.take_settings_changed(0.0)
        keys = [desk.submit(f"job-{number}", namespace, f"made-up-{number}") for number in range(5)]
        desk.until(lambda: all(map(desk.watches.job, keys)), worker=False)
        assert not desk.watches.take_settings_changed(0.0)


def test_a_job_that_requests_a_resource_of_no_node_waits_and_others_run(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    status = {"allocatable": {"cpu": "8", "pods": "9"}, "conditions": [{"type": "Ready", "status": "True"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": status}
    embedded_cluster.create(NODES, node)
    try:
        with Desk(embedded_cluster, clock, pool="nodes") as desk:
            desk.queue("a", quota={"jobs": 9})
            desk.begin()
            made_up = job(1, "a", "example.org/made-up")["spec"]["torchTaskSpecs"]
            odd = desk.cluster.create(TORCHJOBS, desks.manifest("odd", "a", made_up), namespace)["metadata"]
            plain = desk.submit("plain", namespace, "a")
            desk.until(lambda: desk.reserved() == {plain})
            assert {key.uid for key in desk.waiting()} == {odd["uid"]}
            assert desk.store.snapshot(0).pool == {"cpu": 8000, "pods": 9, "*": 0}
    finally:
        embedded_cluster.delete(NODES, "small")
