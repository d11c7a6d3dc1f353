"""The page of one queue: its settings, its jobs in their order, and what it did in the last day."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.dashboard.pages import queue, queue_history
from coordinator.dashboard.pages.queue import Now, QueueLoaded
from coordinator.dashboard.pages.queue_history import Past
from coordinator.query import queue_timeline
from coordinator.query.questions import ANOTHER, Document, UnknownObject
from crds import timestamps
from history.rows import PoolRow, QueueRow
from kube import errors
from tests.coordinator.dashboard import queue_scene
from tests.coordinator.dashboard.queue_scene import CREATED, GPU, NOW, FakeServers, asked, html, job, reading, values
from tests.doubles.memory_history import MemoryHistory
from tests.support import history_rows

FIGURES = queue_scene.queue(
    "a", spec={"quota": {GPU: "8"}}, pending=2, admitted=1, usage={GPU: "4"}, share="50%", target="40%"
)
OBJECT = {
    "metadata": {"name": "a", "uid": "u", "creationTimestamp": CREATED},
    "spec": {"weight": 5, "quota": {GPU: "8"}, "namespaces": ["team"], "stopPolicy": "Hold"},
}
RUNNING = {"phase": "Running", "admission": {"attempt": 1, "admittedAt": "2026-01-01T00:30:00Z"}}
JOBS = (
    job("first"),
    job("second"),
    job("urgent"),
    job("held", schedulingPolicy={"queue": "a", "hold": True}),
    job("runs", RUNNING),
    job("done", {"phase": "Succeeded"}),
    job("elsewhere", schedulingPolicy={"queue": "b"}),
    job("theirs", namespace="blue"),
)
PLACES = (("uid-urgent", 1, 4), ("uid-first", 2, 4), ("uid-second", 3, 4))
HIDDEN = Past(problem="no recorder keeps the history: recorder.enabled of the chart starts one")


def shown(now: Now = Now(places=PLACES), past: Past = HIDDEN, *namespaces: str, **parameters: str) -> Any:  # noqa: B008
    found = reading([FIGURES], jobs=JOBS)
    page = queue.page(asked(found, *namespaces, loaded=QueueLoaded(now, past), **{"name": "a", **parameters}))
    html(page)
    return page


def jobs(page: Any, section: str) -> list[tuple[str, str]]:
    return [(row.name, getattr(row, "place", "")) for row in values(page, section)]


def test_waiting_jobs_are_in_their_order_and_those_without_a_place_come_last() -> None:
    page = shown()
    assert jobs(page, "waiting") == [
        ("team/urgent", "1"),
        ("team/first", "2"),
        ("team/second", "3"),
        ("blue/theirs", "after 3"),  # the order has 4 jobs
        ("team/held", "-"),
    ]
    assert [row.reason for row in values(page, "waiting")][-1] == "Held"


def test_jobs_whose_place_is_not_told_come_after_those_of_the_order() -> None:
    page = shown(Now(places=(("uid-second", 128, 300),)))
    first, *rest, last = jobs(page, "waiting")
    assert (first, last) == (("team/second", "128"), ("team/held", "-"))
    assert [place for _, place in rest] == ["after 128"] * 3


def test_admitted_jobs_say_since_when_they_hold_room() -> None:
    (row,) = values(shown(), "admitted")
    assert (row.name, row.phase, row.pods, row.since) == ("team/runs", "Running", "0/2", "2026-01-01T00:30:00Z")


def test_jobs_of_other_teams_are_not_there() -> None:
    page = shown(Now(places=PLACES), HIDDEN, "team", "a")
    assert "blue/theirs" not in [name for name, _ in jobs(page, "waiting")]
    assert "theirs" not in html(page)


def test_a_long_queue_has_pages_of_its_own_for_waiting_and_for_admitted_jobs() -> None:
    every = [*(job(f"w{number:03}") for number in range(60)), *(job(f"r{number:03}", RUNNING) for number in range(60))]
    found = asked(reading(jobs=every), loaded=QueueLoaded(Now(), HIDDEN), name="a", page="2", admitted="1")
    page = queue.page(found)
    assert (len(values(page, "waiting")), len(values(page, "admitted"))) == (10, 50)
    assert values(page, "admitted-pager")[0][0].following == "/queues/a?page=2&admitted=2"


def test_the_settings_are_those_of_the_object_and_the_figures_those_of_the_coordinator() -> None:
    page = shown(Now(item=OBJECT, places=PLACES))
    facts = {title: cell.text for title, cell in values(page, "facts")}
    assert (facts["Weight"], facts["Namespaces"], facts["Pending"], facts["Created"]) == ("5", "team", "2", CREATED)
    assert values(page, "queue-state") == ["Hold"]
    assert f'<dt>Created</dt><dd><time datetime="{CREATED}">{CREATED}</time></dd>' in html(page)
    assert [(each.name, each.text) for each in values(page, "gauges")] == [
        ("Share", "50%, target 40%"), (GPU, "4 of 8")
    ]  # fmt: skip


def test_an_empty_list_says_so_and_that_others_may_have_jobs() -> None:
    assert values(shown(Now(), HIDDEN, "red", "a"), "waiting-pager")[0][2] == "No job that you may see waits."
    empty = asked(reading(), loaded=QueueLoaded(Now(), HIDDEN), name="a")
    assert values(queue.page(empty), "admitted-pager")[0][2] == "No job holds room."


def test_who_holds_the_room_is_named_as_far_as_the_visitor_may_know() -> None:
    holders = [{"job": "blue/big", "uid": "u", "queue": "a", "charge": {GPU: "4"}}]
    told = Now(figures=FIGURES | {"status": FIGURES["status"] | {"holders": holders, "otherHolders": 1}})
    assert values(shown(told), "notes") == [f"Held by job blue/big of queue a ({GPU}=4) and 1 other."]
    assert values(shown(told, HIDDEN, "team", "a"), "notes") == [f"Held by {ANOTHER} of queue a ({GPU}=4) and 1 other."]


def test_without_a_recorder_the_page_says_how_to_get_one() -> None:
    page = shown()
    assert values(page, "past-note") == [HIDDEN.problem]
    assert (values(page, "day"), values(page, "past")) == ([], [])


def timeline() -> Document:
    store, start = MemoryHistory(), int(NOW) - queue_timeline.DAY_SECONDS
    half = queue_timeline.DAY_SECONDS // 2
    store.write(
        [
            PoolRow(start=start - 1, amounts={GPU: 8}),
            QueueRow(name="a", start=start, version=1, weight=1),
            history_rows.job("mine", created=start, namespace="team", ended=start + half, outcome="Succeeded"),
            history_rows.wait("mine", start, start + 600),
            history_rows.hold("mine", start + 600, start + half),
            history_rows.job("theirs", created=start, namespace="blue"),
            history_rows.wait("theirs", start, None),
        ]
    )
    store.record_until(int(NOW))
    return queue_timeline.answer_timeline(store, {"queue": "a"}, None, int(NOW), "dominant")


def test_the_last_day_is_an_area_beside_a_line_and_its_jobs_are_bars_in_time() -> None:
    page = shown(Now(), Past(timeline()))
    (day,) = values(page, "day")
    assert day.curve.label == (
        "The share of the queue in the last day: from 100% to 100%. The line is its target: from 100% to 100%."
    )
    assert day.curve.area.startswith("M0 100V0H2.08V100Z")
    assert (day.steps[0].start, day.steps[0].share) == (timestamps.format_time(NOW - 86_400), "100%")
    mine = next(row for row in values(page, "past") if row.name == "team/mine")
    assert (mine.state, mine.waited, mine.held) == ("Succeeded", "10m", "11h50m")
    assert mine.bar.label == "team/mine waited 10m and held room 11h50m"
    assert [(each.kind, each.start, each.length) for each in mine.bar.segments] == [
        ("waited", 0, 0.69),
        ("held", 0.69, 49.31),
    ]
    assert [row.name for row in values(shown(Now(), Past(timeline()), "team", "a"), "past")] == ["team/mine"]


def test_jobs_of_one_second_are_in_the_order_in_which_they_got_room() -> None:
    document = timeline()
    mine = next(job for job in document["items"] if job["name"] == "mine")
    later = [{**mine["holds"][0], "from": timestamps.format_time(NOW - 60)}]
    names = [("job-9", mine["holds"]), ("late", later), ("job-10", mine["holds"]), ("waits", [])]
    items = [{**mine, "uid": name, "name": name, "holds": holds} for name, holds in names]
    past = Past({**document, "items": items})
    assert [row.name for row in values(shown(Now(), past), "past")] == [
        "team/waits", "team/late", "team/job-10", "team/job-9"
    ]  # fmt: skip


class TestLoad:
    def test_asks_the_order_every_two_seconds_and_the_recorder_once_a_minute(self, monkeypatch: Any) -> None:
        clock = [0.0]
        servers = FakeServers(objects={"a": OBJECT}, known={"a": FIGURES}, past=lambda _: timeline())
        visitor = servers.visitor()
        monkeypatch.setattr(queue._NOW, "_clock", lambda: clock[0])
        monkeypatch.setattr(queue_history._TIMELINES, "_clock", lambda: clock[0])
        for second in range(61):
            clock[0] = float(second)
            assert queue.load(visitor, {"name": "a"}).now.item == OBJECT
        assert servers.noted.count("places") == 31
        assert servers.noted.count("/v1/timeline?queue=a") == 2

    def test_a_queue_that_nobody_knows_is_not_found(self) -> None:
        with pytest.raises(UnknownObject):
            queue.load(FakeServers().visitor(), {"name": "nothing"})

    def test_a_queue_of_others_is_not_found_and_nobody_is_asked(self) -> None:
        servers = FakeServers(objects={"blue": OBJECT})
        with pytest.raises(UnknownObject):
            queue.load(servers.visitor("red"), {"name": "blue"})
        assert servers.noted == []

    @pytest.mark.parametrize("part", ["object", "queue", "places"])
    def test_a_part_that_does_not_answer_is_named_and_the_rest_is_shown(self, part: str) -> None:
        servers = FakeServers(objects={"a": OBJECT}, known={"a": FIGURES})
        servers.failing[part] = errors.Forbidden("you may not")
        loaded = queue.load(servers.visitor(), {"name": "a"})
        assert loaded.now.problem == "you may not"
        assert loaded.past.problem.startswith("no recorder keeps the history")
        assert values(shown(loaded.now), "notes") == ["you may not"]

    def test_a_queue_that_only_works_without_an_object_is_shown(self) -> None:
        loaded = queue.load(FakeServers(known={"a": FIGURES}).visitor(), {"name": "a"})
        assert (loaded.now.item, loaded.now.figures) == (None, FIGURES)


TEXTS = st.text(max_size=60) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x>', "\u202eabc"])
VALUES = TEXTS | st.none() | st.integers() | st.lists(TEXTS, max_size=2)


@given(TEXTS, TEXTS, st.dictionaries(st.sampled_from(["quota", "cohort", "gangQueues", "borrowingLimit"]), VALUES))
def test_hostile_objects_are_shown_as_text(name: str, phase: str, spec: Document) -> None:
    hostile = job(name, {"phase": phase, "queue": phase, "conditions": phase, "admission": phase})
    now = Now(item={"metadata": {"name": name}, "spec": spec}, places=((f"uid-{name}", 1, 1),))
    found = asked(reading(jobs=[hostile]), loaded=QueueLoaded(now, Past(problem=phase)), name=name)
    text = html(queue.page(found))
    assert "<script>alert" not in text
    assert "<img" not in text
