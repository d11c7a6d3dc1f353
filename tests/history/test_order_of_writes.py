"""Whatever the order of writes, and however often: the same history, and the sums of the store in memory."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from history.rows import GapRow, PoolRow, QueueRow, Row
from history.sql import tables
from history.sql.sql_history import SqlHistory, open_history
from history.store import HistoryStore, JobQuery, Span
from tests.doubles.memory_history import MemoryHistory
from tests.support.history_rows import GPU, hold, job, merged, pod, wait

pytestmark = pytest.mark.proof

LAST = 60
ALL = Span(-10, LAST + 10)
MOMENTS = st.integers(0, LAST)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlHistory]:
    store = open_history(f"sqlite:///{tmp_path_factory.mktemp('order')}/history.sqlite", "")
    yield store
    store.close()


@st.composite
def lives(draw: DrawFn, uid: str) -> list[Row]:
    """Return the rows that sights of one job's life make: at each version what was known then."""
    moments = sorted(draw(st.lists(MOMENTS, min_size=2, max_size=7)))
    queue = st.sampled_from("ab")
    holds = [
        hold(uid, start, end, draw(st.integers(0, 2**64)), number=number, attempt=number, queue=draw(queue))
        for number, (start, end) in enumerate(pairwise(moments), 1)
    ]
    facts = {"namespace": draw(st.sampled_from(["red", "blue"])), "user": draw(st.sampled_from(["", "ann"]))}
    outlives = pod(f"p-{uid}", uid, moments[-1], draw(st.none() | MOMENTS), namespace=facts["namespace"])
    rows: list[Row] = [wait(uid, draw(MOMENTS), None, version=len(moments)), outlives]
    for version, each in enumerate(holds, 1):
        rows += [job(uid, version, seen=each.start, **facts), replace(each, version=version, end=None, ended="")]
        rows += [replace(each, version=later) for later in range(version + 1, len(holds) + 2)]
        rows.append(wait(uid, each.start, each.start, version=version))
    outcome = draw(st.sampled_from(["Succeeded", "Failed", ""]))
    is_lost = outcome == "" and draw(st.booleans())
    ended = moments[-1] if outcome or is_lost else None
    last_sight = job(uid, len(holds) + 1, ended=ended, outcome=outcome, is_approximate=is_lost, **facts)
    for last in range(2, len(holds) + 1):
        if draw(st.booleans()):
            total = sum(each.charge.get(GPU, 0) * (each.end - each.start) for each in holds[:last] if each.end)
            given_to = holds[last - 1].queue
            rows.append(merged(uid, f"1-{last}", moments[0], moments[last], total, version=last + 1, queue=given_to))
    # The end of the life is always seen: what came before may have been missed.
    seen = draw(st.lists(st.sampled_from(rows), max_size=2 * len(rows)))
    return [*seen, last_sight]


STATES = st.lists(
    st.builds(
        lambda name, start: QueueRow(name=name, start=start, version=start, weight=start % 4),
        st.sampled_from("ab"),
        MOMENTS,
    )
    | st.builds(lambda start, gpus: PoolRow(start=start, amounts={GPU: gpus}), MOMENTS, st.integers(0, 9))
    | st.builds(lambda start, length: GapRow(start=start, end=start + length), MOMENTS, st.integers(1, 9)),
    max_size=6,
)
HISTORIES = st.tuples(lives("u1"), lives("u2"), STATES).map(lambda parts: [row for part in parts for row in part])


def everything(store: HistoryStore, now: int) -> object:
    """Return all answers of a store."""
    span = Span(10, 45)
    return (
        store.jobs(JobQuery()),
        store.open_jobs(),
        store.open_pods(),
        [store.sums(each, now) for each in (ALL, span)],
        [{key: sorted(found) for key, found in store.first_waits(each).items()} for each in (ALL, span)],
        [store.demands(each, now) for each in (ALL, span)],
        [store.waits(each, now) for each in (ALL, span)],
        dict(store.held_while([Span(3, 9), Span(12, 40)], now)),
        [store.queues(each) for each in (ALL, span)],
        [store.pools(each) for each in (ALL, span)],
        [store.gaps(each) for each in (ALL, span)],
    )


def empty(store: SqlHistory) -> None:
    with store._database.writing() as connection:
        for table in tables.metadata.sorted_tables:
            connection.execute(table.delete())


@given(HISTORIES, st.data())
@settings(max_examples=60)
def test_rows_in_any_order_and_in_any_batches_are_one_history_and_that_of_the_store_in_memory(
    sql: SqlHistory, rows: list[Row], data: st.DataObject
) -> None:
    memory = MemoryHistory()
    memory.write(rows)
    empty(sql)
    shuffled = data.draw(st.permutations(rows))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4))), len(rows)]
    for first, last in pairwise(cuts):
        sql.write(shuffled[first:last])
    now = data.draw(MOMENTS)
    assert everything(sql, now) == everything(memory, now)
    before = data.draw(MOMENTS)
    assert sql.write(rows) == 0
    assert [each.prune(before, 1) for each in (sql, memory)] in ([0, 0], [1, 1])
    assert everything(sql, now) == everything(memory, now)


@given(HISTORIES, st.lists(st.integers(-10, LAST + 10), max_size=6), MOMENTS)
@settings(max_examples=40)
def test_sums_over_any_cut_of_a_span_add_up(sql: SqlHistory, rows: list[Row], cuts: list[int], now: int) -> None:
    empty(sql)
    sql.write(rows)
    moments = [ALL.start, *sorted(cuts), ALL.end]
    totals: list[dict[tuple[str, ...], int]] = []
    for spans in ([ALL], [Span(*each) for each in pairwise(moments) if each[0] < each[1]]):
        total: dict[tuple[str, ...], int] = {}
        for span in spans:
            for group in sql.sums(span, now):
                for part in ("held", "unpaid", "failed"):
                    for name, amount in getattr(group, part).items():
                        total[(*group.key, part, name)] = total.get((*group.key, part, name), 0) + amount
        totals.append(total)
    assert totals[0] == totals[1]
