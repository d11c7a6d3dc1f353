"""A queue pays for every pick of its jobs, except for picks that its admin withdrew before they were granted."""

from typing import Any

import pytest

from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.coordinator.leader.test_control_loop import seen
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk

SLOTS = 6
ROUNDS = 5
TIMEOUT = 100.0
ONE: dict[str, Any] = {"Master": desks.task()}


def test_a_tenant_whose_jobs_never_run_gets_no_more_than_its_share(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    settings: dict[str, Any] = {"admission_timeout": TIMEOUT, "admission_tries": 100, "pool": f"cpu={SLOTS}"}
    with Desk(embedded_cluster, clock, **settings) as desk:
        desk.queue("stuck", weight=1)
        desk.queue("works", weight=SLOTS - 1)
        for number in range(2 * SLOTS):
            desk.submit(f"stuck-{number}", namespace, "stuck", tasks=ONE)
        last = [desk.submit(f"works-{number}", namespace, "works", tasks=ONE) for number in range(ROUNDS * SLOTS)][-1]
        seen(desk, last)
        desk.begin()
        admitted: set[tuple[JobKey, int]] = set()
        for _ in range(ROUNDS):
            admitted |= one_turnover(desk, clock)
        got = sum(key.name.startswith("stuck") for key, _ in admitted)
        assert len(admitted) == ROUNDS * SLOTS
        assert abs(got - ROUNDS) <= 1


def one_turnover(desk: Desk, clock: Clock) -> set[tuple[JobKey, int]]:
    """End all admissions, and return the keys and attempts of their jobs. Jobs of queue works succeed; jobs of queue
    stuck exceed the time to start.
    """
    desk.until(lambda: len(desk.reserved()) == SLOTS and all(map(desk.pods_of, desk.reserved())))
    held = {(key, each.attempt) for key, each in desk.content.reservations.items()}
    working = [key for key, _ in held if key.name.startswith("works")]
    for key in working:
        desk.move(key, "Running")
    desk.until(lambda: all(desk.phase(key) == "Running" for key in working))
    clock.step(TIMEOUT + 1)
    for key in working:
        desk.move(key, "Succeeded")
    desk.until(lambda: not held & {(key, each.attempt) for key, each in desk.content.reservations.items()})
    return held


def picked_before_a_grant(desk: Desk, namespace: str) -> JobKey:
    """Return the first job of queue a. The pool has room for one job, no worker has written its pick, and jobs of a and
    b wait behind it."""
    desk.queue("a")
    desk.queue("b")
    first = desk.submit("a-1", namespace, "a")
    for name in ("a-2", "b-1", "b-2"):
        seen(desk, desk.submit(name, namespace, name[0]))
    desk.begin()
    desk.until(lambda: desk.reserved() == {first}, worker=False)
    return first


def names(desk: Desk) -> set[str]:
    return {key.name for key in desk.reserved()}


def test_a_queue_is_refunded_a_pick_that_its_admin_withdrew_before_the_grant(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=2") as desk:
        picked_before_a_grant(desk, namespace)
        embedded_cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "HoldAndDrain"}})

        def drained() -> bool:
            clock.step(0.5)
            return names(desk) == {"b-1"}

        desk.until(drained, worker=False)
        embedded_cluster.patch(TENANT_QUEUES, "a", {"spec": {"stopPolicy": "None"}})
        desk.until(lambda: desk.store.snapshot(1).queues[0].spec.open, worker=False)
        embedded_cluster.delete(TORCHJOBS, "b-1", namespace)
        desk.until(lambda: names(desk) - {"b-1"}, worker=False)
        assert names(desk) == {"a-1"}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"suspend": True}, id="suspended"),
        pytest.param({"schedulingPolicy": {"hold": True}}, id="held"),
        pytest.param({"torchTaskSpecs": {"Worker": None}}, id="edited"),
        pytest.param({"schedulingPolicy": {"priorityClassName": "invented"}}, id="out of order"),
    ],
)
def test_a_queue_pays_for_a_pick_that_the_owner_of_the_job_withdrew(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, spec: dict[str, Any]
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=2") as desk:
        first = picked_before_a_grant(desk, namespace)
        desk.change(first, **spec)
        before = desk.content.reservations[first]
        desk.until(lambda: any(each != before for each in desk.content.reservations.values()), worker=False)
        assert names(desk) == {"b-1"}


def test_a_queue_pays_for_a_pick_whose_job_was_deleted(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool="cpu=2") as desk:
        picked_before_a_grant(desk, namespace)
        embedded_cluster.delete(TORCHJOBS, "a-1", namespace)
        desk.until(lambda: names(desk) - {"a-1"}, worker=False)
        assert names(desk) == {"b-1"}
