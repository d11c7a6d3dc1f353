"""Who has used how much: groups, shares, prices, and what became of the pool."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history import prices, usage
from history.rows import PoolRow
from history.store import Grouping, GroupKey, GroupSums, Span
from history.usage import GPUS, Group, Records
from tests.support.history_rows import GPU

POOL = {GPU: 100, "cpu": 100_000, "memory": 1000}
NAMES = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.dictionaries(st.sampled_from([GPU, "amd.com/gpu", "cpu", "memory"]), st.integers(1, 2**70), max_size=4)


def sums(queue: str, namespace: str = "red", user: str = "", **given: dict[str, int]) -> GroupSums:
    amounts = {"held": {}, "unpaid": {}, "failed": {}} | given
    return GroupSums(key=GroupKey(queue, namespace, user), jobs=1, **amounts)


def records(*groups: GroupSums, pool: dict[str, int] = POOL) -> Records:
    return Records(sums=groups, waits={}, entitlements={}, pool=pool)


def shares(found: Records, cost: str) -> dict[str, Fraction | None]:
    groups, _ = usage.groups(found, "queue", cost, {}, None)
    return {group.name: group.share for group in groups}


@pytest.mark.parametrize(
    ("cost", "share"),
    [
        # a has a tenth of the GPUs and three tenths of the CPUs, b three tenths of the GPUs.
        ("dominant", Fraction(1, 2)),
        ("jobs", Fraction(1, 4)),
        ("cpu", 1),
        ("memory", None),
    ],
)
def test_a_share_is_the_part_of_what_was_paid_by_what_weights_divide(cost: str, share: Fraction | None) -> None:
    found = records(sums("a", held={GPU: 10, "cpu": 30_000}), sums("b", held={GPU: 40}, unpaid={GPU: 10}))
    assert shares(found, cost)["a"] == share


def test_where_the_pool_is_not_known_gpus_decide_else_cpus() -> None:
    both = records(sums("a", held={GPU: 1, "cpu": 9}), sums("b", held={GPU: 3}), pool={})
    assert shares(both, "dominant")["a"] == Fraction(1, 4)
    no_gpus = records(sums("a", held={"cpu": 1}), sums("b", held={"cpu": 3, "memory": 9}), pool={})
    assert shares(no_gpus, "dominant")["a"] == Fraction(1, 4)


def test_idle_growth_costs_nothing() -> None:
    hour = 3600
    held = {GPU: 3 * hour, "cpu": 2000 * hour, "memory": 2**31 * hour}
    found = records(sums("a", held=held, unpaid={GPU: hour}))
    table = {GPU: Decimal("1.5"), "cpu": Decimal("0.02"), "memory": Decimal("0.1")}
    ((group,), _) = usage.groups(found, "queue", "dominant", table, None)
    assert group.price == Fraction(3) + Fraction(4, 100) + Fraction(2, 10)
    assert usage.groups(found, "queue", "dominant", {}, None)[0][0].price is None


def test_a_reader_of_some_namespaces_gets_others_as_one_group_without_names() -> None:
    waits = {GroupKey("a", "red", ""): [5], GroupKey("a", "blue", ""): [70, 90]}
    found = records(
        sums("a", "red", held={GPU: 1}),
        sums("a", "blue", held={GPU: 2}),
        sums("b", "blue", held={GPU: 4}, failed={GPU: 4}),
    )
    found = Records(
        sums=found.sums,
        waits=waits,
        pool=POOL,
        entitlements={"a": Fraction(1, 2), "b": Fraction(3, 8), "c": Fraction(1, 8)},
    )
    groups, others = usage.groups(found, "queue", "dominant", {}, frozenset({"red"}))
    assert [(group.name, group.held, group.target, group.waits) for group in groups] == [
        ("a", {GPU: 1}, Fraction(1, 2), (5, 5))
    ]
    assert others is not None
    assert (others.name, others.held, others.failed, others.target) == ("", {GPU: 6}, {GPU: 4}, Fraction(1, 2))
    assert others.waits == (70, 90)
    assert others.share == Fraction(6, 7)


def test_a_queue_that_wanted_room_and_got_none_is_named() -> None:
    found = Records(
        sums=[sums("a", held={GPU: 1})], waits={}, pool=POOL, entitlements={"a": Fraction(1, 2), "b": Fraction(1, 2)}
    )
    groups, _ = usage.groups(found, "queue", "dominant", {}, None)
    assert [(group.name, group.share, group.target) for group in groups] == [
        ("a", 1, Fraction(1, 2)),
        ("b", 0, Fraction(1, 2)),
    ]
    by_user, _ = usage.groups(found, "user", "dominant", {}, None)
    assert [(group.name, group.target) for group in by_user] == [("", None)]


def test_the_largest_groups_are_named_and_the_rest_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_GROUPS", 2)
    found = records(*(sums("a", user=f"user-{number}", held={GPU: number}) for number in range(1, 6)))
    groups, others = usage.groups(found, "user", "dominant", {}, None)
    assert [group.name for group in groups] == ["user-4", "user-5"]
    assert others is not None
    assert others.held == {GPU: 6}


@given(
    st.lists(st.builds(lambda key, held: sums(*key, held=held), st.tuples(NAMES, NAMES, NAMES), AMOUNTS), max_size=6),
    st.sampled_from(["queue", "namespace", "user"]),
    st.none() | st.frozensets(NAMES),
)
def test_the_groups_and_the_others_add_up_to_all(
    each: list[GroupSums], by: Grouping, namespaces: frozenset[str] | None
) -> None:
    groups, others = usage.groups(records(*each), by, "dominant", {GPU: Decimal("0.1")}, namespaces)
    every: list[Group] = [*groups, *([others] if others else [])]
    for name in (GPU, "cpu", "memory"):
        assert sum(group.held.get(name, 0) for group in every) == sum(one.held.get(name, 0) for one in each)
    assert sum((group.share or 0) for group in every) in (0, 1)
    gpus = sum(one.held.get(GPU, 0) for one in each)
    assert sum((group.price or Fraction(0)) for group in every) == Fraction(gpus, 36_000)


@given(st.lists(st.integers(0, 2**80), max_size=12))
def test_percents_add_up_to_100_and_are_off_by_less_than_one(parts: list[int]) -> None:
    found = usage.percents(parts)
    if sum(parts):
        assert sum(found) == 100
        assert all(abs(each - Fraction(part * 100, sum(parts))) < 1 for each, part in zip(found, parts, strict=True))
    else:
        assert found == [0] * len(parts)


class TestPool:
    rows = (PoolRow(start=0, amounts={}), PoolRow(start=100, amounts={GPU: 8}), PoolRow(start=200, amounts={GPU: 4}))

    def test_is_known_from_its_first_row_on(self) -> None:
        assert usage.known(self.rows, Span(0, 300)) == Span(100, 300)
        assert usage.known(self.rows, Span(150, 300)) == Span(150, 300)
        assert usage.known(self.rows[:1], Span(0, 300)) is None
        assert usage.known((), Span(0, 300)) is None

    def test_is_not_known_by_what_is_counted_neither_in_gpus_nor_in_cpus(self) -> None:
        parts = (PoolRow(start=0, amounts={"nvidia.com/mig-1g.5gb": 7, "pods": 10}), PoolRow(start=100, amounts={}))
        assert usage.known(parts, Span(0, 300)) is None
        assert usage.known((*parts, PoolRow(start=200, amounts={"cpu": 1000})), Span(0, 300)) == Span(200, 300)

    def test_offers_what_it_had_at_each_time(self) -> None:
        assert usage.offered(self.rows, Span(0, 300)) == {GPU: 8 * 100 + 4 * 100}
        assert usage.offered(self.rows[1:], Span(150, 210)) == {GPU: 8 * 50 + 4 * 10}

    def test_is_paid_for_grown_into_or_idle(self) -> None:
        found = usage.cluster(
            Span(100, 300), self.rows[1:], [sums("a", held={GPU: 500}, unpaid={GPU: 100})], [Span(150, 200)], {GPU: 250}
        )
        assert (found.resource, found.offered) == (GPUS, 1200)
        assert (found.paid, found.unpaid, found.idle_while_waiting, found.idle) == (400, 100, 150, 550)

    def test_without_gpus_is_counted_in_cpus(self) -> None:
        rows = [PoolRow(start=0, amounts={"cpu": 2000})]
        found = usage.cluster(Span(0, 10), rows, [sums("a", held={"cpu": 5000})], [], {})
        assert (found.resource, found.offered, found.paid, found.idle) == ("cpu", 20_000, 5000, 15_000)

    def test_that_lost_nodes_while_jobs_held_them_has_no_negative_idleness(self) -> None:
        found = usage.cluster(Span(200, 300), self.rows[2:], [sums("a", held={GPU: 800})], [Span(200, 300)], {GPU: 800})
        assert (found.paid, found.idle_while_waiting, found.idle) == (800, 0, 0)


@pytest.mark.parametrize(
    ("name", "seconds", "hours"),
    [
        ("cpu", 1000 * 3600, 1),
        ("memory", 2**30 * 1800, Fraction(1, 2)),
        (GPU, 7200, 2),
        ("hugepages-2Mi", 2**30 * 3600, 1),
    ],
)
def test_hours_are_those_of_a_core_a_gib_or_one_of_anything(name: str, seconds: int, hours: Fraction) -> None:
    assert prices.hours(name, seconds) == hours
