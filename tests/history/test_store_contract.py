"""The contract of every HistoryStore."""

from dataclasses import replace

import pytest

from history.rows import GapRow, HoldRow, JobRow, PodRow, PoolRow, QueueRow, Row
from history.store import Demand, GroupKey, GroupSums, HistoryStore, JobQuery, Span
from tests.support.history_rows import GPU, hold, job, merged, pod, wait

ALL = Span(0, 1_000_000)
RED = GroupKey("a", "red", "")


def held(store: HistoryStore, span: Span = ALL, now: int = 1_000_000) -> dict[str, int]:
    """Return what all groups held together."""
    totals: dict[str, int] = {}
    for group in store.sums(span, now):
        for name, amount in group.held.items():
            totals[name] = totals.get(name, 0) + amount
    return totals


def names(store: HistoryStore, query: JobQuery) -> list[str]:
    return [record.job.name for record in store.jobs(query)]


def the_job(store: HistoryStore, uid: str) -> JobRow:
    (record,) = store.jobs(JobQuery(uid=uid))
    return record.job


def the_holds(store: HistoryStore, uid: str) -> list[HoldRow]:
    (record,) = store.jobs(JobQuery(uid=uid))
    return list(record.holds)


class TestWrites:
    def test_a_row_comes_back_as_it_was_written(self, store: HistoryStore) -> None:
        full = job(
            "u1",
            user="ann@example.com",
            ended=90,
            outcome="Failed",
            is_approximate=True,
            reason="BackoffLimitExceeded",
            message="exit code 1 — “out of memory”\x00\n🙂",
            restarts=3,
            disruptions=2,
            result='{"loss": 0.5}',
            seen=95,
        )
        amounts = {"cpu": 2**62, "memory": 2**63 - 1, GPU: 8}
        first = hold("u1", 10, 40, charge=amounts, unpaid={GPU: 2}, workers=4, running=12, ended="Resized", others=3)
        sums = {"memory": 10**26, GPU: 7}
        second = merged("u1", "2-3,5", 40, 80, 0, seconds=sums, unpaid_seconds={"memory": 10**25}, is_approximate=True)
        third = pod("p1", "u1", 90, None, charge=amounts, is_approximate=True)
        assert store.write([full, first, second, third, wait("u1", 0, 10)]) == 5
        (record,) = store.jobs(JobQuery(uid="u1"))
        assert record.job == replace(full, message=full.message.replace("\x00", "\ufffd")) or record.job == full
        assert (record.holds, record.pods) == ((first, second), (third,))

    def test_a_row_that_is_written_twice_changes_nothing(self, store: HistoryStore) -> None:
        rows: list[Row] = [
            job("u1"),
            hold("u1", 5, None),
            merged("u1", "2-3", 9, 10, 4),
            wait("u1", 0, 5),
            pod("p1", "u1", 9, None),
            QueueRow(name="a", start=0, version=1, weight=2),
            PoolRow(start=0, amounts={GPU: 8}),
            GapRow(start=1, end=2),
        ]
        assert store.write([*rows, *rows]) == len(rows)
        assert store.write(rows) == 0

    def test_nothing_to_write_is_no_error(self, store: HistoryStore) -> None:
        assert store.write([]) == 0

    def test_a_newer_version_wins_in_any_order(self, store: HistoryStore) -> None:
        new, old = job("u1", 1_000_000_000_000, ended=9, outcome="Failed"), job("u1", 999)
        assert store.write([new]) == 1
        assert store.write([old]) == 0
        assert store.write([old, new, old]) == 0
        assert the_job(store, "u1") == new

    @pytest.mark.parametrize("rows", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
    def test_of_one_version_an_exact_end_wins_over_an_approximate_one_and_any_end_over_none(
        self, store: HistoryStore, rows: tuple[int, ...]
    ) -> None:
        ends = ((None, False), (7, True), (6, False))
        for at in rows:
            end, is_approximate = ends[at]
            store.write(
                [
                    job("u1", ended=end, is_approximate=is_approximate),
                    hold("u1", 5, end, is_approximate=is_approximate),
                    pod("p1", "u1", 5, end, is_approximate=is_approximate),
                ]
            )
        (record,) = store.jobs(JobQuery())
        assert (record.job.ended, record.holds[0].end, record.pods[0].end) == (6, 6, 6)

    def test_a_gap_that_is_cut_shorter_replaces_the_longer_one(self, store: HistoryStore) -> None:
        store.write([GapRow(start=5, end=20)])
        assert store.write([GapRow(start=5, end=12)]) == 1
        assert store.write([GapRow(start=5, end=15)]) == 0
        assert store.gaps(ALL) == [GapRow(start=5, end=12)]

    def test_what_is_recorded_never_goes_back(self, store: HistoryStore) -> None:
        assert store.recorded_until() == 0
        for moment in (50, 40):
            store.record_until(moment)
        assert store.recorded_until() == 50

    def test_a_resize_changes_amounts_and_not_only_times(self, store: HistoryStore) -> None:
        store.write([job("u1"), hold("u1", 0, None, charge={GPU: 8, "cpu": 1000})])
        store.write([job("u1", 2), hold("u1", 0, 10, charge={GPU: 4}, version=2)])
        assert held(store) == {GPU: 40}


class TestOpenRows:
    def test_open_rows_are_those_without_an_end(self, store: HistoryStore) -> None:
        open_hold = hold("u1", 5, None, number=2)
        store.write([job("u1"), hold("u1", 0, 5), open_hold, job("u2", ended=4), hold("u2", 0, None), job("u3")])
        store.write([pod("p1", "u2", 4, None), pod("p2", "u2", 4, 9)])
        assert [(each.row.uid, each.holds) for each in store.open_jobs()] == [("u1", (open_hold,)), ("u3", ())]
        assert [each.uid for each in store.open_pods()] == ["p1"]


class TestSeveralHolds:
    PARTS = (hold("u1", 0, 10, 1), hold("u1", 10, 20, 2, number=2), hold("u1", 20, 30, 3, number=3))
    WHOLE = merged("u1", "1-3", 0, 30, 60)

    def test_they_are_not_stored_where_all_of_them_are_known(self, store: HistoryStore) -> None:
        store.write([job("u1"), *self.PARTS])
        assert store.write([self.WHOLE]) == 0
        assert the_holds(store, "u1") == list(self.PARTS)

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_they_take_the_place_of_those_that_are_there_where_one_is_missing(
        self, store: HistoryStore, missing: int
    ) -> None:
        later = hold("u1", 30, 40, 4, number=4)
        store.write([job("u1"), *(part for at, part in enumerate(self.PARTS) if at != missing), later])
        assert store.write([self.WHOLE]) == 1
        assert the_holds(store, "u1") == [self.WHOLE, later]
        assert held(store) == {GPU: 100}

    def test_a_part_whose_end_is_not_known_exactly_is_missing(self, store: HistoryStore) -> None:
        guessed = replace(self.PARTS[1], end=25, is_approximate=True)
        store.write([job("u1"), self.PARTS[0], guessed, self.PARTS[2], self.WHOLE])
        assert the_holds(store, "u1") == [self.WHOLE]
        store.write([replace(self.PARTS[1], version=2)])
        assert the_holds(store, "u1")[0] == self.PARTS[0]
        assert held(store) == {GPU: 60}

    def test_parts_that_come_later_take_their_place_once_all_are_there(self, store: HistoryStore) -> None:
        store.write([job("u1"), self.WHOLE, *self.PARTS[:2]])
        assert the_holds(store, "u1") == [self.WHOLE]
        store.write([self.PARTS[2]])
        assert the_holds(store, "u1") == list(self.PARTS)

    def test_more_of_them_take_the_place_of_fewer(self, store: HistoryStore) -> None:
        more = merged("u1", "1-4,6", 0, 60, 200)
        between = hold("u1", 40, 50, 1, number=5, queue="b")
        store.write([job("u1"), more, self.WHOLE, between])
        assert the_holds(store, "u1") == [between, more]
        assert store.write([self.WHOLE]) == 0

    def test_parts_of_adjacent_spans_add_up_to_the_sum(self, store: HistoryStore) -> None:
        store.write([job("u1"), merged("u1", "1-3", 0, 7, 10**26 + 1)])
        parts = [held(store, Span(start, start + 1)).get(GPU, 0) for start in range(9)]
        assert (sum(parts), max(parts) - min(parts[:7])) == (10**26 + 1, 1)


class TestJobs:
    @pytest.fixture(autouse=True)
    def _written(self, store: HistoryStore) -> None:
        store.write(
            [
                job("u1", created=10, ended=20, outcome="Succeeded", user="ann", name="same"),
                job("u2", created=30, namespace="blue", queue="b", user="bob", name="same"),
                job("u3", created=30, ended=50, outcome="Failed"),
                job("u4", created=60),
                hold("u4", 80, None, number=2),
                hold("u4", 70, 80),
            ]
        )

    @pytest.mark.parametrize(
        ("query", "uids"),
        [
            (JobQuery(), ["u4", "u3", "u2", "u1"]),
            (JobQuery(namespaces=frozenset({"blue"})), ["u2"]),
            (JobQuery(namespaces=frozenset()), []),
            (JobQuery(name="same"), ["u2", "u1"]),
            (JobQuery(name="same", namespaces=frozenset({"red", "green"})), ["u1"]),
            (JobQuery(uid="u3"), ["u3"]),
            (JobQuery(queue="b"), ["u2"]),
            (JobQuery(user="ann"), ["u1"]),
            (JobQuery(outcome="Failed"), ["u3"]),
            (JobQuery(span=Span(20, 30)), ["u1"]),
            (JobQuery(span=Span(21, 31)), ["u3", "u2"]),
            (JobQuery(span=Span(51, 60)), ["u2"]),
            (JobQuery(limit=2), ["u4", "u3"]),
            (JobQuery(limit=2, after=(30, "u3")), ["u2", "u1"]),
            (JobQuery(after=(10, "u1")), []),
            (JobQuery(name="' OR 1=1 --"), []),
        ],
    )
    def test_jobs_answers_the_query_newest_first(self, store: HistoryStore, query: JobQuery, uids: list[str]) -> None:
        assert [record.job.uid for record in store.jobs(query)] == uids

    def test_jobs_are_counted_without_the_limit(self, store: HistoryStore) -> None:
        found = [store.count_jobs(JobQuery(name=name, limit=1)) for name in ("same", "nothing")]
        assert found == [2, 0]

    def test_a_job_has_its_holds_by_number(self, store: HistoryStore) -> None:
        assert [each.number for each in the_holds(store, "u4")] == [1, 2]

    def test_pages_have_each_job_once_while_new_jobs_come(self, store: HistoryStore) -> None:
        store.write(job(f"x{number}", created=number % 7, name="page") for number in range(100))
        seen: list[str] = []
        after = None
        for number in range(34):
            page = store.jobs(JobQuery(name="page", limit=3, after=after))
            seen += [record.job.uid for record in page]
            after = (page[-1].job.created, page[-1].job.uid)
            store.write([job(f"later{number}", created=1000 + number, name="page")])
        assert (len(seen), len(set(seen))) == (100, 100)


class TestSums:
    def test_sums_are_kept_apart_by_queue_namespace_and_user(self, store: HistoryStore) -> None:
        store.write(
            [
                job("u1", user="ann", ended=20, outcome="Failed"),
                hold("u1", 0, 10, 2, unpaid={GPU: 1}),
                hold("u1", 10, 20, 3, number=2, queue="b"),
                job("u2", namespace="blue"),
                hold("u2", 0, None, 5),
                job("u3", user="ann"),
                hold("u3", 5, 6, 1, charge={GPU: 1, "cpu": 500, "nothing": 0}),
            ]
        )
        assert store.sums(Span(0, 100), 30) == [
            GroupSums(key=GroupKey("a", "blue", ""), held={GPU: 150}, unpaid={}, failed={}, jobs=1),
            GroupSums(
                key=GroupKey("a", "red", "ann"), held={GPU: 21, "cpu": 500}, unpaid={GPU: 10}, failed={GPU: 20}, jobs=2
            ),
            GroupSums(key=GroupKey("b", "red", "ann"), held={GPU: 30}, unpaid={}, failed={GPU: 30}, jobs=1),
        ]

    def test_a_job_with_several_holds_in_a_queue_counts_once(self, store: HistoryStore) -> None:
        store.write([job("u1"), hold("u1", 0, 5), hold("u1", 8, 9, number=2), pod("p1", "u1", 9, 12)])
        assert [group.jobs for group in store.sums(ALL, 30)] == [1]

    @pytest.mark.parametrize(
        ("span", "seconds"),
        [((0, 10), 0), ((0, 11), 1), ((10, 20), 10), ((15, 16), 1), ((19, 99), 1), ((20, 99), 0), ((0, 99), 10)],
    )
    def test_a_hold_counts_from_its_start_to_before_its_end(
        self, store: HistoryStore, span: tuple[int, int], seconds: int
    ) -> None:
        store.write([job("u1"), hold("u1", 10, 20)])
        assert held(store, Span(*span)).get(GPU, 0) == seconds

    def test_an_open_hold_counts_to_now_and_a_clock_that_is_off_never_below_zero(self, store: HistoryStore) -> None:
        store.write([job("u1"), hold("u1", 10, None), job("u2"), hold("u2", 30, 20), job("u3"), hold("u3", 50, None)])
        assert [held(store, now=now).get(GPU, 0) for now in (9, 10, 25)] == [0, 0, 15]

    def test_sums_pass_every_integer_of_a_database(self, store: HistoryStore) -> None:
        store.write(row for at in range(9) for row in (job(f"u{at}"), hold(f"u{at}", 0, 40, 2**63 - 1)))
        store.write([job("whole"), merged("whole", "1-2", 0, 40, 10**30)])
        assert held(store) == {GPU: 9 * 40 * (2**63 - 1) + 10**30}

    def test_pods_that_outlive_their_job_count_for_its_user(self, store: HistoryStore) -> None:
        store.write([job("u1", user="ann", ended=10, outcome="Failed"), pod("p1", "u1", 10, None, 4, queue="b")])
        assert store.sums(Span(0, 15), 20) == [
            GroupSums(key=GroupKey("b", "red", "ann"), held={GPU: 20}, unpaid={}, failed={GPU: 20}, jobs=1)
        ]

    def test_a_pod_counts_whose_job_is_not_known(self, store: HistoryStore) -> None:
        store.write([pod("p1", "gone", 10, 12, 4)])
        assert store.sums(ALL, 20) == [GroupSums(key=RED, held={GPU: 8}, unpaid={}, failed={}, jobs=1)]


class TestWaits:
    def test_a_first_wait_is_all_that_a_job_waited_before_it_first_held_room(self, store: HistoryStore) -> None:
        store.write(
            [
                job("u1"),
                wait("u1", 0, 10),
                wait("u1", 20, None),
                wait("u1", 90, 95),
                hold("u1", 50, 60),
                hold("u1", 95, None, number=2),
                job("u2", namespace="blue", user="bob"),
                hold("u2", 55, None, queue="b"),
                hold("u2", 51, 52, number=2, queue="b"),
                job("u3"),
                wait("u3", 0, None),
                job("u4", user="eve"),
                wait("u4", 45, 52),
                hold("u4", 54, None, number=3),
                merged("u4", "1-2", 52, 54, 4),
            ]
        )
        first = {RED: [40], GroupKey("b", "blue", "bob"): [0], GroupKey("a", "red", "eve"): [7]}
        assert store.first_waits(Span(50, 56)) == first
        assert store.first_waits(Span(50, 54)) == {RED: [40], GroupKey("a", "red", "eve"): [7]}
        assert store.first_waits(Span(90, 100)) == {}
        assert store.first_waits(Span(0, 55)) == {RED: [40], GroupKey("a", "red", "eve"): [7]}

    def test_demands_are_the_longest_times_that_do_not_touch(self, store: HistoryStore) -> None:
        store.write(
            [
                job("u1"),
                wait("u1", 0, 10),
                hold("u1", 10, 20),
                wait("u1", 25, 30, queue="b"),
                job("u2"),
                hold("u2", 2, 5),
                hold("u2", 22, None, number=2),
                wait("u2", 21, 21),
                wait("u2", 60, 50),
            ]
        )
        assert store.demands(Span(1, 40), 35) == [Demand("a", 1, 20), Demand("a", 22, 35), Demand("b", 25, 30)]
        assert store.demands(Span(1, 30), 35) == [Demand("a", 1, 20), Demand("a", 22, 30), Demand("b", 25, 30)]
        assert store.demands(Span(20, 22), 35) == []

    def test_a_wait_is_over_when_the_next_row_begins_or_the_job_ends(self, store: HistoryStore) -> None:
        sights = [wait("u1", 0, None), wait("u1", 10, 10), wait("u1", 20, None), hold("u1", 12, 18)]
        store.write([job("u1"), *sights, job("u2"), wait("u2", 25, 27), wait("u2", 8, 12, queue="b")])
        assert store.waits(Span(5, 60), 50) == [Span(5, 12), Span(20, 50)]
        store.write([job("u1", 2, ended=30)])
        assert store.waits(Span(5, 60), 50) == [Span(5, 12), Span(20, 30)]
        assert store.first_waits(ALL) == {RED: [10]}
        assert store.demands(Span(5, 60), 50) == [
            Demand("a", 5, 10),
            Demand("a", 12, 18),
            Demand("a", 20, 30),
            Demand("b", 8, 12),
        ]
        (first, _) = store.jobs(JobQuery())[::-1]
        assert [row.start for row in first.waits] == [0, 10, 20]
        assert store.waits(Span(30, 40), 50) == []

    def test_what_was_held_while_others_waited_is_cut_by_their_times(self, store: HistoryStore) -> None:
        whole = merged("u1", "1-2", 0, 10, 100)
        store.write([job("u1"), whole, job("u2"), hold("u2", 5, None, 3, unpaid={GPU: 1}), pod("p1", "u1", 10, 12, 50)])
        assert store.held_while([Span(-5, 1), Span(4, 6), Span(11, 99)], 15) == {GPU: 10 + 20 + 3 + 50 + 12}
        cut = [Span(at, at + 1) for at in (0, 4, 5, 11, 12, 14)]
        assert store.held_while(cut, 15) == {GPU: 10 + 10 + 13 + 53 + 3 + 3}
        assert store.held_while([], 15) == {}

    def test_a_hold_that_does_not_count_is_no_demand(self, store: HistoryStore) -> None:
        store.write([job("u1"), hold("u1", 0, 90, queue="b"), merged("u1", "1-2", 10, 20, 5)])
        assert store.demands(ALL, 50) == [Demand("a", 10, 20)]


class TestWeightsPoolsAndGaps:
    def test_weights_and_pools_are_those_of_the_span_and_the_last_from_before(self, store: HistoryStore) -> None:
        weights = [QueueRow(name="a", start=start, version=start, weight=start) for start in (1, 5, 9)]
        others = [QueueRow(name="b", start=7, version=1, weight=1), QueueRow(name="c", start=1, version=1, weight=0)]
        pools = [PoolRow(start=start, amounts={GPU: 2**62} if start else {}) for start in (0, 5, 9)]
        store.write([*weights, *others, *pools])
        assert store.queues(Span(6, 9)) == [weights[1], *others]
        assert store.queues(Span(5, 10)) == [weights[1], weights[2], *others]
        assert store.queues(Span(0, 1)) == []
        assert store.pools(Span(4, 9)) == pools[:2]
        assert store.pools(Span(9, 10)) == pools[2:]

    def test_a_queue_changes_its_weight_in_a_newer_version(self, store: HistoryStore) -> None:
        store.write([QueueRow(name="a", start=1, version=5, weight=3)])
        store.write([QueueRow(name="a", start=1, version=4, weight=2)])
        assert [row.weight for row in store.queues(ALL)] == [3]

    def test_gaps_are_those_that_touch_the_span(self, store: HistoryStore) -> None:
        gaps = [GapRow(start=0, end=5), GapRow(start=8, end=12), GapRow(start=20, end=30)]
        store.write(gaps)
        assert store.gaps(Span(5, 20)) == gaps[1:2]
        assert store.gaps(Span(4, 21)) == gaps


class TestPrune:
    def test_jobs_that_ended_before_a_time_go_with_their_rows_oldest_first(self, store: HistoryStore) -> None:
        for number in range(5):
            uid = f"u{number}"
            store.write([job(uid, ended=10 + number), hold(uid, 0, 9), wait(uid, 0, 1), pod(f"p{number}", uid, 9, 10)])
        store.write([job("open"), hold("open", 0, None), merged("u1", "2-3", 0, 9, 1)])
        assert [store.prune(13, 2), names(store, JobQuery())] == [2, ["u4", "u3", "u2", "open"]]
        assert [store.prune(13, 2), names(store, JobQuery())] == [1, ["u4", "u3", "open"]]
        assert store.prune(13, 2) == 0
        assert held(store, Span(0, 10), 10) == {GPU: 10 + 9 + 9}
        assert store.demands(ALL, 9) == [Demand("a", 0, 9)]

    def test_a_pod_stays_until_its_own_end_is_old_and_so_does_its_job(self, store: HistoryStore) -> None:
        store.write([job("u1", ended=5), pod("p1", "u1", 5, None), pod("p2", "u1", 5, 50), pod("p3", "gone", 5, 8)])
        assert store.prune(40, 100) == 0
        assert held(store, Span(0, 60), 60) == {GPU: 55 + 45}
        assert (store.prune(51, 100), names(store, JobQuery())) == (0, ["u1"])
        assert held(store, Span(0, 60), 60) == {GPU: 55}
        store.write([pod("p1", "u1", 5, 60, version=2)])
        assert (store.prune(61, 100), store.prune(61, 100), names(store, JobQuery())) == (1, 0, [])

    def test_weights_pools_and_gaps_stay_while_a_later_time_needs_them(self, store: HistoryStore) -> None:
        weights = [QueueRow(name="a", start=start, version=1, weight=start) for start in (1, 5, 9)]
        deleted = [QueueRow(name="b", start=start, version=1, weight=weight) for start, weight in ((1, 1), (4, 0))]
        pools = [PoolRow(start=start, amounts={GPU: start}) for start in (1, 5, 9)]
        gaps = [GapRow(start=1, end=2), GapRow(start=2, end=7)]
        store.write([*weights, *deleted, *pools, *gaps])
        store.prune(6, 100)
        assert (store.queues(Span(0, 99)), store.pools(Span(0, 99))) == (weights[1:], pools[1:])
        assert store.gaps(Span(0, 99)) == gaps[1:]
        store.prune(6, 100)
        assert store.queues(Span(6, 99)) == weights[1:]


def test_pods_are_given_with_their_job_by_start(store: HistoryStore) -> None:
    pods: list[PodRow] = [pod("p2", "u1", 9, 12), pod("p1", "u1", 10, None)]
    store.write([job("u1"), *reversed(pods), pod("p3", "u2", 1, 2)])
    (record,) = store.jobs(JobQuery())
    assert list(record.pods) == pods
