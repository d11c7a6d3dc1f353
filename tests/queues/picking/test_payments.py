"""Payments for idle workers: they wait and are paid for as growths do, and take no room."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.resources.amounts import NOTHING, Amounts
from queues.picking.picker import Picker
from queues.rules import PickRules
from queues.values import Entry, Reservation
from tests.support.queues.builders import (
    GPU,
    START,
    choose,
    commit,
    entries,
    entry,
    key,
    opened,
    reservation,
    resources,
    spec,
    specs,
)

BY_GPU = PickRules(cost=GPU)


def payment(name: str, idle: int, queue: str = "a", submitted: float = START, gpu: int = 1) -> Entry:
    """Return a request to pay for idle workers with `gpu` GPUs each."""
    return replace(entry(name, queue, submitted, kind="grow"), unit=resources(gpu=gpu), idle=idle)


def holder(name: str, idle: int, queue: str = "a", gpu: int = 1) -> Reservation:
    return replace(reservation(name, queue, gpu=gpu * idle), size=idle, idle=idle)


@pytest.mark.parametrize(("quota", "pool"), [({}, None), ({"gpu": 0}, {GPU: 0}), ({"gpu": 6}, {GPU: 6})])
def test_payment_goes_without_any_room_and_costs_what_it_pays_for(quota: dict[str, int], pool: Amounts | None) -> None:
    store = opened([spec("a", **quota)], [payment("job", 3, gpu=2)], pool, [holder("job", 3, gpu=2)])
    batch = choose(store.snapshot(9), START, 9, BY_GPU)
    assert [(pick.cost, pick.charge, pick.size) for pick in batch.picks] == [(6, {}, 0)]
    assert not commit(store, batch).refused
    assert store.reservations()[key("job")] == replace(holder("job", 3, gpu=2), idle=0, grown=1, paid=6)


@pytest.mark.parametrize(("strict", "order"), [(True, []), (False, ["job"])])
def test_payment_waits_in_its_queue_like_a_growth(strict: bool, order: list[str]) -> None:
    first = entry("large", submitted=START - 1, gpu=9)
    a = replace(spec("a", gpu=9), strict=strict)
    store = opened([a], [first, payment("job", 1)], None, [holder("job", 1)])
    picks = choose(store.snapshot(9), START, 9, BY_GPU).picks
    assert [pick.waiting.entry.key.name for pick in picks] == order


@given(costs=st.lists(st.integers(1, 5), min_size=1, max_size=6), weight=st.integers(1, 4))
def test_payments_take_the_turns_of_jobs_of_the_same_cost(costs: list[int], weight: int) -> None:
    others = entries("b", 20, gpu=2)
    paying = [payment(f"job-{number}", cost, submitted=START + number) for number, cost in enumerate(costs)]
    taking = [entry(f"job-{number}", submitted=START + number, gpu=cost) for number, cost in enumerate(costs)]
    queues, held = specs(a=1, b=weight), [holder(f"job-{number}", cost) for number, cost in enumerate(costs)]
    stores = opened(queues, [*paying, *others], None, held), opened(queues, [*taking, *others])
    snapshots = [store.snapshot(99) for store in stores]
    for head in snapshots[0].queues[0].heads:
        head.demand = NOTHING  # a reader of Redis has one object for all equal demands
    turns = [choose(snapshot, START, 99, BY_GPU).picks for snapshot in snapshots]
    payments, jobs = ([(pick.waiting.entry.key.name, pick.cost) for pick in picks] for picks in turns)
    assert payments == jobs


def test_payment_goes_where_the_pool_is_full() -> None:
    waiting = [*entries("b", 3, gpu=1), payment("job", 2)]
    store = opened(specs(a=1, b=1), waiting, {GPU: 3}, [holder("job", 2)])
    picker = Picker(store.snapshot(99), BY_GPU)
    assert [pick.waiting.entry.key.name for pick in picker.picks(START, 9).picks] == ["job", "b-0000"]
    assert not picker.picks(START, 9).picks
