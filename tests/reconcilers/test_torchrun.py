"""The environment of pods, tested with PyTorch: one script under `python` and under `torchrun` without arguments."""

import importlib.util
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from reconcilers.pods import pod_manifests
from reconcilers.views import torchrun
from tests.reconcilers.pods.test_pod_manifests import blueprint_of
from tests.support.reconcilers.builders import job, task

SCRIPT = """
import torch, torch.distributed as world
world.init_process_group("gloo")
ranks = torch.tensor([float(world.get_rank())])
world.all_reduce(ranks)
print(f"world {world.get_world_size()} sum {ranks.item():.0f}", flush=True)
world.destroy_process_group()
"""

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]


@pytest.mark.parametrize(
    ("command", "processes", "said"),
    [
        (["train.py"], 1, "world 2 sum 1"),
        (["-m", "torch.distributed.run", "train.py"], 1, "world 2 sum 1"),
        (["-m", "torch.distributed.run", "train.py"], 2, "world 4 sum 6"),
    ],
)
def test_all_ranks_join_the_process_group(tmp_path: Path, command: list[str], processes: int, said: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    described = job({"Master": task(), "Worker": task()}, nprocPerNode=processes)
    found = blueprint_of(described, port=_free_port(), master_address="loopback")
    counts = {each: described.spec.processes(each) for each in described.spec.tasks}
    blueprint = replace(found, admission=found.admission.model_copy(update={"nproc_per_node": counts}))
    running = []
    for member in blueprint.members.values():
        (container,) = pod_manifests.pod(blueprint, member)["spec"]["containers"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        local = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        running.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=tmp_path,
                env=local | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    outputs = [each.communicate(timeout=100)[0].decode() for each in running]
    assert [each.returncode for each in running] == [0, 0], outputs
    assert all(output.count(said) == processes for output in outputs), outputs


FAILING = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("no data")
main()
"""


def test_exit_cause_and_output_are_read_from_real_torchrun(tmp_path: Path) -> None:
    """torchrun writes the failure to the error file that a template names, and to its log."""
    (tmp_path / "train.py").write_text(FAILING)
    told = tmp_path / "error"
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": str(told)}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as running:
        _, said = running.communicate(timeout=100)
    assert running.returncode == 1
    for words in (told.read_text(), said[-2048:]):
        assert torchrun.exit_cause(words) == 1
        assert "ValueError: no data" in torchrun.root_cause_output(words)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
