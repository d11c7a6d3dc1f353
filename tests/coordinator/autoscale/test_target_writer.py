"""The writes of targets: never by another than the leader, never for a job that has changed since."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from coordinator.autoscale.target_writer import AT_ONCE, REFUSED_SECONDS, TargetWriter
from coordinator.cache.watches import Watches
from crds.keys import JobKey
from crds.torchjob.status import Target
from kube import errors
from kube.api import Cluster
from tests.support.clock import Clock
from tests.support.coordinator.builders import job

TARGET = Target(workers=2, reason="GiveBack", message="to b", since=datetime.fromtimestamp(1000, UTC), wish=4)


class Patches:
    """An API server that takes patches, or refuses each with an error."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Any, str]] = []
        self.error: Exception | None = None
        self.tried = 0
        self.during: Callable[[], object] = lambda: None

    def serves(self, _resource: Any) -> bool:
        return True

    def patch(self, _resource: Any, name: str, patch: Any, *_: Any, resource_version: str, **__: Any) -> Any:
        self.tried += 1
        self.during()
        if self.error is not None:
            raise self.error
        self.taken.append((name, patch["status"]["target"], resource_version))
        return {"metadata": {"resourceVersion": "9"}}


@pytest.fixture
def server() -> Patches:
    return Patches()


@pytest.fixture
def writer(server: Patches, clock: Clock) -> TargetWriter:
    cluster = cast(Cluster, server)
    return TargetWriter(cluster, Watches(cluster, nodes=False), elapsed=clock)


def keys(count: int) -> list[JobKey]:
    return [JobKey("team", f"train-{number}", f"u{number}") for number in range(count)]


def test_a_target_is_written_for_the_version_that_was_judged(writer: TargetWriter, server: Patches) -> None:
    writer.put(job(version="7"), TARGET)
    writer.step()
    assert server.taken == [("train", TARGET.manifest(), "7")]
    assert writer.is_under_way(job().key), "the watch has not shown the write"
    writer.put(job(version="7"), None)
    writer.step()
    assert server.taken[1:] == [("train", None, "7")]


def test_a_target_is_under_way_while_it_is_written(writer: TargetWriter, server: Patches) -> None:
    found: list[bool] = []
    server.during = lambda: found.append(writer.is_under_way(job().key))
    writer.put(job(), TARGET)
    writer.step()
    server.error = errors.Conflict("changed")
    writer.put(job(), TARGET)
    writer.step()
    assert (found, writer.is_under_way(job().key)) == ([True, True], False)


def test_writes_that_the_watch_has_shown_are_forgotten(writer: TargetWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in keys(3):
        writer.put(job(key=key), TARGET)
        writer.step()
        monkeypatch.setattr(type(writer.watches.jobs), "resource_version", 9)
    assert len(writer) == 0


def test_the_newest_decision_counts(writer: TargetWriter, server: Patches) -> None:
    writer.put(job(version="7"), TARGET)
    writer.put(job(version="8"), None)
    writer.step()
    assert server.taken == [("train", None, "8")]
    writer.put(job(), TARGET)
    writer.keep(job().key)
    assert writer.step() == 0


def test_who_does_not_lead_writes_nothing(writer: TargetWriter, server: Patches) -> None:
    leading = [True, True, False]
    writer.leading = lambda: leading.pop(0)
    for key in keys(3):
        writer.put(job(key=key), TARGET)
    writer.step()
    assert server.tried == 2
    writer.clear()
    writer.leading = lambda: True
    assert writer.step() == 0, "a new term begins without the decisions of an earlier one"


def test_a_job_that_has_changed_is_left_to_the_next_look(writer: TargetWriter, server: Patches) -> None:
    server.error = errors.Conflict("changed")
    for key in keys(2):
        writer.put(job(key=key), TARGET)
    assert writer.step() == 2
    assert (server.taken, len(writer)) == ([], 0)


def test_a_missing_permission_is_reported_once_and_pauses_the_writes(
    writer: TargetWriter, server: Patches, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server.error = errors.Forbidden("torchjobs/status is forbidden")
    for key in keys(3):
        writer.put(job(key=key), TARGET)
    writer.step()
    writer.step()
    assert server.tried == 1
    clock.step(REFUSED_SECONDS)
    writer.step()
    assert server.tried == 2
    assert caplog.text.count("is forbidden") == 1


def test_writes_have_a_budget(writer: TargetWriter, server: Patches, clock: Clock) -> None:
    for key in keys(AT_ONCE + 5):
        writer.put(job(key=key), TARGET)
    writer.step()
    assert server.tried == AT_ONCE
    clock.step(1)
    writer.step()
    assert server.tried == AT_ONCE + 5
