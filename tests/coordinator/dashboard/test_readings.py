"""What was read of the cluster, and what is made of it once for everybody."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import pytest

from coordinator.dashboard import readings
from coordinator.dashboard.readings import Readings
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import JobFeed
from coordinator.query.questions import Document
from tests.coordinator.dashboard.queue_scene import ALIVE, NOW, FakeServers, job, pick, queue
from tests.support import waiting


class Feed:
    """A feed of one job."""

    behind = ""

    def all(self, _: Any) -> list[Any]:
        """Return the job."""
        return [job("one")]


class Coordinator(FakeServers):
    """A coordinator that may be away."""

    wait = 90.0
    idle: Mapping[str, str] = MappingProxyType({})
    away = ""

    def status(self) -> Document:
        """Return the numbers."""
        if self.away:
            raise CoordinatorError(self.away)
        return ALIVE

    def queues(self) -> list[Document]:
        """Return two queues."""
        return [queue("a", oldestWaitSeconds=self.wait), queue("b", idleUsage=self.idle)]

    def next(self, _: int, *, roomy: bool = False) -> Document:
        """Return one pick."""
        return {"items": [pick(1, "team/one", waitSeconds=self.wait)], "waiting": 1, "roomy": roomy}


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def clock() -> list[float]:
    return [NOW]


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def read(coordinator: Coordinator, feed: Feed, clock: list[float], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(readings, "EVERY_SECONDS", 0.01)
    found = Readings(lambda: cast(JobFeed, feed), lambda: cast(Any, coordinator), lambda: clock[0])

    def newest() -> readings.Reading:
        number = found.present.number
        return cast(readings.Reading, waiting.until(found.newest, lambda reading: reading.number > number + 1))

    with found:
        yield newest


def test_a_wait_begins_at_a_time_that_stays(read: Any, coordinator: Coordinator, clock: list[float]) -> None:
    first = read().began
    assert first == {"queue a": NOW - 90, "pick team/one 0": NOW - 90}
    clock[0], coordinator.wait = NOW + 60, 151.2
    assert read().began == first
    coordinator.wait = 1.0
    assert read().began == {"queue a": NOW + 59, "pick team/one 0": NOW + 59}


def test_the_figures_stay_while_no_coordinator_answers(read: Any, coordinator: Coordinator, clock: list[float]) -> None:
    before = read()
    assert (before.figures_at, before.problems) == (NOW, {})
    clock[0], coordinator.away = NOW + 30, "the coordinator does not answer"
    later = read()
    assert later.problems == {"coordinator": "the coordinator does not answer"}
    assert (later.at, later.figures_at, later.status) == (NOW + 30, NOW, {})
    assert (later.queues, later.upcoming, later.began) == (before.queues, before.upcoming, before.began)


def test_idle_growth_is_noted_while_a_queue_has_some(read: Any, coordinator: Coordinator) -> None:
    assert not read().has_idle_growth
    coordinator.idle = {"nvidia.com/gpu": "2"}
    assert read().has_idle_growth
    coordinator.away = "away"
    assert read().has_idle_growth, "the queues are still those of before"


def test_jobs_that_are_behind_for_longer_than_a_moment_are_said_to_be(read: Any, feed: Feed) -> None:
    before = read()
    feed.behind = "the API server does not answer"
    later = read()
    assert (later.jobs, later.problems) == (before.jobs, {"API server": "the API server does not answer"})
    feed.behind = ""
    assert read().problems == {}


def test_an_answer_that_is_not_understood_is_a_problem_until_the_next_one(read: Any, coordinator: Coordinator) -> None:
    queues = coordinator.queues
    coordinator.queues = lambda: [{"metadata": {}}]  # type: ignore[method-assign]
    assert "dashboard" in read().problems
    coordinator.queues = queues  # type: ignore[method-assign]
    found = read()
    assert not found.problems
    assert len(found.queues) == 2


def test_what_is_made_of_a_reading_is_made_once_and_of_the_jobs_until_they_differ(read: Any) -> None:
    made = list[str]()

    def make(what: str) -> str:
        made.append(what)
        return what

    first = read()
    assert [first.once("x", lambda: make("reading")) for _ in range(2)] == ["reading", "reading"]
    assert first.once_for_jobs("x", lambda: make("jobs")) == "jobs"
    second = read()
    assert second.once("x", lambda: make("reading")) == "reading"
    assert second.once_for_jobs("x", lambda: make("jobs")) == "jobs"
    assert made == ["reading", "jobs", "reading"]
    for number in range(readings.MOST_KEPT + 1):
        second.once(number, lambda: "y")
    assert second.once("x", lambda: make("again")) == "again", "what is kept is bounded"
