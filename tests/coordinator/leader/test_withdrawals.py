"""A queue pays for the time for which room of the pool is idle for one of its jobs, whatever the owner of the job
does.
"""

from typing import Any

import pytest

from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues.rules import LEAST_PATIENCE
from tests.coordinator.leader.test_control_loop import seen
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk

SLOTS = 4
ONE: dict[str, Any] = {"Master": desks.task()}
ALL: dict[str, Any] = {"Master": desks.task(), "Worker": desks.task(SLOTS - 1)}


def keep_room(desk: Desk, namespace: str, **of_small: Any) -> tuple[JobKey, list[JobKey]]:
    """Return a job of queue a that is as large as the pool, and the jobs of queue b. Room is kept for the large job,
    since jobs of queue b were picked first until its patience was over.
    """
    desk.queue("a")
    desk.queue("b")
    small = [desk.submit(f"b-{number}", namespace, "b", tasks=ONE, **of_small) for number in range(SLOTS + 5)]
    seen(desk, small[-1])
    desk.begin()
    desk.until(lambda: desk.reserved() == set(small[:SLOTS]))
    large = desk.submit("large", namespace, "a", tasks=ALL)
    seen(desk, large)
    for number in range(2):
        end(desk, small[number])
    desk.clock.step(LEAST_PATIENCE + 1)
    desk.until(lambda: kept(desk))
    return large, small


def kept_for(desk: Desk, namespace: str) -> JobKey:
    """Return a job of queue a for which room is kept; a job of queue a waits behind it."""
    large, _ = keep_room(desk, namespace)
    next_one = desk.submit("small", namespace, "a", tasks=ONE)
    desk.until(lambda: next_one in desk.waiting())
    return large


def run(desk: Desk, jobs: list[JobKey]) -> None:
    """Let the pods of jobs run, and wait until the jobs are Running."""
    for job in jobs:
        desk.until(lambda job=job: desk.pods_of(job))
        desk.move(job, "Running")
        desk.until(lambda job=job: desk.phase(job) == "Running")


def end(desk: Desk, job: JobKey) -> None:
    """Let a job succeed, and wait until its room is free."""
    desk.until(lambda: desk.pods_of(job))
    desk.move(job, "Succeeded")
    desk.until(lambda: job not in desk.reserved())


def kept(desk: Desk) -> bool:
    """Return whether the store keeps room for a job of queue a."""
    record = desk.content.overtaken.get("a")
    return record is not None and record.kept is not None


def paid(desk: Desk) -> int:
    """Return the amount that queue a was charged so far."""
    account = desk.content.accounts.get("a")
    return 0 if account is None else account.base


def test_room_is_kept_for_a_job_that_has_waited_for_as_long_as_half_of_what_runs_is_old(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={SLOTS}", cost="cpu") as desk:
        for name in ("a", "b"):
            desk.queue(name)
        small = [desk.submit(f"b-{number}", namespace, "b", tasks=ONE) for number in range(SLOTS + 3)]
        seen(desk, small[-1])
        desk.begin()
        run(desk, small[:SLOTS])
        desk.clock.step(600)
        seen(desk, desk.submit("large", namespace, "a", tasks=ALL))
        end(desk, small[0])
        run(desk, [small[SLOTS]])
        desk.clock.step(599)
        end(desk, small[1])
        desk.until(lambda: small[SLOTS + 1] in desk.reserved())
        assert not kept(desk), "half of the running jobs are 1199 s old"
        desk.begin(2)
        for number in (2, 3):
            end(desk, small[number])
        desk.clock.step(6)
        desk.until(lambda: kept(desk))


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
def test_a_queue_pays_for_kept_room_until_the_owner_withdraws_the_job(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, withdraw: Any
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={SLOTS}", cost="cpu") as desk:
        job = kept_for(desk, namespace)
        idle(desk)
        assert charge_for(desk, 10) > 0
        withdraw(desk, job)
        desk.until(lambda: not kept(desk) and len(desk.reserved()) == SLOTS)


def test_a_new_leader_goes_on_with_what_is_paid_for_kept_room(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with Desk(embedded_cluster, clock, pool=f"cpu={SLOTS}", cost="cpu") as desk:
        keep_room(desk, namespace)
        idle(desk)
        charge_for(desk, 6)
        second = charge_for(desk, 1)
        desk.begin(2)
        desk.until(desk.watches.ended.holds)
        before = paid(desk)
        desk.term.step()
        assert paid(desk) == before, "nothing is paid twice"
        assert charge_for(desk, 1) == second, "the new leader knows for how long jobs held their room"
        idle(desk)
        desk.until(lambda: "large" in {key.name for key in desk.reserved()})


def idle(desk: Desk) -> None:
    """End two jobs of queue b, so that their room is idle."""
    for job in sorted(desk.reserved())[:2]:
        end(desk, job)


def charge_for(desk: Desk, seconds: int) -> int:
    """Return what queue a pays for kept room during this number of seconds."""
    before = paid(desk)
    desk.clock.step(seconds)
    desk.until(lambda: paid(desk) > before)
    return paid(desk) - before
