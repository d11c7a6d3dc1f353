"""The list of jobs: who sees which jobs, in which order, on which page."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.dashboard.jobs.history import RecordedJobs
from coordinator.dashboard.jobs.index import INDEXES, Filters, JobIndex, JobIndexes
from coordinator.dashboard.pages import jobs
from coordinator.dashboard.pages.jobs import JobsLoaded, ListedJob
from coordinator.dashboard.readings import Reading
from coordinator.dashboard.visitors import Visitor
from coordinator.wording import job_columns
from crds import timestamps
from tests.coordinator.dashboard.jobs.scene import (
    CREATED,
    NOW,
    FakeCluster,
    FakeQueries,
    asked,
    html,
    job,
    texts,
    visitor,
)

NOTHING = JobsLoaded(RecordedJobs(), {})
QUEUED = {"phase": "Queued", "queue": {"reason": "WaitingForPool", "message": "no room"}}
RUNNING = {"phase": "Running", "admission": {"attempt": 1}, "startTime": CREATED}
FAILED = {
    "phase": "Failed",
    "startTime": CREATED,
    "completionTime": "2026-01-01T00:10:00Z",
    "conditions": [{"type": "Failed", "status": "True", "reason": "Error", "message": "exit code 3"}],
}


def at(second: int) -> str:
    return timestamps.format_time(NOW - 3600 + second)


def shown(items: list[Any], *namespaces: str, loaded: Any = NOTHING, **parameters: str) -> list[ListedJob]:
    page = jobs.page(asked(loaded, items, *namespaces, **parameters))
    html(page)
    return texts(page.sections["jobs"])


def names(items: list[Any], *namespaces: str, **parameters: str) -> list[str]:
    return [row.name for row in shown(items, *namespaces, **parameters)]


def test_a_row_says_what_job_list_says_and_its_age_is_a_time() -> None:
    items = [
        job("waits", QUEUED, created=at(3), schedulingPolicy={"queue": "a"}),
        job("runs", RUNNING, created=at(2)),
        job("failed", FAILED, created=at(1)),
    ]
    found = shown(items, loaded=JobsLoaded(RecordedJobs(), {"uid-waits": (3, 7)}))
    assert [(row.name, row.queue, row.phase, row.pods, row.began, row.runtime, row.reason) for row in found] == [
        ("waits", "a", "Queued", "0/4", "", "-", "3 of 7 (WaitingForPool)"),
        ("runs", "team", "Running", "0/4", CREATED, "-", "-"),
        ("failed", "team", "Failed", "0/4", "", "10m", "Error: exit code 3"),
    ]
    assert found[0].created == at(3)
    assert found[0].path == "/jobs/team/waits"


def test_filters_are_in_the_address_and_the_newest_job_is_first() -> None:
    items = [
        job("one", QUEUED, created=at(1)),
        job("two", RUNNING, created=at(2), schedulingPolicy={"queue": "a"}),
        job("three", FAILED, created=at(3), namespace="other"),
    ]
    assert names(items) == ["three", "two", "one"]
    assert names(items, namespace="team") == ["two", "one"]
    assert names(items, queue="a") == ["two"]
    assert names(items, phase="failed") == ["three"]
    assert names(items, reason="waitingfor") == ["one"]
    assert names(items, name="T") == ["three", "two"]
    assert names(items, name="T", phase="Running", namespace="team") == ["two"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"phase": "no such"},
        {"namespace": "<script>"},
        {"queue": "\0"},
        {"name": "a" * 100_000},
        {"reason": "'\""},
        {"page": "-1", "name": "x"},
    ],
)
def test_wrong_filters_show_no_job_and_no_error(parameters: dict[str, str]) -> None:
    assert names([job()], **parameters) == []


def test_pages_have_50_rows_and_a_page_out_of_range_is_the_nearest() -> None:
    items = [job(f"job-{number:03}", created=at(number)) for number in range(120)]
    assert names(items) == [f"job-{number:03}" for number in range(119, 69, -1)]
    assert names(items, page="3") == [f"job-{number:03}" for number in range(19, -1, -1)]
    for wrong in ("4", "99999999999999999999", "-1", "0", "x", "²"):
        assert len(names(items, page=wrong)) in (20, 50)


def test_a_reader_of_some_namespaces_sees_their_jobs_alone() -> None:
    items = [job(f"{name}-{number}", namespace=name, created=at(number)) for number in range(3) for name in "abc"]
    assert names(items, "a", "c") == ["c-2", "a-2", "c-1", "a-1", "c-0", "a-0"]
    assert names(items, "a", namespace="b") == []
    page = jobs.page(asked(NOTHING, items, "a"))
    assert page.sections["suggestions"][0].values == ("a",)
    assert "b-1" not in html(page)


def test_jobs_are_looked_at_once_and_again_only_if_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    known = job_columns.phase

    def phase(item: Any) -> str:
        looked.append(item["metadata"]["name"])
        return known(item)

    monkeypatch.setattr(job_columns, "phase", phase)
    first, second, indexes = job("first"), job("second"), JobIndexes()
    reading = Reading(number=1, at=NOW, jobs=(first, second))
    index = indexes.of(reading)
    assert indexes.of(Reading(number=2, at=NOW, jobs=reading.jobs)) is index
    assert sorted(set(looked)) == ["first", "second"]
    looked.clear()
    changed = indexes.of(Reading(number=3, at=NOW, jobs=(first, job("second", RUNNING))))
    assert set(looked) == {"second"}
    assert changed.by_uid["uid-second"].phase == "Running"


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.sampled_from("xy"))), min_size=2))
def test_an_index_that_follows_another_is_as_one_made_anew(steps: list[list[tuple[str, int, str]]]) -> None:
    """Each step names jobs that change, with when they were made anew and in which namespace."""
    items = {name: job(name) for name in "abc"}
    index: JobIndex | None = None
    for number, step in enumerate(steps, 1):
        for name, made, namespace in step:
            if made == 0 and len(items) > 1:
                items.pop(name, None)
            else:
                items[name] = job(name, RUNNING, namespace=namespace, created=at(made))
        reading = Reading(number=number, at=NOW, jobs=tuple(items.values()))
        index, anew = JobIndex(reading, index), JobIndex(reading, None)
        for team in ("", "x", "y", "team-a"):
            wanted = Filters(namespace=team)
            assert [each.item for each in index.find(EVERYWHERE, wanted)] == [
                each.item for each in anew.find(EVERYWHERE, wanted)
            ]
        assert {uid: each.item for uid, each in index.by_uid.items()} == {
            uid: each.item for uid, each in anew.by_uid.items()
        }


def test_a_list_is_made_once_for_all_who_ask_for_it() -> None:
    index = JobIndex(Reading(number=1, at=NOW, jobs=(job("one"), job("two"))), None)
    wanted, team = Filters(name="o"), Reader(namespaces=frozenset({"team"}))
    assert index.find(EVERYWHERE, wanted) is index.find(EVERYWHERE, wanted)
    assert index.find(team, wanted) is not index.find(EVERYWHERE, wanted)


@pytest.mark.parametrize("broken", [{}, {"metadata": {}}, {"metadata": {"uid": "u", "namespace": "n", "name": "x"}}])
def test_an_object_that_is_no_job_does_not_hide_the_others(broken: Any) -> None:
    found = shown([job(), broken])
    assert "train" in [row.name for row in found]
    assert all(row.reason == "the job cannot be read" for row in found if row.name != "train")


def test_megabytes_in_a_status_are_cut_in_lists() -> None:
    huge = "word " * 200_000
    status = {"phase": "Failed", "conditions": [{"type": "Failed", "status": "True", "reason": huge, "message": huge}]}
    items = [job("failed", status), job("waits", {"phase": "Queued", "queue": {"reason": huge, "message": huge}})]
    items.append(job("ends"))
    items[-1]["metadata"] |= {"deletionTimestamp": CREATED, "finalizers": [f"{word}{huge}" for word in "ab"]}
    assert sum(len(row.reason) for row in shown(items)) < 10_000
    told = RecordedJobs((past("gone", message=huge, reason=huge, result=huge),))
    assert len(html(jobs.page(asked(JobsLoaded(told, {}), items)))) < 30_000


def past(name: str, **more: Any) -> dict[str, Any]:
    held = {"gpuHours": 2.0, "cpuHours": 1.0, "hours": {}}
    return {
        "namespace": "team", "name": name, "uid": f"uid-{name}", "queue": "a", "user": "", "state": "Succeeded",
        "isApproximate": False, "endKnownToSeconds": None, "submitted": CREATED, "ended": CREATED,
        "waitedSeconds": 60, "heldSeconds": 60, "holdCount": 1, "held": held, "attempts": 1, "restarts": 0,
        "disruptions": 0, "reason": "", "message": "", "result": "", **more,
    }  # fmt: skip


def test_deleted_jobs_come_from_the_history_in_the_words_of_torchq_history() -> None:
    told = RecordedJobs((past("gone"), past("train"), past("unseen", namespace="other"), past("x", state="Failed")))
    page = jobs.page(asked(JobsLoaded(told, {}), [job()], "team", phase="succeeded"))
    ((titles,), (row,)) = (texts(page.sections[name]) for name in ("past-head", "past"))
    assert titles == ("Queue", "Outcome", "Waited", "Held", "GPU-hours", "Restarts", "Why")
    assert (row.name, row.path, row.cells) == (
        "gone", "/jobs/team/gone?uid=uid-gone", ("a", "Succeeded", "60s", "60s", "2.00", "0", "-"),
    )  # fmt: skip
    assert "unseen" not in html(page)


def test_the_places_of_the_waiting_jobs_on_the_page_are_asked_once_for_all_with_the_same_rights() -> None:
    queue = {"schedulingPolicy": {"queue": "queue-of-places"}}
    waits, held = job("waits", QUEUED, **queue), job("held", schedulingPolicy={"hold": True, "queue": "another"})
    behind = [
        job("behind", QUEUED, **queue),
        job("on-hold", schedulingPolicy={"hold": True, "queue": "queue-of-places"}),
    ]
    items = [waits, held, job("runs", RUNNING), *behind]
    INDEXES.of(Reading(number=1, at=NOW, jobs=tuple(items)))
    asked_for: list[Any] = []

    class Coordinator(FakeQueries):
        def places(self, queues: Any) -> Any:
            asked_for.append(set(queues))
            place = {"queue": "queue-of-places", "of": 5}
            return [{**place, "uid": "x", "position": 1}, {**place, "uid": "uid-waits", "position": 2}]

    for _ in range(2):
        loaded = jobs.load(visitor(FakeCluster(), Coordinator()), {})
        assert loaded.places["uid-waits"] == (2, 5)
    assert asked_for == [{"queue-of-places"}]
    assert {row.name: row.reason for row in shown(items, loaded=loaded)} == {
        "waits": "2 of 5 (WaitingForPool)",
        "behind": "after 2 of 5 (WaitingForPool)",  # a coordinator tells the first places of a long queue
        "on-hold": "Held",
        "held": "Held",
        "runs": "-",
    }


def test_without_a_recorder_the_page_says_so() -> None:
    page = jobs.page(asked(JobsLoaded(RecordedJobs(problem="no recorder"), {}), [job()]))
    assert texts(page.sections["past-note"]) == ["no recorder"]
    assert page.sections["past"] == ()


def test_the_history_is_asked_once_for_a_visitor_and_filter() -> None:
    paths: list[tuple[str, str]] = []

    def fetch(path: str, namespace: str = "") -> Any:
        paths.append((path, namespace))
        return {"items": [past("gone")]}

    me: Visitor = visitor(FakeCluster(), history=fetch)
    for _ in range(3):
        assert jobs.load(me, {"queue": "a b", "namespace": "team"}).past.items == (past("gone"),)
    assert paths == [("/v1/history?namespace=team&queue=a+b&limit=500", "team")]
    assert jobs.load(visitor(FakeCluster()), {}).past.problem == "no recorder keeps the history"


@pytest.mark.parametrize(("namespace", "listed"), [("", ["gone"]), ("other", [])])
def test_where_the_jobs_of_one_namespace_are_read_none_of_another_is_listed_as_deleted(
    namespace: str, listed: list[str]
) -> None:
    paths = []

    def fetch(path: str, _: str) -> Any:
        paths.append(path)
        return {"items": [past("gone")]}

    loaded = jobs.load(replace(visitor(FakeCluster(), history=fetch), namespace="team"), {"namespace": namespace})
    page = jobs.page(asked(loaded, [], namespace=namespace))
    assert paths == ["/v1/history?namespace=team&limit=500"]
    assert [row.name for row in texts(page.sections["past"])] == listed
