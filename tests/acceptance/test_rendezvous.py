"""An elastic job of torchrun on real processes grows, loses a worker, and then loses its rendezvous store.

The store needs torch: on a machine without torch, the job fails.
"""

import contextlib
import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import PODS
from kube import errors
from tests.support.acceptance.jobs import job
from tests.support.acceptance.stack import Stack, fresh, until

HAS_TORCH = importlib.util.find_spec("torch") is not None

TRAINING = """
import os, pathlib, sys
import torch, torch.distributed as dist
folder = pathlib.Path(sys.argv[1])
dist.init_process_group("gloo")
with open(folder / "starts", "a") as file:
    print(os.environ["POD"], dist.get_world_size(), os.environ["PET_RDZV_ID"], os.getppid(), file=file)
while True:
    done = torch.tensor([float((folder / "go").exists())])
    dist.all_reduce(done)
    if done.item() > 0:
        break
dist.destroy_process_group()
"""


def elastic(name: str, command: list[str]) -> dict[str, Any]:
    """Return an elastic job of two workers."""
    body = job(name, command, workers=2, policy="OnFailure", cpu="100m")
    tasks = body["spec"]["torchTaskSpecs"]
    body["spec"] |= {
        "torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 3},
        "torchTaskSpecs": {"Worker": {**tasks["Worker"], "dependsOn": []}},
    }
    return body


class Training:
    """An elastic job whose processes record each of their starts: pod, size of the world, rendezvous, pid of
    torchrun.
    """

    def __init__(self, stack: Stack, folder: Path) -> None:
        self.stack, self.folder, self.name = stack, folder, fresh("meet")
        (folder / "train.py").write_text(TRAINING)
        stack.submit(elastic(self.name, ["torchrun", str(folder / "train.py"), str(folder)]))
        self.met(2)

    def starts(self) -> list[list[str]]:
        with contextlib.suppress(FileNotFoundError):
            return [line.split() for line in (self.folder / "starts").read_text().splitlines()]
        return []

    def met(self, size: int, after: int = 0, rendezvous: str = "") -> list[list[str]]:
        """Wait until the pods meet in a world of this size, and return all starts but the first `after` ones."""

        def meeting() -> list[list[str]]:
            return [each for each in self.starts()[after:] if each[1] == str(size) and each[2].endswith(rendezvous)]

        until(meeting, lambda found: len({pod for pod, *_ in found}) == size)
        return self.starts()[after:]

    def uids(self) -> dict[str, str]:
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in self.stack.pods(self.name)}


@pytest.mark.skipif(HAS_TORCH, reason="torch is installed")
def test_job_whose_store_has_no_torch_fails_at_once(stack: Stack) -> None:
    name = fresh("meet")
    stack.submit(elastic(name, ["sleep", "600"]))
    status = stack.reach(name, "Failed")["status"]
    (why,) = [each for each in status["conditions"] if each["type"] == "Failed"]
    assert (why["reason"], status.get("restartCount", 0)) == ("RendezvousFailed", 0)
    assert why["message"].startswith(f"pod {name}-rendezvous-0 failed")
    assert "No module named 'torch'" in why["message"]
    assert "declare a task Rendezvous" in why["message"]


def test_stage_after_an_elastic_one_gets_the_port_of_the_store(stack: Stack, tmp_path: Path) -> None:
    name, runs = fresh("meet"), tmp_path / "runs"
    body = elastic(name, ["sh", "-c", f"echo run >> {runs}"])
    tasks = body["spec"]["torchTaskSpecs"]
    tasks["Rendezvous"] = job(name, ["sh", "-c", "exec python -m http.server $MASTER_PORT"])["spec"]["torchTaskSpecs"][
        "Master"
    ]
    tasks["Evaluate"] = job(name, ["true"])["spec"]["torchTaskSpecs"]["Master"]
    tasks["Evaluate"]["dependsOn"] = [{"taskType": "Worker", "phase": "Succeeded"}]
    stack.submit(body)
    assert stack.reach(name, "Succeeded")["status"]["attempt"] == 1
    assert runs.read_text() == "run\n" * 2


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed (the extra `demo`)")
def test_training_goes_on_while_workers_and_store_come_and_go(stack: Stack, tmp_path: Path) -> None:
    training = Training(stack, tmp_path)
    first, begun = training.uids(), len(training.starts())

    stack.torchq("job", "scale", training.name, "3")
    joined = training.met(3, begun)
    assert len(joined) == 3, "each worker starts once for the new world"
    assert first.items() <= training.uids().items()

    grown, begun = training.uids(), len(training.starts())
    agent = next(int(pid) for pod, _, _, pid in joined if pod.endswith("-worker-0"))
    os.kill(agent, signal.SIGKILL)
    training.met(3, begun)
    replaced = {name for name, uid in training.uids().items() if grown[name] != uid}
    assert replaced == {f"{training.name}-worker-0"}

    before, begun = training.uids(), len(training.starts())
    with contextlib.suppress(errors.NotFound):
        stack.api.delete(PODS, f"{training.name}-rendezvous-0", "default", grace_period_seconds=5)
    training.met(3, begun, rendezvous="-1")
    replaced = {name for name, uid in training.uids().items() if before[name] != uid}
    assert replaced == {f"{training.name}-rendezvous-0"}, "the workers are restarted in place"

    (tmp_path / "go").touch()
    status = stack.reach(training.name, "Succeeded")["status"]
    assert (status["restartCount"], status["disruptions"], status["restartGeneration"]) == (1, 1, 1)
