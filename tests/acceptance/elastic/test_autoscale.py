"""An elastic job on real processes grows into the idle room of the machine, and gives this room back when a job of
another queue comes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Make
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

WAITING = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def small(make_stack: Make) -> Iterator[Stack]:
    """Yield a cluster with room for six pods, in which room is idle after a second."""
    stack = make_stack(TORCHQ_POOL="cpu=60m", TORCHQ_IDLE_SECONDS="1")
    said = stack.up()
    assert said.code == 0, said
    yield stack
    stack.clear()


def elastic(stack: Stack, end: Path) -> str:
    """Submit an elastic job of two workers, at most four, and a rendezvous store. Return the name of the job."""
    name = fresh("elastic")
    body = job(name, python(WAITING, end), workers=2, policy="OnFailure", cpu="10m", queue="default")
    worker = {**body["spec"]["torchTaskSpecs"]["Worker"], "dependsOn": []}
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4, "autoscale": "Idle", "resizeEverySeconds": 1}
    tasks = {"Worker": worker, "Rendezvous": {**worker, "numTasks": 1}}
    body["spec"] |= {"torchElasticPolicy": policy, "torchTaskSpecs": tasks}
    stack.submit(body)
    stack.reach(name, "Running")
    return name


def counts(stack: Stack, name: str) -> tuple[int, int]:
    """Return the number of workers of a job, and how many of them are idle growth; zeros while a change is under
    way.
    """
    status: dict[str, Any] = stack.job(name)["status"]
    admission = status["admission"]
    return (0, 0) if status.get("scaling") else (admission["workers"], admission.get("idle", 0))


def test_the_history_tells_idle_growth_apart_until_it_is_paid_for(small: Stack, tmp_path: Path) -> None:
    stack = small
    name = elastic(stack, tmp_path / "never")
    until(lambda: counts(stack, name), lambda found: found == (4, 2))
    stack.torchq("job", "scale", name, "4")
    until(lambda: counts(stack, name), lambda found: found == (4, 0))
    stack.torchq("job", "delete", name)
    found = until(lambda: json.loads(stack.torchq("history", name, "-o", "json")), lambda past: past["ended"])
    assert [(hold["workers"], hold["unpaid"].get("cpu"), hold["ended"]) for hold in found["holds"]] == [
        (2, None, "Resized"),
        (4, "20m", "Paid"),
        (4, None, "Deleted"),
    ]
    idle = found["holds"][1]
    assert idle["idleGrowth"]["seconds"].get("cpu", "0") == str(20 * idle["heldSeconds"])


def test_idle_room_is_used_and_given_back_without_a_restart(small: Stack, tmp_path: Path) -> None:
    stack, end = small, tmp_path / "end"
    stack.torchq("queue", "create", "other")
    name = elastic(stack, end)
    until(lambda: counts(stack, name), lambda found: found == (4, 2))
    first = {pod["metadata"]["uid"] for pod in stack.pods(name)}
    shown = stack.torchq("job", "show", name)
    assert "4 workers: 2 wanted, 2 idle growth since " in shown
    assert "min 1, max 4" in shown
    assert "cpu=20m" in stack.torchq("queue", "show", "default").partition("Idle growth:")[2]
    assert "AtMost" in stack.torchq("scale", "plan")
    head = fresh("head")
    stack.submit(job(head, python(WAITING, end), cpu="30m", queue="other"))
    stack.reach(head, "Running")
    assert until(lambda: counts(stack, name), lambda found: found != (0, 0)) == (2, 0)
    found = stack.job(name)["status"]
    assert {pod["metadata"]["uid"] for pod in stack.pods(name)} < first
    assert (found.get("restartCount", 0), found["attempt"], found.get("target")) == (0, 1, None)
    events = stack.torchq("job", "show", name)
    assert "Grown" in events
    assert f"gives 2 workers back to default/{head}" in events
