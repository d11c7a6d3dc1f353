"""The answers about the history, as documents."""

from decimal import Decimal
from typing import Any

import orjson
import pytest

from coordinator.query import history_answers
from coordinator.query.questions import Document, UnknownObject
from crds import timestamps
from history.errors import InvalidQuery
from history.rows import GapRow, PoolRow, QueueRow, Row
from tests.doubles.memory_history import MemoryHistory
from tests.support.history_rows import GPU, hold, job, merged, pod, wait

T = 1_793_491_200
"""The beginning of November 2026."""
NOW = T + 20_000
HOUR = 3600


def stored(*rows: Row, until: int = NOW) -> MemoryHistory:
    store = MemoryHistory()
    store.write(rows)
    store.record_until(until)
    return store


def jobs(store: MemoryHistory, namespaces: frozenset[str] | None = None, **query: str) -> list[Document]:
    return list(history_answers.answer_jobs(store, query, namespaces, NOW)["items"])


def usage(store: MemoryHistory, namespaces: frozenset[str] | None = None, **query: str) -> Document:
    return history_answers.answer_usage(store, query, namespaces, NOW, {GPU: Decimal(1)}, "dominant")


def at(seconds: int) -> str:
    return timestamps.format_time(seconds)


class TestJobs:
    def test_are_told_with_what_they_held_and_for_how_long_they_waited(self) -> None:
        store = stored(
            job("u1", created=T, ended=T + 5000, outcome="Failed", restarts=2, message="exit code 1"),
            wait("u1", T, T + 700),
            hold("u1", T + 700, T + 1700, 8, charge={GPU: 8, "cpu": 2000, "jobs": 1}),
            hold("u1", T + 2000, T + 5000, 2, number=2, attempt=2),
            pod("p1", "u1", T + 5000, T + 5100),
        )
        (found,) = jobs(store)
        assert (found["state"], found["submitted"], found["ended"]) == ("Failed", at(T), at(T + 5000))
        assert (found["waitedSeconds"], found["heldSeconds"], found["attempts"]) == (700, 4000, 2)
        assert found["held"]["seconds"] == {"cpu": "2000000", "jobs": "1000", GPU: str(8 * 1000 + 2 * 3000 + 100)}
        assert found["held"]["gpuHours"] == round(14_100 / HOUR, 4)

    def test_count_to_what_is_recorded_and_not_beyond(self) -> None:
        store = stored(job("u1", created=T), hold("u1", T, None, running=T + 10), until=T + 1000)
        (found,) = jobs(store)
        assert (found["state"], found["heldSeconds"], found["ended"]) == ("Running", 1000, None)

    def test_that_wait_end_their_waits_where_the_next_one_begins(self) -> None:
        store = stored(job("u1", created=T), wait("u1", T, None), wait("u1", T + 50, T + 50), wait("u1", T + 100, None))
        (found,) = jobs(store)
        assert (found["state"], found["waitedSeconds"]) == ("Waiting", 50 + NOW - T - 100)

    def test_whose_holds_were_merged_keep_their_sums(self) -> None:
        sums = {GPU: 10**30, "jobs": 500}
        (found,) = jobs(stored(job("u1", created=T), merged("u1", "1-3", T, T + 9000, 0, seconds=sums)))
        assert found["held"]["seconds"][GPU] == str(10**30)
        assert found["heldSeconds"] == 500
        assert orjson.dumps(found)

    def test_whose_end_was_not_seen_say_to_how_many_seconds_it_is_known(self) -> None:
        lost = [
            job(f"u{end}", created=T + end, ended=T + end, outcome="Deleted", is_approximate=True) for end in (100, 900)
        ]
        store = stored(*lost, GapRow(start=T + 100, end=T + 820), GapRow(start=T + 900, end=T + 990))
        assert [(each["isApproximate"], each["endKnownToSeconds"]) for each in jobs(store)] == [(True, 90), (True, 720)]

    def test_come_page_by_page(self) -> None:
        store = stored(*(job(f"u{number}", created=T + number // 2) for number in range(7)))
        names, query = [], {"limit": "3"}
        while True:
            page = history_answers.answer_jobs(store, query, None, NOW)
            names += [each["name"] for each in page["items"]]
            if not page["continue"]:
                break
            query["continue"] = page["continue"]
        assert names == [f"u{number}" for number in reversed(range(7))]

    def test_of_other_namespaces_are_not_told(self) -> None:
        store = stored(job("u1", created=T), job("u2", created=T, namespace="blue"))
        assert [each["name"] for each in jobs(store, frozenset({"red"}))] == ["u1"]
        assert jobs(store, frozenset({"red"}), namespace="blue") == []
        assert [each["name"] for each in jobs(store, None, namespace="blue")] == ["u2"]

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ({"outcome": "Lost"}, "outcome: 'Lost' is none of Succeeded"),
            ({"limit": "0"}, "limit: '0' is not a number from 1 to 500"),
            ({"limit": "²"}, "limit: "),
            ({"continue": "u1"}, "continue: 'u1' is not what an answer has given"),
            ({"since": "x"}, "since: 'x' is not a time"),
            ({"tz": "Moon"}, "tz: 'Moon' is not a time zone"),
        ],
    )
    def test_are_refused_in_words_for_a_wrong_query(self, query: dict[str, str], words: str) -> None:
        with pytest.raises(InvalidQuery, match=words):
            jobs(stored(), **query)


class TestJob:
    def test_is_the_newest_of_its_name_and_names_the_others(self) -> None:
        store = stored(*(job(f"u{number}", name="digits", created=T + number) for number in range(15)))
        found = history_answers.answer_job(store, "red", "digits", "", NOW)
        assert found["uid"] == "u14"
        assert [each["uid"] for each in found["others"]] == [f"u{number}" for number in range(13, 3, -1)]
        assert found["otherCount"] == 14
        assert history_answers.answer_job(store, "red", "digits", "u0", NOW)["uid"] == "u0"

    @pytest.mark.parametrize("count", [1, history_answers.MOST_EARLIER + 1])
    def test_that_is_named_by_its_uid_counts_no_other_job_twice(self, count: int) -> None:
        store = stored(*(job(f"u{number:02}", name="digits", created=T + number) for number in range(count)))
        for each in (f"u{number:02}" for number in range(count)):
            found = history_answers.answer_job(store, "red", "digits", each, NOW)
            assert (len(found["others"]), found["otherCount"]) == (count - 1, count - 1)

    def test_has_each_hold(self) -> None:
        first = hold("u1", T, T + 100, 8, workers=2, running=T + 5, ended="Resized", unpaid={GPU: 4}, others=3)
        store = stored(job("u1", created=T), first, hold("u1", T + 100, None, 4, number=2))
        one, two = history_answers.answer_job(store, "red", "u1", "", NOW)["holds"]
        assert one["charge"] == {GPU: "8"}
        assert (one["unpaid"], one["idleGrowth"]["seconds"]) == ({GPU: "4"}, {GPU: "400"})
        assert (one["workers"], one["ended"], one["to"], one["otherResources"]) == (2, "Resized", at(T + 100), 3)
        assert (two["to"], two["held"]["seconds"]) == (None, {GPU: str(4 * (NOW - T - 100))})

    def test_lists_the_newest_holds_and_pods_and_counts_all(self) -> None:
        most = history_answers.MOST_HOLDS
        times = [(number, T + number, T + number + 1) for number in range(1, most + 3)]
        holds = [hold("u1", start, end, number=number) for number, start, end in times]
        pods = [pod(f"p{number:04}", "u1", start, end) for number, start, end in times]
        found = history_answers.answer_job(stored(job("u1", created=T), *holds, *pods), "red", "u1", "", NOW)
        assert [found["holds"][at]["number"] for at in (0, -1)] == [3, most + 2]
        assert (len(found["holds"]), found["holdCount"]) == (len(found["pods"]), found["podCount"]) == (most, most + 2)
        assert found["held"]["seconds"] == {GPU: str(2 * (most + 2))}

    @pytest.mark.parametrize(
        "name", [("red", "nothing", ""), ("red", "", ""), ("red", "", "u1"), ("blue", "u1", ""), ("red", "u1", "u2")]
    )
    def test_that_is_not_there_is_an_error_in_words(self, name: tuple[str, str, str]) -> None:
        store = stored(job("u1", created=T))
        with pytest.raises(UnknownObject, match=r"there is no job .* in the history"):
            history_answers.answer_job(store, *name, NOW)


class TestUsage:
    rows = (
        PoolRow(start=T, amounts={GPU: 16}),
        QueueRow(name="a", start=T, version=1, weight=3),
        QueueRow(name="b", start=T, version=1, weight=1),
        job("u1", created=T, user="ann"),
        wait("u1", T, T + 10_000),
        hold("u1", T + 10_000, None, 8, unpaid={GPU: 4}),
        job("u2", created=T, ended=T + 20_000, outcome="Failed", queue="b", namespace="blue", user="bob"),
        hold("u2", T, T + 20_000, 4, queue="b"),
        GapRow(start=T + 300, end=T + 400),
    )

    def test_adds_up_what_each_queue_held_was_entitled_to_and_costs(self) -> None:
        found = usage(stored(*self.rows))
        a, b = found["items"]
        assert (a["name"], a["held"]["seconds"], a["idleGrowth"]["seconds"]) == ("a", {GPU: "80000"}, {GPU: "40000"})
        assert (b["held"]["seconds"], b["failed"]["seconds"]) == ({GPU: "80000"}, {GPU: "80000"})
        assert [(line["sharePercent"], line["targetPercent"]) for line in (a, b)] == [(33, 75), (67, 25)]
        assert [line["price"] for line in (a, b)] == [round(40_000 / HOUR, 4), round(80_000 / HOUR, 4)]
        assert a["waitSeconds"] == {"p50": 10_000, "p95": 10_000}
        assert found["others"] is None

    def test_says_what_became_of_the_pool(self) -> None:
        cluster = usage(stored(*self.rows))["cluster"]
        assert cluster["resource"] == "*/gpu"
        assert cluster["seconds"] == {
            "offered": str(16 * 20_000),
            "paid": "120000",
            "idleGrowth": "40000",
            "idleWhileWaiting": str(12 * 10_000),
            "idle": str(4 * 10_000),
        }
        assert cluster["percents"] == {"paid": 38, "idleGrowth": 13, "idleWhileWaiting": 37, "idle": 12}

    def test_begins_the_line_of_the_cluster_when_the_pool_is_known(self) -> None:
        known_late = [PoolRow(start=T + 15_000, amounts={GPU: 16}), *self.rows[1:]]
        found = usage(stored(*known_late))
        assert found["cluster"]["from"] == at(T + 15_000)
        assert found["cluster"]["seconds"]["paid"] == str(8 * 5000)
        assert found["items"][0]["held"]["seconds"] == {GPU: "80000"}

    def test_names_nothing_of_other_namespaces(self) -> None:
        found = usage(stored(*self.rows), frozenset({"red"}))
        assert [line["name"] for line in found["items"]] == ["a"]
        assert found["others"]["held"]["seconds"] == {GPU: "80000"}
        for by in ("queue", "namespace", "user"):
            text = orjson.dumps(usage(stored(*self.rows), frozenset({"red"}), by=by)).decode()
            assert not any(name in text for name in ('"b"', "blue", "bob", "u2"))

    def test_names_the_gaps_that_touch_the_span(self) -> None:
        assert usage(stored(*self.rows))["gaps"] == [{"from": at(T + 300), "to": at(T + 400)}]
        assert usage(stored(*self.rows), since=at(T + 400))["gaps"] == []

    def test_of_a_time_before_anything_was_recorded_is_empty(self) -> None:
        found = usage(stored(*self.rows), month="2026-10")
        assert (found["items"], found["cluster"], found["gaps"]) == ([], None, [])
        nothing = usage(MemoryHistory(), month="2026-11")
        assert (nothing["items"], nothing["cluster"]) == ([], None)

    def test_of_two_spans_adds_up_to_that_of_both(self) -> None:
        def gpus(**query: str) -> int:
            return sum(int(line["held"]["seconds"].get(GPU, 0)) for line in usage(stored(*self.rows), **query)["items"])

        cut = at(T + 12_345)
        assert gpus(since=at(T), until=cut) + gpus(since=cut) == gpus(since=at(T))

    @pytest.mark.parametrize(
        ("query", "words"),
        [
            ({"by": "nothing"}, "by: 'nothing' is none of queue, namespace, user"),
            ({"month": "2026-13"}, "month: '2026-13' is not a month"),
            ({"until": "1d"}, "until: name since, too"),
        ],
    )
    def test_is_refused_in_words_for_a_wrong_query(self, query: dict[str, Any], words: str) -> None:
        with pytest.raises(InvalidQuery, match=words):
            usage(stored(), **query)
