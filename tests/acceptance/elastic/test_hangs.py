"""Training scripts that stop making steps: all containers of a job are restarted, or only the pod that hangs is
replaced.
"""

from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import EVENTS
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic"
TRAINING = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
import report
report.SECONDS = 5.1  # the least that the coordinator allows
folder, pod, began, step = sys.argv[1], os.environ["POD"], time.monotonic(), 0
life = os.path.join(folder, pod)
stands = pod.endswith(sys.argv[3]) and not os.path.exists(life)
open(life, "w").close()
while not os.path.exists(os.path.join(folder, "go")):
    if not stands or time.monotonic() < began + 12:  # long enough for the report of a second step
        step += 1
        report.report(step)
    time.sleep(0.02)
"""
SECONDS = 240.0
"""The least timeout is 60 s, and this machine may be busy."""


def training(name: str, folder: Path, stands: str, **spec: Any) -> dict[str, Any]:
    """Return a job of two workers. Workers whose names end in `stands` stop making steps in their first life."""
    folder.mkdir()
    command = python(TRAINING, folder, EXAMPLE, stands)
    health = {"hangTimeoutSeconds": 60, "onHang": "Restart"}
    body = job(name, command, workers=2, policy="OnFailure", cpu="100m", health=health, **spec)
    tasks = body["spec"]["torchTaskSpecs"]
    body["spec"]["torchTaskSpecs"] = {"Worker": {**tasks["Worker"], "dependsOn": []}}
    return body


def uids(stack: Stack, name: str) -> dict[str, str]:
    return {each["metadata"]["name"][-1]: each["metadata"]["uid"] for each in stack.pods(name)}


def told(stack: Stack, name: str) -> dict[str, str]:
    """Return the message of the last event of each reason."""
    events = [each for each in stack.api.list(EVENTS, "default").items if each["involvedObject"]["name"] == name]
    return {each["reason"]: each["message"] for each in events}


@pytest.mark.timeout(600)
def test_job_that_stands_is_restarted_in_place_and_a_pod_that_stands_alone_is_replaced(
    stack: Stack, tmp_path: Path
) -> None:
    whole, alone = fresh("hang"), fresh("hang")
    stack.submit(training(whole, tmp_path / whole, ""), training(alone, tmp_path / alone, "-1", restartScope="Task"))
    for name in (whole, alone):
        stack.reach(name, "Running")
    before = {name: uids(stack, name) for name in (whole, alone)}
    for name in (whole, alone):
        until(lambda name=name: stack.job(name)["status"].get("restartCount"), seconds=SECONDS)
        stack.reach(name, "Running")
    assert uids(stack, whole) == before[whole], "the containers were restarted in the same pods"
    assert "no pod makes a step since" in told(stack, whole)["Hanging"]
    assert "restart 1 of 6: no pod makes a step since" in told(stack, whole)["Restarting"]
    until(lambda: uids(stack, alone).get("1"), lambda uid: uid not in (None, before[alone]["1"]))
    assert uids(stack, alone)["0"] == before[alone]["0"], "the pod that makes steps is not restarted"
    assert f"pod {alone}-worker-1 is silent since" in told(stack, alone)["Hanging"]
    assert sum(stack.job(alone)["status"]["nodeFailures"].values()) == 1
    for name in (whole, alone):
        (tmp_path / name / "go").touch()
        assert stack.reach(name, "Succeeded")["status"]["restartCount"] == 1
