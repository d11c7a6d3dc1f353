"""The page of usage: the table of the command with bars, and its CSV."""

import csv
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cli.output import TableOptions
from coordinator.dashboard.pages import usage
from coordinator.dashboard.pages.usage import UsageLoaded
from coordinator.query import history_answers
from coordinator.query.questions import Document
from coordinator.wording import history_columns
from history import spans
from history.rows import PoolRow, QueueRow
from tests.coordinator.dashboard.queue_scene import FakeServers, asked, bounds, html, reading, values
from tests.doubles.memory_history import MemoryHistory
from tests.support.history_rows import GPU, hold, job, wait

T = 1_793_491_200
"""The beginning of November 2026."""
NOW = T + 20_000


def document(namespaces: frozenset[str] | None = None, queues: int = 2, **query: str) -> Document:
    store = MemoryHistory()
    store.write([PoolRow(start=T, amounts={GPU: 8})])
    for number in range(queues):
        uid, queue = f"u{number}", f"q{number}"
        namespace = "red" if number else "blue"
        store.write(
            [
                QueueRow(name=queue, start=T, version=1, weight=1),
                job(uid, created=T, queue=queue, namespace=namespace, user=f"user{number}"),
                wait(uid, T, T + 60, queue=queue),
                hold(uid, T + 60, None, number + 1, queue=queue),
            ]
        )
    store.record_until(NOW)
    return history_answers.answer_usage(store, query, namespaces, NOW, {GPU: Decimal(2)}, "dominant")


def page(loaded: UsageLoaded, **parameters: str) -> Any:
    found = usage.page(asked(reading(), loaded=loaded, **parameters))
    html(found)
    return found


def test_rows_have_the_cells_of_the_command_and_a_bar() -> None:
    told = document()
    found = page(UsageLoaded(told))
    shape = [column for column in history_columns.usage_columns(told) if not column.wide]
    expected = [[str(column.text(line)) for column in shape] for line in history_columns.usage_lines(told)]
    rows = values(found, "usage")
    assert [[row.name, *(cell.text for cell in row.cells)] for row in rows] == expected
    assert [heading.text for heading in values(found, "usage-head")[0]][:4] == ["Queue", "Jobs", "GPU-hours", "Share"]
    assert [(row.bar.label, row.bar.tick) for row in rows] == [
        ("share 33%, target 50%", 50),
        ("share 67%, target 50%", 50),
    ]


def test_the_pool_is_one_bar_with_the_line_of_the_command() -> None:
    told = document()
    ((words, bar),) = values(page(UsageLoaded(told)), "cluster")
    assert words == bar.label == history_columns.cluster_line(told, spans.parse_zone("UTC"))
    assert sum(each.length for each in bar.segments) == 100
    ((words, bar),) = values(page(UsageLoaded(told | {"cluster": None})), "cluster")
    assert (bar, "not known" in words) == (None, True)


def test_others_are_the_last_line() -> None:
    rows = values(page(UsageLoaded(document(frozenset({"red"})))), "usage")
    assert [row.name for row in rows] == ["q1", history_columns.OTHERS]


def test_the_address_sorts_and_cuts() -> None:
    told = document(queues=60)
    assert values(page(UsageLoaded(told), sort="-gpu-hours"), "usage")[0].name == "q59"
    found = page(UsageLoaded(told), page="2", by="queue", sort="queue")
    assert len(values(found, "usage")) == 10
    assert values(found, "usage-pager")[0][0].previous == "/usage?by=queue&sort=queue"


def test_the_sheet_is_that_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    told = document(by="user")
    found = usage.sheet(asked(reading(), loaded=UsageLoaded(told), by="user"))
    TableOptions(form="csv").show(history_columns.usage_columns(told), history_columns.usage_lines(told))
    assert found.download is not None
    assert found.download.text == capsys.readouterr().out
    assert (found.download.name, found.download.kind) == ("usage-2026-11-01-user.csv", "text/csv")
    assert [row[0] for row in csv.reader(found.download.text.splitlines())] == ["USER", "user0", "user1"]
    assert usage.sheet(asked(reading(), loaded=UsageLoaded(problem="no recorder"))).download is None


def test_a_span_without_jobs_says_so() -> None:
    told = document(queues=0)
    assert values(page(UsageLoaded(told)), "usage-pager")[0][2] == "No job has held room in this time."


class TestLoad:
    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({"month": "2026-13"}, "month: '2026-13' is not a month"),
            ({"since": "yesterday"}, "since: 'yesterday' is not a time"),
            ({"until": "2026-11-20"}, "until: name since, too"),
            ({"by": "node"}, "by: 'node' is none of queue, namespace, user"),
            ({"tz": "Mars"}, "tz: 'Mars' is not a time zone"),
            ({"month": "2026-11", "since": "7d"}, "month: name a month, or a time"),
            ({"since": "<script>" * 1000}, "since: '<script>"),
        ],
    )
    def test_a_wrong_address_is_named_in_the_words_of_the_command_and_nobody_is_asked(
        self, parameters: dict[str, str], words: str
    ) -> None:
        servers = FakeServers(past=lambda _: document())
        loaded = usage.load(servers.visitor(), parameters)
        assert loaded.wrong.startswith(words)
        assert servers.noted == []
        assert values(page(loaded, **parameters), "wrong") == [loaded.wrong]

    def test_the_recorder_is_asked_once_for_a_span(self) -> None:
        servers = FakeServers(past=lambda _: document())
        visitor = servers.visitor()
        for _ in range(3):
            assert usage.load(visitor, {"since": "7d", "by": "user", "x": "y"}).document
        assert servers.noted == ["/v1/usage?by=user&since=7d"]

    def test_figures_of_namespaces_are_not_kept_for_a_visitor_who_may_not_list_them_any_more(self) -> None:
        told, servers = [bounds("blue", "red"), bounds("blue")], FakeServers(past=lambda _: document())
        visitor = replace(servers.visitor(), bounds=lambda _: told[0])
        usage.load(visitor, {})
        told.pop(0)
        usage.load(visitor, {})
        assert servers.noted == ["/v1/usage?"] * 2

    def test_without_a_recorder_the_page_says_how_to_get_one(self) -> None:
        loaded = usage.load(FakeServers().visitor(), {})
        found = page(loaded)
        assert values(found, "missing") == ["no recorder keeps the history: recorder.enabled of the chart starts one"]
        assert values(found, "usage") == []


TEXTS = st.text(max_size=60) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "=1+1"])


@given(TEXTS, st.dictionaries(st.sampled_from(["by", "month", "since", "until", "tz", "sort", "page"]), TEXTS))
def test_hostile_names_and_addresses_stay_text(name: str, parameters: dict[str, str]) -> None:
    told = document()
    told["items"][0]["name"] = name
    loaded = usage.load(FakeServers().visitor(), parameters)
    for each in (loaded, UsageLoaded(told), UsageLoaded(problem=name)):
        text = html(page(each, **parameters))
        assert "<script>alert" not in text
        assert "<img" not in text
