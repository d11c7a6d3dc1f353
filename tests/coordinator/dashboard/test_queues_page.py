"""The first page: what is wrong, the pool, the queues in their order, and the next picks."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.dashboard import changes, drawing, moments
from coordinator.dashboard.elements import Element
from coordinator.dashboard.pages import queues
from coordinator.dashboard.readings import queue_wait
from coordinator.query.questions import ANOTHER
from tests.coordinator.dashboard.queue_scene import ALIVE, GPU, NOW, asked, html, pick, queue, reading, values

BUSY = queue(
    "busy",
    spec={"weight": 3, "quota": {GPU: "8"}, "cohort": "all"},
    pending=2,
    admitted=1,
    usage={"jobs": "1", GPU: "12"},
    idleUsage={GPU: "2"},
    share="60%",
    target="75%",
    lag=1.5,
    oldestWaitSeconds=90.0,
)


def names(page: Any) -> list[str]:
    return [row.name for row in values(page, "queues")]


def test_a_row_has_the_words_of_the_command_and_bars() -> None:
    (row,) = values(queues.page(asked(reading([BUSY]))), "queues")
    assert (row.state, row.settings, row.lag) == ("Open", "weight 3, cohort all", "+1.50")
    assert (row.share, row.target, row.pending, row.admitted) == ("60%", "75%", 2, 1)
    assert row.oldest == "2026-01-01T00:58:30Z"
    assert row.used == "12 of 8"
    assert (row.share_bar.tick, row.share_bar.label) == (75, "share 60%, target 75%")
    assert [each.kind for each in row.usage_bar.segments] == ["used", "borrowed", "borrowed-idle"]
    assert row.usage_bar.label == ("GPUs: 12 of 8 used of the quota, 2 of that by idle growth, 2 beyond the quota")


def test_a_row_stays_as_it_is_while_nothing_happens() -> None:
    before = reading([BUSY])
    shown = changes.versions(drawing.draw(queues.page(asked(before))))
    waits = [(queue_wait("busy"), 91.4)]
    later = reading([BUSY | {"status": BUSY["status"] | {"oldestWaitSeconds": 91.4}}])
    later = replace(later, began=moments.began(waits, NOW + 1, before.began))
    assert changes.compare(shown, drawing.draw(queues.page(asked(later)))) == []
    admitted = replace(later, queues=(BUSY | {"status": BUSY["status"] | {"admitted": 2}},))
    (change,) = changes.compare(shown, drawing.draw(queues.page(asked(admitted))))
    assert change["id"] == "queue-busy"


@pytest.mark.parametrize(
    ("field", "value"),
    [("pending", 7), ("admitted", 7), ("usage", {GPU: "3"}), ("idleUsage", {GPU: "1"}), ("share", "7%"),
     ("target", "7%"), ("lag", 7.0), ("deleted", True), ("oldestWaitSeconds", 7.0), ("spec", {"weight": 7})],
)  # fmt: skip
def test_a_row_is_made_anew_for_all_that_it_shows_and_for_nothing_else(field: str, value: Any) -> None:
    def row(item: Any) -> Element:
        return queues.page(asked(reading([item]))).sections["queues"][0]

    before = row(BUSY)
    others = {"first": "team/other", "allocatable": {}, "conditions": [{"type": "Active"}]}
    metadata = BUSY["metadata"] | {"resourceVersion": "8"}
    assert row(BUSY | {"metadata": metadata, "status": BUSY["status"] | others}) is before
    changed = {"spec": value} if field == "spec" else {"status": BUSY["status"] | {field: value}}
    assert row(BUSY | changed) != before


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["b", "a", "c"]),
        ({"sort": "name"}, ["a", "b", "c"]),
        ({"sort": "-name"}, ["c", "b", "a"]),
        ({"sort": "-share"}, ["c", "a", "b"]),
        ({"sort": "share"}, ["b", "a", "c"]),
        ({"sort": "oldest"}, ["b", "a", "c"]),
        ({"sort": "age"}, ["b", "a", "c"]),
        ({"sort": "<script>", "page": "-7"}, ["b", "a", "c"]),
    ],
)
def test_the_address_sorts_and_busy_queues_are_first(parameters: dict[str, str], expected: list[str]) -> None:
    found = [queue("a", share="10%"), queue("b", pending=1, share="5%", oldestWaitSeconds=3.0), queue("c", share="85%")]
    assert names(queues.page(asked(reading(found), **parameters))) == expected


def test_a_thousand_queues_are_cut_into_pages() -> None:
    found = reading([queue(f"q{number:04}") for number in range(1000)])
    page = queues.page(asked(found, page="20", sort="name"))
    assert names(page) == [f"q{number:04}" for number in range(950, 1000)]
    ((pager, _, nothing),) = values(page, "queues-pager")
    assert (pager.previous, pager.following, nothing) == ("/?sort=name&page=19", "", "")


@pytest.mark.parametrize("namespaces", [(), tuple(f"q{number:03}" for number in range(120))])
def test_busy_queues_are_first_over_all_pages(namespaces: tuple[str, ...]) -> None:
    found = reading([queue(f"q{number:03}", admitted=number % 2) for number in range(120)])
    pages = [queues.page(asked(found, *namespaces, page=str(number))) for number in (1, 2, 3)]
    names = [row.name for page in pages for row in values(page, "queues")]
    assert names == [f"q{number:03}" for number in (*range(1, 120, 2), *range(0, 120, 2))]
    pagers = [values(page, "queues-pager")[0][0] for page in pages]
    assert [(each.first, each.last, each.total) for each in pagers] == [(1, 50, 120), (51, 100, 120), (101, 120, 120)]


def test_a_visitor_sees_the_queues_and_the_picks_of_the_own_teams() -> None:
    found = reading(
        [queue("red", first="red/r1"), queue("blue", first="blue/b1")],
        [pick(1, "blue/b1", queue="blue")],
        [pick(1, "blue/b1", queue="blue"), pick(2, "red/r1", queue="red")],
    )
    page = queues.page(asked(found, "red"))
    assert names(page) == ["red"]
    assert [(each.job, each.job_address, each.queue) for each in values(page, "picks")] == [
        (ANOTHER, "", ""),
        ("red/r1", "/jobs/red/r1", "red"),
    ]
    assert "blue" not in html(page)


def test_queues_that_a_visitor_may_not_see_are_one_row_of_sums() -> None:
    gpus = {"usage": {GPU: "8"}, "share": "40%", "target": "25%", "admitted": 2}
    found = reading([queue("red", share="20%"), queue("blue", pending=3, **gpus), queue("green", pending=1, **gpus)])
    page = queues.page(asked(found, "red"))
    [row] = values(page, "queues-others")
    assert (row.share, row.target, row.used, row.pending, row.admitted) == ("80%", "50%", "16", 4, 4)
    assert "blue" not in html(page)
    assert "green" not in html(page)
    assert "no queue that you may see" in html(queues.page(asked(found, "nobody")))
    assert values(queues.page(asked(found)), "queues-others") == []
    assert values(queues.page(asked(found, "red", "blue", "green")), "queues-others") == []


def test_picks_say_which_go_now_and_what_the_others_need() -> None:
    first, second = pick(1, "team/one"), pick(2, "team/two", queue="b", demand={GPU: "16", "cpu": "4"})
    found = reading([], [first], [second | {"pick": 1}, first | {"pick": 2}], began={"pick team/two 0": NOW - 60})
    rows = values(queues.page(asked(found)), "picks")
    assert [(row.number, row.job, row.is_now, row.when, row.demand) for row in rows] == [
        (1, "team/one", True, "now", f"{GPU}=8"),
        (2, "team/two", False, "when room is free", f"{GPU}=16,cpu=4"),
    ]
    assert [row.since for row in rows] == ["", "2026-01-01T00:59:00Z"]


def test_the_line_of_the_system_is_that_of_torchq_status() -> None:
    text = html(queues.page(asked(reading([BUSY]))))
    assert "<dt>Leader</dt><dd>host-1 (epoch 3)</dd>" in text
    assert "<dt>Workers</dt><dd>1 alive, 16 threads</dd>" in text
    assert "<dt>Jobs</dt><dd>3 waiting, 2 admitted</dd>" in text


@pytest.mark.parametrize(
    ("waiting", "note"),
    [
        (0, "No job waits."),
        (4, "None of 4 waiting jobs can be picked now, even with room; the page of a job says why."),
    ],
)
def test_a_list_without_picks_says_why(waiting: int, note: str) -> None:
    assert values(queues.page(asked(reading(waiting=waiting))), "picks-note") == [note]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"status": ALIVE | {"leader": ""}}, [("coordinator", "no coordinator leads", "")]),
        ({"status": ALIVE | {"workers": {}}}, [("workers", "no worker is alive", "")]),
        (
            {"status": {"leader": "host-1", "redis": "Redis is away"}, "problems": {"coordinator": "HTTP status 503"}},
            [("queues", "Redis is away", "2026-01-01T01:00:00Z")],
        ),
        (
            {"status": {}, "problems": {"coordinator": "nobody answers"}},
            [("queues", "nobody answers", "2026-01-01T01:00:00Z")],
        ),
        ({"status": {}, "problems": {"coordinator": "nobody"}, "figures_at": 0.0}, [("queues", "nobody", "")]),
        ({"problems": {"API server": "timed out"}}, [("API server", "timed out", "")]),
    ],
)
def test_on_top_is_what_is_wrong_in_the_words_of_the_command(
    fields: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    page = queues.page(asked(reading([BUSY], **fields)))
    assert values(page, "problems") == expected
    assert names(page) == ["busy"], "the rest is shown"
    assert all(text in html(page) for _, text, _ in expected)


def test_the_pool_is_shown_with_its_idle_growth() -> None:
    pool = {
        "capacity": {GPU: "16", "cpu": "64", "memory": str(2**40), "pods": "110"},
        "used": {GPU: "12", "cpu": "500m"},
    }
    parts = values(queues.page(asked(reading([BUSY], pool=pool))), "pool")
    assert [(each.name, each.text) for each in parts] == [
        (GPU, "12 of 16"), ("CPUs", "0.5 of 64"), ("Memory", "0 GiB of 1 TiB")
    ]  # fmt: skip
    assert parts[0].bar.label == f"{GPU}: 12 of 16 in use, 2 of that by idle growth"
    assert [(each.kind, each.length) for each in parts[0].bar.segments] == [("used", 62.5), ("idle", 12.5)]


@pytest.mark.parametrize(
    ("found", "unit"),
    [(reading([BUSY]), "GPUs"), (reading([queue("a", usage={"cpu": "3"})]), "CPUs"), (reading([]), "CPUs"),
     (reading([queue("a"), queue("b", spec={"quota": {f"requests.{GPU}": "1"}})], pool={"capacity": {"cpu": "9"}}),
      "GPUs"), (reading([queue("a")], pool={"capacity": {GPU: "9"}}), "GPUs")],
)  # fmt: skip
def test_bars_count_cpus_where_nothing_has_gpus(found: Any, unit: str) -> None:
    page = queues.page(asked(found))
    assert unit in [each.text for each in page.fixed["headings"]]


def test_a_cluster_without_queues_says_so() -> None:
    assert values(queues.page(asked(reading())), "queues-pager")[0][2] == "There are no queues yet."
    away = reading(status={}, problems=MappingProxyType({"coordinator": "away"}))
    assert values(queues.page(asked(away)), "queues-pager")[0][2] == "No queue is known yet."


TEXTS = st.text(max_size=60) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "\u202eabc", "a b"])


@example("", "", "²", {})
@given(TEXTS, TEXTS, TEXTS, st.dictionaries(st.sampled_from(["sort", "page", "x"]), TEXTS))
def test_hostile_names_stay_text(name: str, cohort: str, amount: str, parameters: dict[str, str]) -> None:
    hostile = queue(name, spec={"cohort": cohort, "quota": {amount: amount}}, usage={amount: amount}, share=amount)
    found = reading([hostile], [pick(1, f"{name}/{cohort}", queue=name)])
    text = html(queues.page(asked(found, **parameters)))
    assert "<script>alert" not in text
    assert "<img" not in text
