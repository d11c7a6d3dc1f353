"""The steps in which the embedded node writes the end of a container: the same steps that a kubelet shows to
watches.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crds.api_resources import PODS
from tests.support.embedded.stage import Stage, first
from tests.support.waiting import until

TRAINER = ("sh", "-c", 'trap "exit 0" TERM; echo up; while :; do sleep 0.05; done')
"""A program that exits 0 on SIGTERM, as a trainer that saves first does."""
Seen = tuple[str, str, str, int | None, int | None]
"""An event: its kind, the phase, the state of the first container, its exit code, and the grace of the deletion."""
Told = Callable[[str, Callable[[Seen], bool]], list[Seen]]


@pytest.fixture
def told(stage: Stage) -> Iterator[Told]:
    """Return a function that returns the distinct events of a pod, up to the event for which `last` is true."""
    start = stage.cluster.list(PODS, "default").resource_version
    watches = []

    def events(name: str, last: Callable[[Seen], bool]) -> list[Seen]:
        watch = stage.cluster.watch(PODS, "default", resource_version=start, timeout_seconds=30)
        watches.append(watch)
        found: list[Seen] = []
        for event in watch:
            if event.object["metadata"].get("name") == name:
                found += [seen for seen in [_seen(event.kind, event.object)] if found[-1:] != [seen]]
            if found and last(found[-1]):
                return found
        raise AssertionError(f"the watch ended: {found}")

    yield events
    for watch in watches:
        watch.close()


def _seen(kind: str, pod: dict[str, Any]) -> Seen:
    state = first(pod.get("status", {})).get("state", {})
    word = next((inner.get("reason", outer) for outer, inner in state.items()), "")
    code = state.get("terminated", {}).get("exitCode")
    return kind, pod["status"]["phase"], word, code, pod["metadata"].get("deletionGracePeriodSeconds")


def _from_running(events: list[Seen]) -> list[Seen]:
    return events[next(at for at, seen in enumerate(events) if seen[2] == "running") :]


def _is_gone(seen: Seen) -> bool:
    return seen[0] == "DELETED"


RUNNING: Seen = ("MODIFIED", "Running", "running", None, None)
OWN_ENDS: dict[str, tuple[str, str, int, str]] = {
    "well": ("sleep 0.3; exit 0", "Completed", 0, "Succeeded"),
    "badly": ("sleep 0.3; exit 3", "Error", 3, "Failed"),
    "by a signal": ("sleep 0.3; kill -9 $$", "Error", 137, "Failed"),
}


@pytest.mark.parametrize(("script", "reason", "code", "phase"), OWN_ENDS.values(), ids=OWN_ENDS.keys())
def test_container_has_ended_before_its_pod(
    stage: Stage, told: Told, script: str, reason: str, code: int, phase: str
) -> None:
    name = stage.run("sh", "-c", script.replace("$$", "$$$$"))
    events = told(name, lambda seen: seen[1] in ("Succeeded", "Failed"))
    assert _from_running(events) == [
        RUNNING,
        ("MODIFIED", "Running", reason, code, None),
        ("MODIFIED", phase, reason, code, None),
    ]


def test_deleted_pod_ends_before_its_node_removes_it(stage: Stage, told: Told) -> None:
    name = stage.run(*TRAINER)
    until(lambda: stage.log(name) if stage.phase(name, "Running") else "", bool)
    stage.delete(name)
    assert _from_running(told(name, _is_gone)) == [
        RUNNING,
        ("MODIFIED", "Running", "running", None, 30),
        ("MODIFIED", "Running", "Completed", 0, 30),
        ("MODIFIED", "Succeeded", "Completed", 0, 30),
        ("MODIFIED", "Succeeded", "Completed", 0, 0),
        ("DELETED", "Succeeded", "Completed", 0, 0),
    ]


def test_deleted_pod_that_never_ran_has_failed(stage: Stage, told: Told) -> None:
    variable = {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "nobody", "key": "k"}}}
    name = stage.run("true", container={"env": [variable]})
    stage.wait(name, lambda status: "CreateContainerConfigError" in str(status))
    stage.delete(name)
    assert [(kind, phase, grace) for kind, phase, _, _, grace in told(name, _is_gone)[-3:]] == [
        ("MODIFIED", "Failed", 30),
        ("MODIFIED", "Failed", 0),
        ("DELETED", "Failed", 0),
    ]


def test_failed_container_has_terminated_before_it_waits_or_starts_again(stage: Stage, told: Told) -> None:
    name = stage.run("sh", "-c", "sleep 0.3; exit 4", policy="OnFailure")
    status = stage.wait(name, lambda status: first(status).get("restartCount") == 2)
    assert first(status)["lastState"]["terminated"]["exitCode"] == 4
    failed: Seen = ("MODIFIED", "Running", "Error", 4, None)
    rounds = [RUNNING, failed, RUNNING, failed, ("MODIFIED", "Running", "CrashLoopBackOff", None, None), RUNNING]
    events: list[Seen] = []
    assert _from_running(told(name, lambda seen: bool(events.append(seen)) or events.count(RUNNING) == 3)) == rounds
    stage.delete(name, grace=0)
    stage.wait_gone(name)


def test_number_of_restarts_rises_with_the_restart(stage: Stage) -> None:
    start = stage.cluster.list(PODS, "default").resource_version  # a slow machine may run the pod before it is read
    name = stage.run("sh", "-c", "sleep 0.3; exit 4", policy="OnFailure")
    watch = stage.cluster.watch(PODS, "default", resource_version=start, timeout_seconds=30)
    shown: list[tuple[int, str]] = []
    for event in watch:
        container = first(event.object.get("status", {})) if event.object["metadata"].get("name") == name else {}
        shown += [(container["restartCount"], state) for state in container.get("state", {})]
        if shown and shown[-1] == (2, "running"):
            break
    watch.close()
    expected = [(0, "running"), (0, "terminated"), (1, "running"), (1, "terminated"), (1, "waiting"), (2, "running")]
    assert list(dict.fromkeys(shown))[-6:] == expected
    stage.delete(name, grace=0)
    stage.wait_gone(name)
