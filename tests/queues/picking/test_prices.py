"""The prices of picks: the dominant share, the part of a price that a queue gets back, and the order of turns."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crds.resources.amounts import OTHERS, Amounts
from queues.picking.picker import Picker
from queues.picking.prices import WHOLE, Prices
from queues.redis import codec
from queues.rules import PickRules
from queues.values import Clock, QueueSpec
from tests.support.queues.builders import GPU, START, entries, entry, opened, order, run, spec

NODES = {"cpu": 64_000, "memory": 256, "pods": 110, GPU: 8, "x.org/gpu": 2, "ephemeral-storage": 100, OTHERS: 0}
LIMITED = (
    QueueSpec(name="a", quota={"cpu": 6_000, "jobs": 3, "x.org/tpu": 2}),
    QueueSpec(name="b", quota={"cpu": 4_000, "jobs": 1, GPU: 8}, open=False),
)
FREE = QueueSpec(name="c")


@pytest.mark.parametrize(
    ("pool", "queues", "demand", "price"),
    [
        pytest.param(NODES, [FREE], {"jobs": 1, "cpu": 8_000, GPU: 4, "pods": 11}, 500_000, id="the largest part"),
        pytest.param(NODES, [FREE], {"jobs": 1, "cpu": 1, "x.org/gpu": 1}, 500_000, id="GPUs of any vendor"),
        pytest.param(NODES, [FREE], {"jobs": 1, "pods": 110}, WHOLE, id="pods without requests"),
        pytest.param(NODES, [FREE], {"jobs": 1, "cpu": 1, "pods": 1}, 9_091, id="one pod, rounded up"),
        pytest.param(NODES, [FREE], {"cpu": 1}, 9_091, id="a growth without a pod costs one as well"),
        pytest.param({"cpu": 3_000_000}, [FREE], {"jobs": 1, "cpu": 1}, 1, id="at least a millionth"),
        pytest.param(NODES, [FREE], {"ephemeral-storage": 100}, 9_091, id="a resource that no quota names"),
        pytest.param(
            NODES,
            [replace(FREE, quota={"ephemeral-storage": 9})],
            {"ephemeral-storage": 50},
            500_000,
            id="a resource that a quota names",
        ),
        pytest.param(None, LIMITED, {"jobs": 1, "cpu": 4_000}, 400_000, id="no pool: a part of all quotas"),
        pytest.param(None, LIMITED, {"jobs": 1, "cpu": 1_000, GPU: 8}, 250_000, id="no pool: what every queue limits"),
        pytest.param(None, [*LIMITED, FREE], {"jobs": 1, "cpu": 4_000}, WHOLE, id="no pool: a queue limits nothing"),
        pytest.param(None, [], {"jobs": 1}, WHOLE, id="no queue"),
        pytest.param({"jobs": 4}, [FREE], {"jobs": 1, "cpu": 5}, WHOLE, id="a pool of jobs"),
        pytest.param({"cpu": 0, OTHERS: 0}, [FREE], {"jobs": 1, "cpu": 5}, WHOLE, id="no node is ready"),
    ],
)
def test_dominant_share_is_the_largest_part_of_what_counts(
    pool: Amounts | None, queues: list[QueueSpec], demand: Amounts, price: int
) -> None:
    assert Prices("dominant", pool, queues).of(demand) == price


@pytest.mark.parametrize(("cost", "price"), [("jobs", 1), ("cpu", 7), (GPU, 1)])
def test_other_costs_are_one_or_an_amount(cost: str, price: int) -> None:
    assert Prices(cost, NODES, [FREE]).of({"jobs": 1, "cpu": 7}) == price


quantities = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", GPU, "x.org/tpu"]), st.integers(0, 2**52))
pools = st.none() | quantities
costs = st.sampled_from(["dominant", "jobs", GPU])


@given(cost=costs, pool=pools, quotas=st.lists(quantities, max_size=3), demand=quantities, more=quantities)
def test_price_is_a_whole_number_that_never_falls_when_a_job_takes_more(
    cost: str, pool: Amounts | None, quotas: list[Amounts], demand: Amounts, more: Amounts
) -> None:
    prices = Prices(cost, pool, [QueueSpec(name=f"q{at}", quota=quota) for at, quota in enumerate(quotas)])
    larger = {name: demand.get(name, 0) + more.get(name, 0) for name in demand.keys() | more.keys()}
    price = prices.of(demand)
    assert type(price) is int
    assert 1 <= prices.of({}) <= price <= prices.of(larger)
    assert prices.count(more) or prices.of(larger) == price
    if cost == "dominant" and pool is not None and all(pool.get(name, 0) >= each for name, each in demand.items()):
        assert price <= WHOLE


Arrivals = list[tuple[str, int, int]]
"""Jobs that arrive (queue, number), and how many picks follow."""


def play(cost: str, weights: tuple[int, ...], steps: Arrivals, cpu: int, pool: Amounts | None) -> str:
    """Return the queues of all picks, in order."""
    store, picked = opened([spec(name, weight) for name, weight in zip("abc", weights, strict=True)], pool=pool), ""
    for number, (queue, jobs, picks) in enumerate([*steps, ("a", 0, 99)]):
        store.put([entry(f"job-{number}-{at}", queue, START + number, cpu=cpu, pods=1) for at in range(jobs)])
        picked += order(run(store, picks, cost=cost))
    return picked


weighted = st.tuples(*[st.integers(1, 9)] * 3)
plays = st.tuples(st.integers(1, 7), st.none() | st.just({"cpu": 1_000, "pods": 777}))


@given(weights=weighted, jobs=st.tuples(*[st.integers(0, 15)] * 3), play_of=plays)
def test_jobs_that_are_alike_go_in_the_same_order_as_if_each_cost_one(
    weights: tuple[int, ...], jobs: tuple[int, ...], play_of: tuple[int, Amounts | None]
) -> None:
    steps = [(queue, count, 0) for queue, count in zip("abc", jobs, strict=True)]
    assert play("dominant", weights, steps, *play_of) == play("jobs", weights, steps, *play_of)


@given(
    weights=weighted,
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 6)), max_size=12),
    play_of=plays,
)
def test_jobs_that_are_alike_change_places_only_where_a_queue_comes_back_and_two_are_even(
    weights: tuple[int, ...], steps: Arrivals, play_of: tuple[int, Amounts | None]
) -> None:
    by_share, by_jobs = (play(cost, weights, steps, *play_of) for cost in ("dominant", "jobs"))
    for end in range(len(by_jobs)):
        differ = Counter(by_share[:end])
        differ.subtract(by_jobs[:end])
        assert max(differ.values(), default=0) <= 1


@given(cpu=st.integers(1, 9), first=st.integers(99, 199), later=st.integers(99, 19_999), weight=st.integers(1, 5))
def test_refund_is_what_was_paid_whatever_the_pool_is_now(cpu: int, first: int, later: int, weight: int) -> None:
    def picker() -> Picker:
        return Picker(store.snapshot(9), PickRules())

    queues = [spec("a", weight), spec("b")]
    store = opened(queues, [*entries("a", 9, cpu=cpu), *entries("b", 9, cpu=2)], {"cpu": first})
    list(run(store, 3, cost="dominant"))
    before = [picker().behind(name) for name in "ab"]
    [picked] = run(store, 1, cost="dominant")
    assert picked.paid == Prices("dominant", {"cpu": first}, queues).of(picked.charge)
    store.configure(queues, {"cpu": later})
    assert store.reservations()[picked.key] == picked
    after = picker()
    assume(after.behind(picked.queue) <= 0)  # else the refund is limited
    after.settle(picked.queue, -picked.paid)
    assert [after.behind(name) for name in "ab"] == before


def test_accounts_in_another_unit_begin_anew() -> None:
    store = opened([spec("a"), spec("b")], entries("a", 9, cpu=1), {"cpu": 1_000_000})
    list(run(store, 5, cost="dominant"))
    store.put(entries("b", 9, cpu=1))
    assert order(run(store, 4, cost="jobs")) == "abab"
    assert order(run(store, 4, cost="cpu")) == "abab"


def test_forecast_with_room_for_everything_has_the_prices_of_the_pool() -> None:
    store = opened([spec("a"), spec("b")], [*entries("a", 4, cpu=2), *entries("b", 9, cpu=1)], {"cpu": 2})
    taken = Picker(store.snapshot(9), PickRules(), roomy=True).picks(START, 6).picks
    assert len(taken) == 6
    assert {(pick.waiting.queue, pick.cost) for pick in taken} == {("a", WHOLE), ("b", WHOLE // 2)}


def test_clock_of_another_unit_is_one_that_earlier_versions_read_and_ignore() -> None:
    clock = Clock(2**70, 3, Prices("dominant", None, []).scheme)
    assert codec.encode_clock(clock) == f"{2**70} 3 0 lag:dominant"
    assert codec.decode_clock(codec.encode_clock(clock)) == clock


def test_queues_divide_the_pool_of_the_paper_as_the_paper_does() -> None:
    waiting = [*entries("a", 9, cpu=1, memory=4), *entries("b", 9, cpu=3, memory=1)]
    picked = list(run(opened([spec("a"), spec("b")], waiting, {"cpu": 9, "memory": 18}), 99, cost="dominant"))
    assert order(picked) == "ababa"
    assert [each.paid for each in picked[:2]] == [222_223, 333_334]
