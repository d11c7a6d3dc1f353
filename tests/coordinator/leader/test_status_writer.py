"""The only writer of the leader's statuses: the order of its writes, and how it treats errors."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from coordinator.cache.watches import Watches
from coordinator.leader import status_writer
from coordinator.leader.status_writer import MOST_INVALID, REFUSED_SECONDS, RETRY_SECONDS, Put, QueueKey, StatusWriter
from crds.api_resources import TENANT_QUEUES, TORCHJOBS, Resource
from crds.keys import JobKey
from crds.torchjob.status import Target
from kube import errors
from kube.api import Cluster
from kube.process.turns import Turns
from tests.support.clock import Clock
from tests.support.waiting import SECONDS

TARGET = Target(
    workers=2, reason="GiveBack", message="to b", since=datetime.fromtimestamp(1000, UTC), wish=4
).manifest()
KEY = JobKey("team", "train", "u1")
LANES = ("jobs", "reasons", "queues")


class Patches:
    """An API server that accepts patches, and calls a function of the test before each patch."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any, str]] = []
        self.tried: list[Resource] = []
        self.before: Callable[[Resource, Any], object] = lambda _resource, _status: None

    def serves(self, _resource: Any) -> bool:
        return True

    def patch(self, resource: Any, name: str, patch: Any, *_: Any, resource_version: str, **__: Any) -> Any:
        self.tried.append(resource)
        self.before(resource, patch["status"])
        self.taken.append((name, patch["status"], resource_version))
        return {"metadata": {"resourceVersion": "9"}}

    def refuse(self, error: Exception, of: Callable[[Resource, Any], bool] = lambda *_: True) -> None:
        """Refuse patches with an error; by default all patches."""

        def fail(resource: Resource, status: Any) -> None:
            if of(resource, status):
                raise error

        self.before = fail


class Term:
    epoch = 1


@pytest.fixture
def server() -> Patches:
    return Patches()


@pytest.fixture
def term() -> Term:
    return Term()


@pytest.fixture
def writer(server: Patches, term: Term, clock: Clock) -> StatusWriter:
    cluster = cast(Cluster, server)
    return StatusWriter(cluster, Watches(cluster, nodes=False), lambda: term.epoch, elapsed=clock)


def keys(count: int) -> list[JobKey]:
    return [JobKey("team", f"train-{number:03}", f"u{number}") for number in range(count)]


def fill(writer: StatusWriter, lane: str, count: int = 200) -> None:
    """Put more statuses into a lane than its budget allows for many seconds."""
    for key in keys(count):
        match lane:
            case "jobs":
                writer.jobs.put(key, {"target": TARGET}, "7")
            case "reasons":
                writer.reasons.put(key, {"queue": {"reason": "Held"}})
            case _:
                writer.queues.put(QueueKey(key.name), {"pending": 1})


def kind(resource: Resource, status: Any) -> str:
    """Return the lane from which a patch comes."""
    return "queues" if resource == TENANT_QUEUES else "reasons" if "queue" in status else "jobs"


def test_a_status_is_written_for_the_version_that_was_judged(writer: StatusWriter, server: Patches) -> None:
    writer.jobs.put(KEY, {"target": TARGET}, "7")
    writer.step()
    assert server.taken == [("train", {"target": TARGET}, "7")]
    assert writer.jobs.is_under_way(KEY), "the watch has not shown the write"
    writer.jobs.put(KEY, {"target": None}, "7")
    writer.step()
    assert server.taken[1:] == [("train", {"target": None}, "7")]


def test_a_status_is_under_way_while_it_is_written(writer: StatusWriter, server: Patches) -> None:
    found: list[bool] = []
    server.before = lambda *_: found.append(writer.jobs.is_under_way(KEY))
    writer.jobs.put(KEY, {"target": TARGET}, "7")
    writer.step()
    server.refuse(errors.Conflict("changed"))
    writer.jobs.put(KEY, {"target": TARGET}, "7")
    writer.step()
    assert (found, writer.jobs.is_under_way(KEY)) == ([True], False)


