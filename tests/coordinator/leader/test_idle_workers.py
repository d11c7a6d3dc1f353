"""Jobs with idle workers, for which their queues have not paid: how the leader audits, rebuilds, frees and refunds
them.
"""

from dataclasses import replace

import pytest

from crds.keys import JobKey
from kube.client import KubernetesCluster
from queues.store import IdleGrowth
from queues.values import Entry
from tests.coordinator.leader.test_growth import elastic, finish_runs, size, write
from tests.support.coordinator.desk import Clock, Desk

UNIT = {"pods": 1, "cpu": 1000}


def grow(desk: Desk, key: JobKey, workers: int) -> None:
    """Give a job idle workers, as the leader does."""
    held, snapshot = desk.content.reservations[key], desk.store.snapshot(0)
    more = {name: amount * workers for name, amount in UNIT.items()}
    growth = IdleGrowth(key=key, attempt=held.attempt, grown=held.grown, workers=workers, charge=more)
    assert desk.store.grow_idle([growth], snapshot.epoch, snapshot.revision) == [""]


def pay(desk: Desk, key: JobKey, workers: int) -> None:
    """Let the job's queue pay for idle workers."""
    held = desk.content.reservations[key]
    desk.store.put([Entry(key=key, queue="a", kind="grow", submitted=1.0, unit=UNIT, idle=workers, grown=held.grown)])
    desk.term._pick_cycle.run(desk.clock(), 9, 9)


def idle(desk: Desk, key: JobKey) -> tuple[int, int, int]:
    """Return the number of CPUs for which a job is charged, how often the job has grown, and how many workers are
    idle.
    """
    return *size(desk, key), desk.content.reservations[key].idle


def settled(desk: Desk) -> bool:
    return desk.term.flush() == 0


def test_a_payment_is_no_loss_before_a_worker_has_written_it_and_after(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2)
    for change, expected, workers in ((grow, (5, 1, 3), 5), (pay, (5, 2, 1), 5)):
        change(desk, key, 3 if change is grow else 2)
        assert idle(desk, key) == expected
        desk.until(lambda: settled(desk), worker=False)
        assert desk.term.audit()
        write(desk, key, workers, grown=expected[1], idle=expected[2])
        desk.until(lambda: settled(desk), worker=False)
        assert desk.term.audit()
        assert idle(desk, key) == expected


def test_a_rebuild_keeps_idle_workers_and_payments_that_no_worker_has_written(desk: Desk, namespace: str) -> None:
    desk.queue("a")
    desk.begin()
    key = elastic(desk, namespace, 2)
    grow(desk, key, 3)
    write(desk, key, 5, grown=1, idle=3)
    pay(desk, key, 2)
    desk.begin(2)
    assert idle(desk, key) == (5, 2, 1)
    desk.lose()
    desk.begin(3)
    assert idle(desk, key) == (5, 1, 3), "a payment that only the store held is lost with the store"


@pytest.mark.parametrize("paid", [True, False])
def test_idle_workers_that_were_declined_are_freed_and_not_refunded(
    embedded_cluster: KubernetesCluster, namespace: str, clock: Clock, paid: bool
) -> None:
    with Desk(embedded_cluster, clock, cost="cpu") as desk:
        desk.queue("a")
        desk.begin()
        key = elastic(desk, namespace, 1)
        grow(desk, key, 2)
        if paid:
            held = desk.content.reservations[key]
            desk.content.reservations[key] = replace(held, idle=0, paid=2000, gained=2)
        refunded: list[tuple[str, int]] = []
        desk.term._pick_cycle.refund = lambda queue, cost: refunded.append((queue, cost))  # type: ignore[method-assign]
        write(desk, key, 1, grown=1, declined=1)

        def lowered() -> bool:
            finish_runs(desk)
            clock.step(1)
            return idle(desk, key) == (1, 1, 0)

        desk.until(lowered, worker=False)
        assert refunded == ([("a", 2000)] if paid else [])
