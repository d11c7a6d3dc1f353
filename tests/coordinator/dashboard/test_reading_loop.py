"""When the dashboard reads the cluster, and what it shows where an answer fails."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from coordinator.dashboard import readings
from coordinator.dashboard.readings import LOOKED_SECONDS, Readings
from coordinator.errors import CoordinatorError
from coordinator.follow.job_feed import Inbox, JobFeed
from coordinator.query.questions import Document, Queries
from kube import errors
from kube.api import Manifest
from tests.support.clock import Clock
from tests.support.waiting import until


@dataclass
class Cluster:
    """An API server and a coordinator that answer as a test says."""

    jobs: list[Manifest] = field(default_factory=list)
    queue: Document = field(default_factory=lambda: {"metadata": {"name": "a"}, "spec": {}, "status": {}})
    failing: dict[str, Exception] = field(default_factory=dict)
    asked: int = 0
    inbox: Inbox = field(default_factory=Inbox)
    behind: str = ""

    def all(self, inbox: Inbox) -> list[Manifest]:
        self.inbox = inbox
        self._fail("API server")
        return self.jobs

    def queries(self) -> Queries:
        self._fail("coordinator")
        return cast("Queries", self)

    def status(self) -> Document:
        self.asked += 1
        return {"leader": "one"}

    def queues(self) -> list[Document]:
        self._fail("queues")
        return [self.queue]

    def next(self, _count: int, *, roomy: bool = False) -> Document:
        return {"items": [], "roomy": roomy}

    def _fail(self, part: str) -> None:
        if part in self.failing:
            raise self.failing[part]


@pytest.fixture
def served() -> Cluster:
    return Cluster()


@pytest.fixture
def read(served: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Readings]:
    monkeypatch.setattr(readings, "EVERY_SECONDS", 0.001)
    feed = cast("JobFeed", served)
    with Readings(lambda: feed, served.queries, clock, clock) as found:
        yield found


def later(read: Readings, **wanted: Any) -> readings.Reading:
    """Return a reading of which some fields have these values, as a page that is open finds it."""
    found: readings.Reading = until(
        read.newest, lambda found: all(getattr(found, name) == value for name, value in wanted.items())
    )
    return found


def test_nothing_is_asked_while_nobody_looks(served: Cluster, read: Readings, clock: Clock) -> None:
    first = read.newest().number
    until(lambda: read.present.number, lambda number: number > first + 2)
    clock.step(LOOKED_SECONDS + 1)
    looks = [-1]

    def look() -> list[int]:
        looks.append(served.asked)
        return looks[-2:]

    until(look, lambda last: last[0] == last[1])
    asked = served.asked
    assert read.present.number <= asked
    assert read.newest().number > first
    assert served.asked > asked


def test_a_part_that_does_not_answer_is_named_and_the_rest_is_shown(served: Cluster, read: Readings) -> None:
    served.jobs = [{"metadata": {"name": "a"}}]
    known = read.newest()
    assert (known.problems, known.jobs, known.queues) == ({}, ({"metadata": {"name": "a"}},), (served.queue,))
    served.failing = {"coordinator": CoordinatorError("no answer")}
    away = later(read, problems={"coordinator": "no answer"})
    assert (away.jobs, away.queues, away.status) == (known.jobs, known.queues, {})
    served.failing = {"API server": errors.Unreachable("it is down"), "queues": CoordinatorError("not these")}
    assert later(read, problems={"API server": "it is down", "coordinator": "not these"}).jobs == known.jobs
    served.failing = {}
    assert later(read, problems={}).status == {"leader": "one"}
