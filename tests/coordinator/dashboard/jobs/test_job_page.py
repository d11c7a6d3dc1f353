"""The page of one job: what it says in each state, and what hostile objects make of it."""

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.dashboard import drawing
from coordinator.dashboard.asked import Asked
from coordinator.dashboard.elements import Page
from coordinator.dashboard.jobs import heading
from coordinator.dashboard.jobs.log_tail import ShownLine, Tail
from coordinator.dashboard.jobs.reads import JobLoaded, Point
from coordinator.dashboard.pages import job as job_page
from coordinator.dashboard.readings import Reading
from coordinator.wording import explanations
from coordinator.wording.explanations import KnownFacts
from coordinator.wording.job_details import JobContext
from crds import labels, timestamps
from crds.schema import definitions
from kube.api import Manifest
from tests.coordinator.dashboard.jobs.scene import CREATED, NOW, asked, bounds, html, job, texts
from tests.support.fuzz import strategies

LATER = "2026-01-01T02:00:00Z"
PLACE = {
    "state": "waiting", "job": "team/train", "uid": "uid-train", "queue": "a", "position": 3, "of": 7,
    "code": "WaitingForPool", "message": "the pool has no room", "numbers": "needs 8 cpu; the pool: 3 of 8 cpu free",
    "nextPick": None, "pickWithRoom": 2, "holders": [{"job": "team/x", "uid": "u", "queue": "b", "charge": {"cpu": 8}}],
}  # fmt: skip
ABSENT = {"state": "absent"}
ADMITTED = {"attempt": 2, "epoch": 1, "admittedAt": CREATED, "charge": {"jobs": 1}, "queue": "a"}
POD_MARKS = {labels.TASK_TYPE: "worker", labels.TASK_INDEX: "0"}
STUCK = {
    "metadata": {"name": "train-worker-0", "labels": POD_MARKS},
    "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "torch"}]},
    "status": {
        "phase": "Pending",
        "containerStatuses": [
            {"name": "torch", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
        ],
    },
}
UP = tuple(
    {
        "metadata": {"name": f"train-{name}", "labels": {labels.TASK_TYPE: name[:-2], labels.TASK_INDEX: name[-1]}},
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [{"name": "torch"}]},
        "status": {"phase": "Running"},
    }
    for name in ("master-0", "worker-0", "worker-1", "worker-2")
)


