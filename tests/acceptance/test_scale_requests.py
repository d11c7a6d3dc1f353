"""ScaleOuts and ScaleIns on real processes: only the workers that a request names are added or removed."""

from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import SCALE_INS, SCALE_OUTS
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

WAITING = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


class Waiting:
    """An elastic job of two workers. The workers and their store wait for a file."""

    def __init__(self, stack: Stack, folder: Path, queue: str = "default") -> None:
        self.stack, self.name = stack, fresh("scale")
        body = job(self.name, python(WAITING, folder / "end"), workers=2, policy="OnFailure", cpu="10m", queue=queue)
        worker = {**body["spec"]["torchTaskSpecs"]["Worker"], "dependsOn": []}
        body["spec"] |= {
            "torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 4},
            "torchTaskSpecs": {"Worker": worker, "Rendezvous": {**worker, "numTasks": 1}},
        }
        stack.submit(body)
        stack.reach(self.name, "Running")
        self.began = stack.job(self.name)["status"]["startTime"]

    def scale(self, *arguments: str, code: int = 0) -> str:
        """Change the size of the job, wait until the request has ended, and return the output of the command."""
        result = self.stack.try_run("job", "scale", self.name, *arguments, "--wait")
        assert result.code == code, result
        return result.out + result.err

    def uids(self) -> dict[int, str]:
        """Return the uids of the workers by index."""
        pods = [pod["metadata"] for pod in self.stack.pods(self.name)]
        return {int(pod["name"][-1]): pod["uid"] for pod in pods if "-worker-" in pod["name"]}

    def check(self, workers: int) -> None:
        """Check that the job has this number of workers and was not restarted."""
        found = self.stack.job(self.name)
        status = found["status"]
        assert found["spec"]["torchTaskSpecs"]["Worker"]["numTasks"] == workers
        assert status["admission"]["workers"] == workers
        assert (status["startTime"], status["attempt"]) == (self.began, 1)
        assert (status.get("restartCount", 0), status.get("disruptions", 0)) == (0, 0)

    def requests(self) -> list[dict[str, Any]]:
        kinds = (SCALE_OUTS, SCALE_INS)
        found = [item for kind in kinds for item in self.stack.api.list(kind, "default").items]
        return [item for item in found if item["spec"]["selector"]["name"] == self.name]


@pytest.mark.smoke("scale")
def test_workers_that_no_request_is_about_keep_their_pods(stack: Stack, tmp_path: Path) -> None:
    waiting = Waiting(stack, tmp_path)
    first = waiting.uids()
    assert "from 2 to 4 workers" in waiting.scale("+2")
    four = waiting.uids()
    assert four.items() >= first.items()
    assert four.keys() == {0, 1, 2, 3}
    waiting.scale("--pods", f"{waiting.name}-worker-0,{waiting.name}-worker-2")
    assert waiting.uids() == {1: four[1], 3: four[3]}
    waiting.scale("+1")
    three = waiting.uids()
    assert three.keys() == {0, 1, 3}, "a new worker gets the lowest free index"
    assert three[0] != four[0]
    assert "InvalidPods" in waiting.scale("--pods", f"{waiting.name}-rendezvous-0", code=1)
    assert waiting.uids() == three
    waiting.check(3)


def test_scale_out_without_room_leaves_the_job_as_it_was(stack: Stack, tmp_path: Path) -> None:
    queue = fresh("queue")
    stack.torchq("queue", "create", queue, "--quota", "cpu=40m")
    waiting = Waiting(stack, tmp_path, queue)
    before = waiting.uids()
    assert "TimedOut" in waiting.scale("+2", "--timeout", "2", code=1)
    assert waiting.uids() == before
    waiting.check(2)
    assert "from 2 to 3 workers" in waiting.scale("+1")
    waiting.check(3)


def test_requests_go_one_after_the_other_and_with_their_job(stack: Stack, tmp_path: Path) -> None:
    waiting = Waiting(stack, tmp_path)
    for change in ("+1", "+1", "-1"):
        stack.torchq("job", "scale", waiting.name, change)
    over = until(
        waiting.requests, lambda found: [each.get("status", {}).get("phase") for each in found] == ["Succeeded"] * 3
    )
    assert sorted((each["status"]["from"], each["status"]["to"]) for each in over) == [(2, 3), (3, 4), (4, 3)]
    waiting.check(3)
    stack.torchq("job", "delete", waiting.name)
    until(waiting.requests, lambda found: not found)
