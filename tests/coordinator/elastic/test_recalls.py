"""Gangs that their scheduler does not bind: they give their room back while another job waits for it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crds.api_resources import NODES, POD_GROUPS, PODS
from crds.keys import JobKey
from crds.torchjob import conditions
from kube.client import KubernetesCluster
from tests.coordinator.leader.test_control_loop import seen
from tests.support.coordinator import kinds
from tests.support.coordinator.desk import Clock, Desk, remove, task

EIGHT = {"Worker": task(8)}
WORDS = "queue resource quota insufficient: insufficient nvidia.com/gpu"
REFUSED_AFTER = 20


def desk_with(cluster: KubernetesCluster, clock: Clock, room: int, **settings: Any) -> Desk:
    """Return a desk whose gangs Volcano binds. The clock begins at the time of day, by which the API server dates
    objects.
    """
    kinds.install_gangs(cluster)
    clock.now = float(int(time.time()))
    return Desk(cluster, clock, **{"gang_scheduler": "volcano", "pool": f"cpu={room}", **settings})


@pytest.fixture
def desk(embedded_cluster: KubernetesCluster, clock: Clock) -> Iterator[Desk]:
    """Yield a desk with room for one job of EIGHT."""
    with desk_with(embedded_cluster, clock, 8) as desk:
        for name in ("a", "b"):
            desk.queue(name)
        desk.begin()
        yield desk


def submit(desk: Desk, namespace: str, name: str, **spec: Any) -> JobKey:
    """Submit a job to the queue that its name begins with, and return its key once the coordinator has seen the job."""
    key = desk.submit(name, namespace, name[0], **{"tasks": EIGHT, **spec})
    seen(desk, key)
    return key


def refuse(desk: Desk, *keys: JobKey) -> None:
    """Write why Volcano does not let the groups of these jobs in, and wait until the statuses of the jobs say why."""
    made = {f"{key.name}-0" for key in keys}
    desk.until(lambda: made <= groups(desk, keys[0].namespace))
    for key in keys:
        against = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
        told = {**against, "message": f"0/1 tasks: origin reason is {WORDS}"}
        body = {"status": {"phase": "Pending", "conditions": [told]}}
        desk.cluster.patch(POD_GROUPS, f"{key.name}-0", body, key.namespace)
    desk.clock.now = max(desk.clock(), float(int(time.time()))) + 11.0
    desk.until(lambda: all(desk.job(key).status.refused_since for key in keys))


def groups(desk: Desk, namespace: str) -> set[str]:
    return {each["metadata"]["name"] for each in desk.cluster.list(POD_GROUPS, namespace).items}


def let_in(desk: Desk, key: JobKey) -> None:
    """Bind the gang of a job, as Volcano does, and let its pods run."""
    desk.until(lambda: f"{key.name}-0" in groups(desk, key.namespace))
    desk.cluster.patch(POD_GROUPS, f"{key.name}-0", {"status": {"phase": "Inqueue"}}, key.namespace)
    desk.until(lambda: len(desk.pods_of(key)) == 8)
    desk.move(key, "Running")
    desk.until(lambda: desk.phase(key) == "Running")


def look(desk: Desk, seconds: int) -> None:
    """Let time pass in steps of a second. The leader and the worker act after each step."""
    for _ in range(seconds):
        desk.clock.step(1.0)
        rounds = iter(range(4))
        desk.until(lambda rounds=rounds: next(rounds, None) is None)


def soon(desk: Desk, condition: Callable[[], object], *, worker: bool = True) -> None:
    """Let coordinator and worker work until the condition holds, while time passes slowly. A write that conflicts with
    another write is repeated at the next look.
    """

    def holds() -> object:
        desk.clock.step(0.02)
        return condition()

    desk.until(holds, worker=worker)


def is_waiting(desk: Desk, key: JobKey) -> bool:
    condition = conditions.find(desk.job(key).status.conditions, "Queued")
    return desk.phase(key) == "Queued" and condition is not None and condition.reason == "WaitingForScheduler"


def test_a_refused_gang_gives_its_room_to_another_tenant(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with desk_with(embedded_cluster, clock, 32) as desk:
        for name in ("a", "b"):
            desk.queue(name)
        desk.begin()
        small = {"gangQueue": "default"}
        jobs = [submit(desk, namespace, f"a-{number}", schedulingPolicy=small) for number in range(4)]
        let_in(desk, jobs[0])
        refuse(desk, *jobs[1:])
        look(desk, 30)
        assert desk.reserved() == set(jobs), "no other job waits"
        other = submit(desk, namespace, "b-0")
        desk.until(lambda: desk.waiting() == {other})
        soon(desk, lambda: other in desk.reserved())
        (back,) = set(jobs) - desk.reserved()
        assert is_waiting(desk, back)
        status = desk.job(back).status
        assert status.queue is not None
        assert (status.queue.reason, status.queue.tries, status.restart_count) == ("WaitingForScheduler", 0, 0)
        assert WORDS in status.queue.message
        assert status.queue.not_before is not None
        assert 9 <= status.queue.not_before.timestamp() - clock() <= 15
        assert f"{back.name}-0" not in groups(desk, namespace)
        assert desk.term.audit()


def test_a_refused_gang_keeps_its_room_until_the_time_is_over(desk: Desk, namespace: str, clock: Clock) -> None:
    first, other = submit(desk, namespace, "a-0"), submit(desk, namespace, "b-0")
    refuse(desk, first)
    since = desk.job(first).status.refused_since
    assert since is not None
    look(desk, int(since.timestamp() + REFUSED_AFTER - 1 - clock()))
    assert desk.reserved() == {first}
    soon(desk, lambda: desk.reserved() == {other})
    assert clock() < since.timestamp() + REFUSED_AFTER + 5


def test_the_pick_of_a_refused_gang_is_refunded(desk: Desk, namespace: str, clock: Clock) -> None:
    first, same, other = (submit(desk, namespace, name) for name in ("a-0", "a-1", "b-0"))
    refuse(desk, first)
    clock.step(REFUSED_AFTER)
    soon(desk, lambda: desk.reserved() - {first})
    assert desk.reserved() == {same}, "the queue has its unused turn back"
    assert desk.waiting() == {other}


def test_two_refused_gangs_never_take_turns(desk: Desk, namespace: str, clock: Clock) -> None:
    first, second = submit(desk, namespace, "a-0"), submit(desk, namespace, "b-0")
    refuse(desk, first)
    clock.step(REFUSED_AFTER)
    soon(desk, lambda: desk.reserved() == {second})
    refuse(desk, second)
    look(desk, 60)
    assert desk.reserved() == {second}
    assert desk.waiting() == {first}, "the job waits at its old place"
    assert desk.job(second).status.attempt == 1


def test_a_strict_queue_goes_on_behind_a_refused_gang(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock
) -> None:
    with desk_with(embedded_cluster, clock, 8) as desk:
        desk.queue("a", ordering="StrictFIFO")
        desk.begin()
        first, second = submit(desk, namespace, "a-0"), submit(desk, namespace, "a-1")
        refuse(desk, first)
        clock.step(REFUSED_AFTER)
        soon(desk, lambda: desk.reserved() == {second})
        assert desk.waiting() == set()


@pytest.mark.parametrize("change", ["node", "pod"])
def test_a_change_has_a_refused_gang_tried_again(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, change: str
) -> None:
    status = {"allocatable": {"cpu": "8", "pods": "99"}, "conditions": [{"type": "Ready", "status": "True"}]}
    embedded_cluster.create(NODES, {"metadata": {"name": "n1"}, "status": status})
    container = {"name": "main", "image": "x"}
    foreign = {"metadata": {"name": "foreign"}, "spec": {"nodeName": "n1", "containers": [container]}}
    embedded_cluster.create(PODS, foreign, namespace)
    try:
        with desk_with(embedded_cluster, clock, 0, pool="nodes") as desk:
            desk.queue("a")
            desk.begin()
            first, second = submit(desk, namespace, "a-0"), submit(desk, namespace, "a-1")
            refuse(desk, first)
            clock.step(REFUSED_AFTER)
            soon(desk, lambda: desk.reserved() == {second} and is_waiting(desk, first))
            look(desk, 5)
            assert desk.waiting() == set()
            before = desk.watches.refused.nodes, desk.watches.refused.ended_pods
            if change == "node":
                embedded_cluster.patch(NODES, "n1", {"status": {"allocatable": {"cpu": "9"}}}, subresource="status")
            else:
                embedded_cluster.delete(PODS, "foreign", namespace, grace_period_seconds=0)
            desk.until(lambda: (desk.watches.refused.nodes, desk.watches.refused.ended_pods) != before)
            soon(desk, lambda: desk.waiting() == {first})
            assert desk.job(first).status.queue.not_before.timestamp() > clock()
    finally:
        remove(embedded_cluster, NODES, "n1", "")


@pytest.mark.parametrize("lost", [False, True])
def test_quotas_stay_exact_while_leader_and_queues_are_lost(
    desk: Desk, namespace: str, clock: Clock, lost: bool
) -> None:
    def change_leader(epoch: int) -> None:
        if lost:
            desk.lose()
        desk.begin(epoch)
        assert desk.term.audit()

    first, other = submit(desk, namespace, "a-0"), submit(desk, namespace, "b-0")
    refuse(desk, first)
    change_leader(2)
    clock.step(REFUSED_AFTER)
    soon(desk, lambda: desk.job(first).status.recalled, worker=False)
    change_leader(3)
    assert desk.reserved() == {first}
    desk.until(lambda: is_waiting(desk, first))
    change_leader(4)
    desk.until(lambda: desk.reserved() == {other})
    assert desk.waiting() == set()
    change_leader(5)
    # Without a loss, a leader does not wait for its watch. The job is in its queue until the watch shows the admission.
    desk.until(lambda: desk.phase(other) == "Admitted" and (desk.reserved(), desk.waiting()) == ({other}, set()))
    assert desk.content.pool_usage["cpu"] == 8_000
