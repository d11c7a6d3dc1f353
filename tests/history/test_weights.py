"""What the weights of queues entitle them to."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history import weights
from history.rows import QueueRow
from history.store import Demand, Span

DAY = Span(0, 86_400)
NOON = 43_200


def row(name: str, weight: int, start: int = 0) -> QueueRow:
    return QueueRow(name=name, start=start, version=1, weight=weight)


def test_weights_divide_each_second_among_the_queues_that_want_something() -> None:
    found = weights.entitlements([Demand("a", 0, 86_400), Demand("b", NOON, 86_400)], [row("a", 3), row("b", 1)], DAY)
    assert found == {"a": pytest.approx(Fraction(7, 8)), "b": pytest.approx(Fraction(1, 8))}


def test_seconds_in_which_nobody_wants_anything_do_not_count() -> None:
    assert weights.entitlements([Demand("a", NOON, NOON + 60)], [row("a", 3)], DAY) == {"a": 1}
    assert weights.entitlements([], [row("a", 3)], DAY) == {}


def test_a_weight_counts_from_the_time_at_which_it_was_set() -> None:
    rows = [row("a", 1), row("a", 3, NOON), row("b", 1)]
    found = weights.entitlements([Demand("a", 0, 86_400), Demand("b", 0, 86_400)], rows, DAY)
    assert found["a"] == pytest.approx(Fraction(5, 8))


def test_a_queue_without_an_object_has_the_weight_1_and_a_deleted_one_none() -> None:
    wanted = [Demand(name, 0, 86_400) for name in ("a", "gone", "implicit")]
    found = weights.entitlements(wanted, [row("a", 3, -10), row("gone", 5, -10), row("gone", 0, -5)], DAY)
    assert found == {"a": pytest.approx(Fraction(3, 4)), "gone": 0, "implicit": pytest.approx(Fraction(1, 4))}


def test_a_queue_that_was_seen_later_than_its_jobs_had_its_first_weight_before() -> None:
    found = weights.entitlements(
        [Demand("a", 0, 100), Demand("b", 0, 100)], [row("a", 3, 50), row("b", 1)], Span(0, 100)
    )
    assert found["a"] == pytest.approx(Fraction(3, 4))


MOMENTS = st.integers(-5, 30)
DEMANDS = st.lists(
    st.builds(
        lambda name, start, length: Demand(name, start, start + length),
        st.sampled_from("abc"),
        MOMENTS,
        st.integers(1, 12),
    ),
    max_size=8,
)
ROWS = st.dictionaries(st.tuples(st.sampled_from("abc"), MOMENTS), st.integers(0, 5), max_size=8)


def apart(demands: list[Demand]) -> list[Demand]:
    """Return the demands that neither overlap nor touch one of the same queue before them."""
    kept: list[Demand] = []
    for each in sorted(demands):
        if not kept or kept[-1].queue != each.queue or kept[-1].end < each.start:
            kept.append(each)
    return kept


@given(DEMANDS.map(apart), ROWS)
def test_the_sum_over_changes_is_the_sum_over_seconds(
    demands: list[Demand], changes: dict[tuple[str, int], int]
) -> None:
    rows = [row(name, weight, start) for (name, start), weight in sorted(changes.items())]
    span = Span(0, 25)
    earned: dict[str, Fraction] = {}
    busy = 0
    for second in range(*span):
        active = {each.queue: at(rows, each.queue, second) for each in demands if each.start <= second < each.end}
        total = sum(active.values())
        busy += bool(total)
        for queue, weight in active.items():
            earned[queue] = earned.get(queue, Fraction(0)) + (Fraction(weight, total) if total else 0)
    found = weights.entitlements(demands, rows, span)
    assert {queue: float(part) for queue, part in found.items()} == pytest.approx(
        {queue: float(part / busy) for queue, part in earned.items()} if busy else {}
    )


def at(rows: list[QueueRow], queue: str, second: int) -> int:
    own = [each for each in rows if each.name == queue]
    before = [each.weight for each in own if each.start <= second]
    return before[-1] if before else own[0].weight if own else 1