def condition(kind: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": CREATED}


def loaded(item: Manifest | None, known: KnownFacts | None = None, **more: Any) -> JobLoaded:
    return JobLoaded("uid-train", item, known or KnownFacts(), **more)


def page(found: JobLoaded, name: str = "train", **parameters: str) -> Page:
    return job_page.page(asked(found, (), namespace="team", name=name, **parameters))


STATES: dict[str, tuple[dict[str, Any], dict[str, Any], KnownFacts, str]] = {
    "new": ({}, {}, KnownFacts(place=ABSENT), "train waits in team"),
    "held": ({}, {"schedulingPolicy": {"hold": True}}, KnownFacts(place=ABSENT), "train is held in team"),
    "parked": ({"queue": {"parked": True}}, {}, KnownFacts(place=ABSENT), "train is parked in team"),
    "backs off": (
        {"queue": {"reason": "BackingOff", "message": "later", "notBefore": LATER}},
        {},
        KnownFacts(place=ABSENT | {"ifResumed": {"fits": True, "code": "Next", "message": "it goes next"}}),
        "train waits in team",
    ),
    "waits": (
        {"phase": "Queued"},
        {"schedulingPolicy": {"queue": "a"}},
        KnownFacts(place=PLACE),
        "train waits, 3rd of 7 in a",
    ),
    "exceeds its quota": (
        {"phase": "Queued"},
        {},
        KnownFacts(place=PLACE | {"code": "ExceedsQuota", "position": 1, "of": 1}),
        "train waits, 1st of 1 in a",
    ),
    "picked": ({}, {}, KnownFacts(place={"state": "admitted"}), "train was picked and is about to start"),
    "starts": (
        {"phase": "Admitted", "admission": ADMITTED},
        {},
        KnownFacts(objects=JobContext(pods=UP)),
        "train starts",
    ),
    "blocked": (
        {"phase": "Admitted", "admission": ADMITTED},
        {},
        KnownFacts(objects=JobContext(pods=(STUCK,))),
        "train holds its room, but does not run",
    ),
    "runs": ({"phase": "Running", "admission": ADMITTED}, {}, KnownFacts(), "train runs"),
    "waits for workers": (
        {"phase": "Running", "admission": ADMITTED | {"workers": 2}, "scaling": {"from": 2, "to": 4, "since": CREATED}},
        {},
        KnownFacts(rest={"granted": 2, "wanted": 4, "code": "WaitingForPool", "message": "no room"}),
        "train runs",
    ),
    "hangs": (
        {
            "phase": "Running",
            "admission": ADMITTED,
            "hang": {"since": CREATED, "run": "2.0.0", "behind": [], "silent": ["train-worker-0"]},
        },
        {},
        KnownFacts(),
        "train hangs",
    ),
    "waits for ranks": (
        {
            "phase": "Running",
            "admission": ADMITTED,
            "conditions": [condition("Running", "WaitsForRanks", "worker-0 has ended")],
        },
        {},
        KnownFacts(),
        "train runs",
    ),
    "suspended": (
        {"phase": "Suspended"},
        {"suspend": True},
        KnownFacts(if_resumed={"fits": False, "code": "ExceedsQuota", "message": "too much"}),
        "train is suspended",
    ),
    "succeeded": (
        {"phase": "Succeeded", "conditions": [condition("Succeeded", "Succeeded", "all is done")], "result": '{"a":1}'},
        {},
        KnownFacts(),
        "train has succeeded",
    ),
    "failed": (
        {"phase": "Failed", "exitCode": 3, "conditions": [condition("Failed", "Error", "exit code 3")]},
        {},
        KnownFacts(),
        "train has failed",
    ),
    "cancelled": (
        {"phase": "Failed", "conditions": [condition("Failed", "Cancelled", "enough")]},
        {"cancel": True},
        KnownFacts(),
        "train was cancelled",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_the_heading_and_the_sentences_are_those_of_job_why(name: str) -> None:
    status, spec, known, title = STATES[name]
    item = job(status=status, **spec)
    found = page(loaded(item, known))
    assert found.sections["heading"][0].values[0] == title
    assert texts(found.sections["why"]) == [*explanations.sentences(explanations.describe(item, known))]
    text = html(found)
    assert title in text
    assert text.count('id="actions"') == 1


def test_a_job_that_is_being_deleted_says_what_keeps_it() -> None:
    item = job()
    item["metadata"] |= {"deletionTimestamp": CREATED, "finalizers": ["example.org/keep"]}
    found = page(loaded(item))
    assert found.sections["heading"][0].values == ("train is being deleted", "Deleting")
    assert "example.org/keep" in texts(found.sections["why"])[1]


@pytest.mark.parametrize(
    ("number", "place"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (112, "112th"), (121, "121st")]
)
def test_a_place_is_written_as_people_say_it(number: int, place: str) -> None:
    assert heading.ordinal(number) == place


def test_tables_say_what_job_show_says() -> None:
    event = {"lastTimestamp": CREATED, "reason": "Queued", "message": "it waits", "reportingComponent": "torchq"}
    objects = JobContext(pods=(STUCK,), events=(event,))
    item = job(status={"phase": "Admitted", "admission": ADMITTED, "conditions": [condition("Admitted", "Admitted")]})
    found = page(loaded(item, KnownFacts(objects=objects)))
    cells = {name: [[each.text for each in row] for row in texts(found.sections[name])] for name in ("pods", "events")}
    assert cells == {
        "pods": [["train-worker-0", "Pending", "n1", "0", "-", "ImagePullBackOff", "-", "-"]],
        "events": [[CREATED, "torchq", "Queued", "it waits"]],
    }
    assert texts(found.sections["conditions"])[0][0].text == "Admitted"
    facts = {title: value.text for title, value in texts(found.sections["facts"])}
    assert (facts["Phase"], facts["Queue"], facts["Job"]) == ("Admitted", "team", "team/train/uid-train")


def test_what_was_not_read_is_named_and_the_rest_is_shown() -> None:
    problems = MappingProxyType({"pods and events": "forbidden", "coordinator": "away"})
    found = page(loaded(job(status={"phase": "Queued"}), problems=problems))
    assert texts(found.sections["problems"]) == [("pods and events", "forbidden", ""), ("coordinator", "away", "")]


@pytest.mark.parametrize(
    ("tail", "note"),
    [
        (Tail(), ["nothing is read of the log yet"]),
        (Tail(is_over=True), ["there is no output"]),
        (Tail((ShownLine(1, "train-master-0", "", "hello"),)), []),
    ],
)
def test_an_empty_log_says_why_it_is_empty(tail: Tail, note: list[str]) -> None:
    found = page(loaded(job(status={"phase": "Running", "admission": ADMITTED}), tail=tail))
    assert texts(found.sections["log-note"]) == note


def test_what_no_page_can_read_is_named_once() -> None:
    silent = loaded(job(status={"phase": "Queued"}), problems=MappingProxyType({"coordinator": "it does not answer"}))
    reading = Reading(number=1, at=NOW, problems=MappingProxyType({"coordinator": "Redis does not answer"}))
    found = job_page.page(Asked({"namespace": "team", "name": "train"}, reading, bounds(), silent))
    assert [each[1] for each in texts(found.sections["problems"])] == ["Redis does not answer"]
    assert found.sections["heading"][0].values[0] == "train waits in team"


def test_a_page_stays_when_its_job_is_deleted_and_names_the_one_that_replaced_it() -> None:
    running = job(status={"phase": "Running", "admission": ADMITTED})
    gone = page(loaded(running, KnownFacts(objects=JobContext(now=timestamps.parse(CREATED))), gone="deleted"))
    assert "is deleted" in gone.sections["notices"][0].values[0]
    assert gone.sections["heading"][0].values == ("train was deleted", "Deleted")
    assert gone.sections["life"][0].values.summary == "held room 1s"
    replaced = page(loaded(job(), gone="replaced"))
    assert replaced.sections["notices"][0].values[1] == "/jobs/team/train"
    assert '<a href="/jobs/team/train">' in html(replaced)


def test_the_stream_of_a_page_is_about_the_uid_that_the_page_showed() -> None:
    found = page(loaded(job()), pod="worker-2")
    assert 'data-page="/jobs/team/train?uid=uid-train&amp;pod=worker-2"' in html(found)
    assert found.fixed["members"] == ("master-0", "worker-0", "worker-1", "worker-2")


def test_a_job_that_only_the_history_knows_is_shown_from_there() -> None:
    hold = {"from": CREATED, "to": LATER, "running": None, "numbers": "1", "workers": 2, "ended": "Succeeded"}
    past = {
        "namespace": "team", "name": "train", "uid": "uid-train", "queue": "a", "user": "", "state": "Succeeded",
        "isApproximate": False, "endKnownToSeconds": None, "submitted": CREATED, "ended": LATER, "waitedSeconds": 0,
        "heldSeconds": 7200, "holdCount": 1, "held": {"gpuHours": 2.0, "cpuHours": 1.0, "hours": {}}, "attempts": 1,
        "restarts": 0, "disruptions": 0, "reason": "", "message": "", "result": "", "holds": [hold], "pods": [],
        "others": [], "otherCount": 0,
    }  # fmt: skip
    found = page(loaded(None, gone="deleted", past=past))
    assert found.sections["heading"][0].values == ("train was deleted", "Deleted")
    assert ("Held", "2h, 2.00 GPU-hours in 1 attempt") in [(a, b.text) for a, b in texts(found.sections["facts"])]
    assert found.sections["life"][0].values.summary == "held room 2h"
    html(found)


def test_reports_are_a_table_and_lines_of_what_came_since_the_page_was_opened() -> None:
    pods = [{"pod": "train-master-0", "step": 3, "stepsPerSecond": 1.5, "loss": 0.25, "reportedAt": CREATED}]
    training = {"step": 3, "since": CREATED, "reportedAt": CREATED, "pods": pods, "stepsPerSecond": 1.5}
    points = tuple(Point(timestamps.format_time(NOW + n), n, 1.5, 1 / (n + 1)) for n in range(4))
    item = job(status={"phase": "Running", "admission": ADMITTED})
    found = page(loaded(item, KnownFacts(training=training), points=points))
    (row,) = texts(found.sections["reports"])
    assert [each.text for each in row] == ["train-master-0", "3", "1.5", "-", "0.25", "-", CREATED]
    assert [each.title for each in texts(found.sections["curves"])] == ["Speed", "Loss"]
    assert "Loss: from 1 to 0.25 in 4 reports" in html(found)


def test_log_lines_are_elements_of_their_own() -> None:
    lines = tuple(ShownLine(number, "worker-0", CREATED, f"line {number}") for number in (7, 8))
    found = page(loaded(job(), tail=Tail(lines, "the server went away")))
    assert [each.id for each in found.sections["log"]] == ["line-7", "line-8"]
    assert texts(found.sections["log-note"]) == ["the server went away"]


def test_nothing_changes_on_the_page_while_nothing_happens() -> None:
    admission = ADMITTED | {"running": CREATED, "charge": {"jobs": 1, "pods": 2000}}
    item = job(status={"phase": "Running", "admission": admission})
    seen: dict[str, set[str]] = {}
    for second in range(30):
        parameters = {"namespace": "team", "name": "train"}
        known = KnownFacts(objects=JobContext(now=datetime.fromtimestamp(NOW + second, UTC)))
        made = job_page.page(Asked(parameters, Reading(second, NOW + second), bounds(), loaded(item, known)))
        for elements in drawing.draw(made).values():
            for each in elements:
                seen.setdefault(each.id, set()).add(each.version)
    assert sum(len(versions) - 1 for versions in seen.values()) <= 3


def test_an_invalid_job_and_huge_texts_are_bounded() -> None:
    words, word = "word " * 200_000, "x" * 1_000_000
    many = [condition("Running", "R", words), *(condition("Running", "R") for _ in range(1000))]
    pods = tuple({**STUCK, "metadata": {"name": f"train-worker-{n}", "labels": POD_MARKS}} for n in range(2000))
    event = {"lastTimestamp": CREATED, "reason": word, "message": words}
    status = {"phase": "Admitted", "admission": ADMITTED, "conditions": many, "result": word, "attempt": 300}
    status |= {"queue": {"reason": word, "message": words}, "restartCount": 300}
    item = job(status=status, schedulingPolicy={"queue": word}, minMembers={"Nobody": -1})
    item["spec"]["torchTaskSpecs"] = {f"Task{n}": {"numTasks": 10**9, "template": {}} for n in range(16)}
    item["metadata"]["annotations"] = {labels.LINKS: json.dumps({word: "https://a.example.org"})}
    objects = JobContext(pods=pods, events=(event,) * 20)
    lines = tuple(ShownLine(n, "", "", "x" * 500) for n in range(500))
    found = page(loaded(item, KnownFacts(objects=objects, place=PLACE | {"message": words}), tail=Tail(lines)))
    assert len(html(found)) < 1_500_000
    assert "This job is invalid" in found.sections["notices"][0].values[0]


class Found(HTMLParser):
    """The tags and attributes of a page that a user must not be able to write."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append(tag)
        for name, value in attributes:
            self.ids += [value or ""] if name == "id" else []
            if name.startswith("on") or name == "style":
                self.bad.append(name)
            if name in ("href", "src") and not re.match(r"(/(?!/)|#|https?://)", value or ""):
                self.bad.append(f"{name}={value}")


EVIL = '"><script>alert(1)</script>\u202e\x1b[2J\x00<img src=x onerror=a>'
PLAIN = frozenset(Found(html(page(loaded(job(status={"phase": "Running", "admission": ADMITTED}))))).tags)
MORE_TAGS = ("time", "pre", "li", "svg", "rect", "path", "details", "summary", "figure", "figcaption", "strong")
KNOWN_TAGS = PLAIN | frozenset(MORE_TAGS)
STATUS = strategies.conforming(
    definitions.torchjob()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
)


def judge(found: Page) -> None:
    """Fail if users have written tags or attributes of a page, or two elements have one id."""
    seen = Found(html(found))
    assert set(seen.tags) <= KNOWN_TAGS | {"tr", "td", "th", "dt", "dd", "div", "p", "a", "span", "option", "ol", "ul"}
    assert seen.bad == []
    assert len(seen.ids) == len(set(seen.ids))


def spoiled(value: Any) -> Any:
    """Return JSON in which each text is hostile."""
    if isinstance(value, dict):
        return {name: spoiled(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [spoiled(each) for each in value]
    return f"{value}{EVIL}" if isinstance(value, str) else value


@pytest.mark.parametrize("name", STATES)
def test_hostile_texts_are_escaped_in_every_state(name: str) -> None:
    status, spec, known, _ = STATES[name]
    item = job(status=status, **spec)
    kept = {"phase": status.get("phase"), "uid": "uid-train"}
    item["status"] = spoiled({**status}) | ({"phase": kept["phase"]} if kept["phase"] else {})
    item["metadata"]["name"] = EVIL
    item["metadata"]["annotations"] = {labels.LINKS: json.dumps({EVIL: "https://a.example.org", "b": EVIL})}
    place = spoiled(dict(known.place)) | {"state": known.place["state"]} if known.place else None
    pods = tuple(spoiled([dict(each) for each in known.objects.pods]))
    facts = KnownFacts(objects=JobContext(pods=pods, events=(spoiled({"reason": "a", "message": "b"}),)), place=place)
    lines = (ShownLine(1, EVIL, EVIL, EVIL),)
    problems = MappingProxyType({EVIL: EVIL})
    judge(page(loaded(item, facts, tail=Tail(lines, EVIL), problems=problems, gone="replaced"), EVIL, pod=EVIL))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.invalid_objects("TorchJob"), STATUS, strategies.ANY, st.sampled_from(("", "deleted", "replaced")))
def test_no_object_makes_an_error_of_the_page(made: Manifest, status: Any, place: Any, gone: str) -> None:
    metadata = {"namespace": "team", "uid": "u", "creationTimestamp": CREATED, **made["metadata"]}
    item = {**made, "metadata": metadata, "status": status}
    known = KnownFacts(place=place if isinstance(place, dict) else PLACE, training={"pods": place})
    judge(page(loaded(item, known, gone=gone)))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.ANY, strategies.ANY, strategies.ANY)
def test_no_status_makes_an_error_of_the_page(spec: Any, status: Any, objects: Any) -> None:
    item = {"metadata": {"name": "x", "namespace": "team", "uid": "u"}, "spec": spec, "status": status}
    context = JobContext(pods=(objects,), events=(objects,))
    judge(page(loaded(item, KnownFacts(objects=context))))
