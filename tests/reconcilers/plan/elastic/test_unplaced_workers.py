"""Workers that left their nodes and find no other node. An elastic job gives these workers and their charge up, down to
its least size.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.support.reconcilers.resizing import POLICY, Resizing, change, counts, grant_of, resizing, scaling

SECONDS = 100


def leave(job: Resizing, *indexes: int) -> None:
    """Cordon the node of some workers, and let these workers end; the new workers find no node."""
    for index in indexes:
        name = f"digits-worker-{index}"
        job.pods[name] = replace(job.pods[name], node="n2")
    job.departures = {"n2": "is cordoned"}
    job.work()
    job.end()
    job.work()


def wait(job: Resizing) -> None:
    """Let the time pass that the plan names, and let the worker do the due work."""
    seconds = job.plan().requeue_after
    assert seconds is not None
    job.now += timedelta(seconds=seconds)
    job.work()
    job.end()
    job.work()
    job.lower()


def elastic(wish: int, least: int | None = 1, step: int = 1, **spec: Any) -> Resizing:
    policy = {**POLICY, "numMinReplicas": least, "replicaStep": step}
    known = {name: value for name, value in policy.items() if value is not None}
    return resizing(wish, torchElasticPolicy=known, **spec)


def test_job_goes_on_smaller_and_asks_for_the_rest_again() -> None:
    job = elastic(3)
    before = counts(job)
    leave(job, 2)
    assert (job.indexes(), grant_of(job)[0], counts(job)[2]) == ([0, 1, 2], 3, before[2])
    began = job.now
    wait(job)
    assert job.now - began == timedelta(seconds=SECONDS)
    assert (job.indexes(), grant_of(job)[0], job.known.status.departed) == ([0, 1], 2, {})
    assert job.reservation is not None
    assert job.reservation.size == 2
    rest = change(job)
    assert (rest.from_workers, rest.to, rest.tries, rest.victims) == (2, 3, 1, ())
    assert rest.not_before is not None
    assert job.events[-1] == (
        "NotJoined: workers did not join within 100 s: digits-worker-2; they are removed, and added again later"
    )


def test_worker_that_runs_elsewhere_in_time_stays() -> None:
    job = elastic(3)
    leave(job, 2)
    job.now += timedelta(seconds=SECONDS - 1)
    job.run()
    job.work()
    job.run()
    job.work()
    job.now += timedelta(seconds=2 * SECONDS)
    job.work()
    assert (job.indexes(), grant_of(job)[0], scaling(job), job.known.status.departed) == ([0, 1, 2], 3, None, {})


@pytest.mark.parametrize(
    ("wish", "least", "step", "left", "leaving"),
    [
        (4, 3, 1, 4, (2, 3)),  # fewer workers than its least run, so the job waits for both workers
        (3, 3, 1, 3, (2,)),
        (5, 1, 2, 3, (4,)),  # another worker is given up, too, because the job has steps of two
        (3, 1, 1, 1, (1, 2)),
    ],
)
def test_number_that_is_left_is_one_that_the_job_may_have(
    wish: int, least: int, step: int, left: int, leaving: tuple[int, ...]
) -> None:
    job = elastic(wish, least, step)
    leave(job, *leaving)
    job.now += timedelta(seconds=SECONDS)
    job.work()
    job.end()
    job.work()
    assert grant_of(job)[0] == left


def test_rank_0_is_waited_for() -> None:
    job = elastic(3)
    leave(job, 0)
    job.now += timedelta(seconds=2 * SECONDS)
    job.work()
    assert (grant_of(job)[0], scaling(job)) == (3, None)


def test_job_that_is_not_elastic_waits_for_its_pods() -> None:
    rigid: dict[str, Any] = {"minMembers": {"Worker": 1}}
    job = resizing(3, **rigid, restartScope="Task")
    leave(job, 2)
    job.now += timedelta(seconds=10_000)
    job.work()
    assert (grant_of(job)[0], scaling(job)) == (3, None)


@pytest.mark.parametrize("least", [1, None])
def test_idle_growth_without_a_node_is_given_up_for_good(least: int | None) -> None:
    job = elastic(2, least)
    job.grow_idle(4)
    for _ in range(3):
        job.work()
        job.run()
    job.work()
    before = job.known.status.resized
    assert before is not None
    leave(job, 3)
    wait(job)
    admission, target, after = job.known.admission, job.known.status.target, job.known.status.resized
    assert admission is not None
    assert target is not None
    assert (admission.workers, admission.idle, target.workers, scaling(job)) == (3, 1, 3, None)
    assert after is not None
    assert (after.at, after.seconds) == (job.now, before.seconds)