def test_writes_that_the_watch_has_shown_are_forgotten(writer: StatusWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys(3):
        writer.jobs.put(key, {"target": TARGET}, "7")
        writer.step()
        monkeypatch.setattr(type(writer._watches.jobs), "resource_version", 9)
    assert len(writer.jobs) == 0


def test_the_newest_put_counts_and_fields_for_the_same_version_go_together(
    writer: StatusWriter, server: Patches
) -> None:
    writer.jobs.put(KEY, {"target": TARGET, "hang": None}, "7")
    writer.jobs.put(KEY, {"target": None}, "8")
    writer.jobs.put(KEY, {"recalled": "now"}, "8")
    writer.step()
    assert server.taken == [("train", {"target": None, "recalled": "now"}, "8")]
    writer.jobs.put(KEY, {"target": TARGET, "hang": None}, "9")
    writer.jobs.discard(KEY, "target")
    assert writer.jobs.waiting(KEY) == {"hang": None}
    writer.jobs.discard(KEY)
    assert writer.step() == 0


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_put_of_an_earlier_term_is_never_written(
    writer: StatusWriter, server: Patches, term: Term, epoch: int
) -> None:
    for key in keys(3):
        writer.jobs.put(key, {"target": TARGET}, "7")

    def lose(*_: object) -> None:
        term.epoch = epoch

    server.before = lose
    writer.step()
    term.epoch = 0
    writer.reasons.put(KEY, {"queue": {"reason": "Held"}})
    term.epoch = 2
    assert (writer.step(), len(server.tried), len(writer.reasons)) == (0, 1, 0)


@pytest.mark.parametrize("error", [errors.Conflict("changed"), errors.NotFound("deleted")])
def test_an_object_that_has_changed_or_is_gone_is_left_to_those_who_judge_it(
    writer: StatusWriter, server: Patches, error: Exception
) -> None:
    server.refuse(error)
    fill(writer, "jobs", 2)
    assert writer.step() == 2
    assert (server.taken, len(writer.jobs)) == ([], 0)


@pytest.mark.parametrize("way", ["put", "discard", "discard one", "nothing"])
def test_a_write_that_was_overtaken_or_discarded_while_it_failed_is_not_tried_again(
    writer: StatusWriter, server: Patches, clock: Clock, way: str
) -> None:
    def overtake(*_: object) -> None:
        server.before = lambda *_: None
        match way:
            case "put":
                writer.jobs.put(KEY, {"target": None}, "7")
            case "discard":
                writer.jobs.discard(KEY)
            case "discard one":
                writer.jobs.discard(KEY, "hang")
        raise errors.ServerError("not now")

    server.before = overtake
    writer.jobs.put(KEY, {"target": TARGET, "hang": None}, "7")
    writer.step()
    assert not server.taken
    clock.step(RETRY_SECONDS)
    writer.step()
    again = {"put": [{"target": None}], "nothing": [{"target": TARGET, "hang": None}]}
    assert [status for _, status, _ in server.taken] == again.get(way, [])


def test_a_missing_permission_is_reported_once_and_pauses_its_lane_alone(
    writer: StatusWriter, server: Patches, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse(errors.Forbidden("torchjobs/status is forbidden"), lambda *about: kind(*about) == "jobs")
    fill(writer, "jobs", 3)
    fill(writer, "queues", 3)
    writer.step()
    writer.step()
    assert (server.tried.count(TORCHJOBS), len(server.taken)) == (1, 3)
    clock.step(REFUSED_SECONDS)
    writer.step()
    assert server.tried.count(TORCHJOBS) == 2
    assert caplog.text.count("is forbidden") == 1


def test_a_status_that_is_invalid_is_not_written_again(
    writer: StatusWriter, server: Patches, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse(errors.Invalid("too long"))
    for pending in (1, 1, 2):
        writer.queues.put(QueueKey("a"), {"pending": pending})
        writer.step()
    assert len(server.tried) == 2
    assert "the status of TenantQueue a cannot be written: too long" in caplog.text
    for number in range(MOST_INVALID + 9):
        writer.queues.refuse(QueueKey(str(number)), Put({"pending": 1}, "", 1, "", None))
    assert len(writer.queues) == MOST_INVALID, "no write would remove the refusals of deleted objects"


@pytest.mark.parametrize("endless", LANES)
@pytest.mark.parametrize("server_does", ["answer", "429", "500", "hang"])
def test_no_lane_starves_another(
    writer: StatusWriter, server: Patches, clock: Clock, endless: str, server_does: str
) -> None:
    """One lane has endless work, or the API server fails its writes. The other lanes advance by their budgets."""
    seconds, hang, latency = 40.0, 10.0, 0.01
    tried = dict.fromkeys(LANES, 0)

    def answer(resource: Resource, status: Any) -> None:
        lane = kind(resource, status)
        tried[lane] += 1
        clock.step(latency)
        if lane == endless and server_does != "answer":
            clock.step(hang if server_does == "hang" else 0.0)
            raise {
                "429": errors.TooManyRequests("later"),
                "500": errors.ServerError("broken"),
                "hang": errors.Unreachable("no answer"),
            }[server_does]

    server.before = answer
    for lane in LANES:
        fill(writer, lane, 1000)
    end = clock() + seconds
    while clock() < end:
        if not writer.step():
            clock.step(status_writer.INTERVAL_SECONDS)
        if endless == "jobs":
            fill(writer, "jobs", 20)
    # A lane that hangs holds up the thread for at most half of the time.
    part = 0.4 if server_does == "hang" else 0.8
    least = {"jobs": 1000, "reasons": 20 * seconds, "queues": 5 * seconds}
    for lane in {*LANES} - {endless}:
        assert tried[lane] >= part * least[lane], (lane, tried)
    assert tried["reasons"] <= 20 * seconds + 6
    assert tried["queues"] <= 5 * seconds + 6


def test_the_thread_survives_an_unforeseen_error(writer: StatusWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "INTERVAL_SECONDS", 0.005)
    stop, failed = threading.Event(), threading.Semaphore(0)

    def fail() -> int:
        failed.release()
        raise OverflowError("nobody foresaw it")

    monkeypatch.setattr(StatusWriter, "step", lambda _: fail())
    thread = threading.Thread(target=writer.run, args=(stop, lambda: True, Turns()))
    thread.start()
    try:
        assert all(failed.acquire(timeout=SECONDS) for _ in range(3))
        assert f"{status_writer.ALL} (OverflowError" in writer._watches.errors.summary
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not thread.is_alive()


def test_only_a_leader_writes(writer: StatusWriter, server: Patches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "INTERVAL_SECONDS", 0.005)
    stop, leads, asked, written = threading.Event(), threading.Event(), threading.Semaphore(0), threading.Event()

    def leading() -> bool:
        asked.release()
        return leads.is_set()

    server.before = lambda *_: written.set()
    writer.queues.put(QueueKey("a"), {"pending": 1})
    thread = threading.Thread(target=writer.run, args=(stop, leading, Turns()))
    thread.start()
    try:
        assert all(asked.acquire(timeout=SECONDS) for _ in range(3))
        assert not server.tried
        leads.set()
        assert written.wait(SECONDS)
    finally:
        stop.set()
        thread.join(SECONDS)
    assert not thread.is_alive()
