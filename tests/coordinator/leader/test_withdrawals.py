"""A queue pays for the room that the pool keeps for one of its jobs, whatever the owner does to the job meanwhile."""

from typing import Any

import pytest

from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from tests.coordinator.leader.test_control_loop import seen
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk

SLOTS = 4
ONE: dict[str, Any] = {"Master": desks.task()}
ALL: dict[str, Any] = {"Master": desks.task(), "Worker": desks.task(SLOTS - 1)}


def kept_for(desk: Desk, namespace: str) -> JobKey:
    """Return a job of queue a that is as large as the pool. Room is kept for it, since jobs of queue b went first
    twice."""
    desk.queue("a")
    desk.queue("b")
    small = [desk.submit(f"b-{number}", namespace, "b", tasks=ONE) for number in range(9)]
    seen(desk, small[-1])
    desk.begin()
    desk.until(lambda: desk.reserved() == set(small[:SLOTS]))
    large = desk.submit("large", namespace, "a", tasks=ALL)
    seen(desk, large)
    for number in range(3):
        end(desk, small[number])
    desk.until(lambda: kept(desk))
    next_one = desk.submit("small", namespace, "a", tasks=ONE)
    desk.until(lambda: next_one in desk.waiting())
    return large


def end(desk: Desk, job: JobKey) -> None:
    """Let a job succeed, and wait until its room is free."""
    desk.until(lambda: desk.pods_of(job))
    desk.move(job, "Succeeded")
    desk.until(lambda: job not in desk.reserved())


def kept(desk: Desk) -> bool:
    """Return whether the store keeps room for a job of queue a."""
    record = desk.content.overtaken.get("a")
    return record is not None and record.kept is not None


def suspend(desk: Desk, job: JobKey) -> None:
    desk.change(job, suspend=True)


def hold(desk: Desk, job: JobKey) -> None:
    desk.change(job, schedulingPolicy={"hold": True})


def shrink(desk: Desk, job: JobKey) -> None:
    desk.change(job, torchTaskSpecs={"Worker": desks.task(SLOTS - 2)})


def move(desk: Desk, job: JobKey) -> None:
    desk.change(job, schedulingPolicy={"queue": "b"})


def delete(desk: Desk, job: JobKey) -> None:
    desk.cluster.delete(TORCHJOBS, job.name, job.namespace)


@pytest.mark.parametrize("withdraw", [suspend, hold, shrink, move, delete])
def test_a_queue_pays_for_kept_room_when_the_owner_withdraws_the_job(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, withdraw: Any
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={SLOTS}", cost="cpu") as desk:
        job = kept_for(desk, namespace)
        withdraw(desk, job)
        desk.until(lambda: not kept(desk) and len(desk.reserved()) == SLOTS)
        assert {key.name[:2] for key in desk.reserved()} == {"b-"}, "the queue has had its turn"
