"""Restarts of training jobs: they continue from their checkpoint, and a restart in place keeps its pod."""

import contextlib
import importlib.util
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.api_resources import EVENTS, PODS, TORCHJOBS
from kube import errors
from tests.support.acceptance.jobs import job, python
from tests.support.acceptance.stack import Stack, fresh, until

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)"),
]

STEPS, GATE = 20, 8
TRAINING = """
import os, pathlib, sys, time
import torch, torch.distributed as dist
folder, steps, gate = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
rank = dist.get_rank()
checkpoint = folder / "checkpoint"
weight, begun = torch.zeros(1, dtype=torch.float64, requires_grad=True), 0
if checkpoint.exists():
    begun, value = torch.load(checkpoint)
    with torch.no_grad():
        weight.fill_(value)
with open(folder / "starts", "a") as file:
    file.write(f"{rank} {begun} {os.getpid()} {os.environ['POD']}\\n")
for step in range(begun, steps):
    if step == gate:
        (folder / f"waiting-{rank}").touch()
    while step == gate and not (folder / "go").exists():
        time.sleep(0.02)
    loss = (weight - (2.0 + 2.0 * rank)).square().sum()
    loss.backward()
    dist.all_reduce(weight.grad)
    with torch.no_grad():
        weight -= 0.1 * weight.grad / dist.get_world_size()
    weight.grad = None
    if rank == 0:
        torch.save((step + 1, weight.item()), folder / "new")
        os.replace(folder / "new", checkpoint)
dist.barrier()
if rank == 0:
    (folder / "weight").write_text(str(weight.item()))
"""
"""Two ranks with the targets 2 and 4 converge to 3: w = 3 (1 - 0.8^steps), for any restarts in between."""


class Training:
    """A job of a master and a worker that wait at step `GATE` until `go` is called."""

    def __init__(self, stack: Stack, folder: Path, **spec: Any) -> None:
        self.stack, self.folder, self.name = stack, folder, fresh("train")
        body = job(self.name, python(TRAINING, folder, STEPS, GATE), workers=1, policy="OnFailure", **spec)
        stack.submit(body)
        until(self.started, lambda found: len(found) == 2)
        self.stack.reach(self.name, "Running")
        until(lambda: all((folder / f"waiting-{rank}").exists() for rank in (0, 1)))

    def started(self) -> list[tuple[int, int, int]]:
        """Return rank, first step and pid of every process that has begun to train."""
        with contextlib.suppress(FileNotFoundError):
            lines = [line.split() for line in (self.folder / "starts").read_text().splitlines()]
            return [(int(rank), int(step), int(pid)) for rank, step, pid, _ in lines]
        return []

    def uids(self) -> dict[str, str]:
        return {each["metadata"]["name"].split("-")[1]: each["metadata"]["uid"] for each in self.stack.pods(self.name)}

    def kill(self, *ranks: int) -> None:
        newest = {rank: pid for rank, _, pid in self.started()}
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(newest[rank], signal.SIGKILL)

    def go(self) -> dict[str, Any]:
        """Let the job run to its end, check its result, and return its status."""
        (self.folder / "go").touch()
        found: dict[str, Any] = self.stack.reach(self.name, "Succeeded")["status"]
        assert float((self.folder / "weight").read_text()) == pytest.approx(3 * (1 - 0.8**STEPS), abs=1e-9)
        return found

    def ask(self, **request: Any) -> None:
        """Request a restart of the job with its annotation."""
        note = {labels.RESTART_REQUEST: json.dumps({"id": fresh("wish"), **request})}
        self.stack.api.patch(TORCHJOBS, self.name, {"metadata": {"annotations": note}}, "default")


@pytest.mark.parametrize("killed", [(1,), (0,), (0, 1)], ids=["worker", "master", "both"])
def test_a_killed_training_continues_from_its_checkpoint(stack: Stack, tmp_path: Path, killed: tuple[int, ...]) -> None:
    training = Training(stack, tmp_path)
    before = training.uids()
    training.kill(*killed)
    until(training.started, lambda found: len(found) >= 4)
    after = training.uids()
    status = training.go()
    assert (status["restartCount"], status["restartGeneration"], status.get("disruptions", 0)) == (1, 1, 0)
    assert {step for _, step, _ in training.started()[2:]} == {GATE}
    # A rank that was not killed keeps its pod, and a killed rank gets a new one.
    names = {"master": 0, "worker": 1}
    assert {each for each in names if before[each] == after[each]} == {
        each for each, rank in names.items() if rank not in killed
    }


@pytest.mark.parametrize("how", ["InPlace", "Recreate"])
def test_a_requested_restart_continues_from_the_checkpoint(stack: Stack, tmp_path: Path, how: str) -> None:
    training = Training(stack, tmp_path)
    before = training.uids()
    training.ask(how=how)
    until(training.started, lambda found: len(found) >= 4)
    assert (training.uids() == before) is (how == "InPlace")
    status = training.go()
    assert (status.get("restartCount", 0), status["restartGeneration"]) == (0, 1)


def test_a_deleted_pod_counts_as_a_disruption_and_not_as_a_failure(stack: Stack, tmp_path: Path) -> None:
    training = Training(stack, tmp_path, backoffLimit=0)
    before = training.uids()
    with contextlib.suppress(errors.NotFound):
        stack.api.delete(PODS, f"{training.name}-worker-0", "default", grace_period_seconds=1)
    until(training.started, lambda found: len(found) >= 4)
    assert training.uids()["master"] == before["master"]
    status = training.go()
    assert (status.get("restartCount", 0), status["disruptions"]) == (0, 1)


def test_policy_exit_code_uses_the_exit_of_the_process_behind_torchrun(stack: Stack, tmp_path: Path) -> None:
    """With ExitCode, exit code 1 fails a job, unless torchrun returned 1 because its own process got SIGKILL."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, pathlib, signal, sys\n"
        "mark = pathlib.Path(sys.argv[1])\n"
        "if not mark.exists():\n    mark.touch(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    name = fresh("masked")
    body = job(name, ["torchrun", str(script), str(tmp_path / "mark")], policy="ExitCode")
    stack.submit(body)
    status = stack.reach(name, "Succeeded")["status"]
    assert status["restartCount"] == 1


def test_a_failed_torchrun_script_without_record_reports_its_exception(stack: Stack, tmp_path: Path) -> None:
    """Four ranks run in two pods. The last rank fails, and the other ranks lose their connection to the last rank."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(100):\n"
        "    if (dist.get_rank(), step) == (3, 5):\n"
        "        raise ValueError('shapes do not match: 3 x 4 and 5 x 6')\n"
        "    dist.all_reduce(torch.ones(1))\n"
    )
    name = fresh("ranks")
    stack.submit(job(name, ["torchrun", str(script)], workers=1, nprocPerNode=2))
    status = stack.reach(name, "Failed")["status"]
    (said,) = [each["message"] for each in status["conditions"] if each["type"] == "Failed"]
    expected = "ValueError: shapes do not match: 3 x 4 and 5 x 6"
    assert said == f"pod {name}-worker-0 failed with exit code 1 (Error): {expected}"


def test_a_job_over_its_backoff_limit_deletes_its_running_pod(stack: Stack, tmp_path: Path) -> None:
    training = Training(stack, tmp_path, cleanPodPolicy="None", backoffLimit=0)
    training.kill(1)
    stack.reach(training.name, "Failed")
    until(lambda: [each["metadata"]["name"] for each in stack.pods(training.name)], lambda names: len(names) == 1)
    until(lambda: "BackoffLimitExceeded" in {each["reason"] for each in stack.api.list(EVENTS, "default").items})
