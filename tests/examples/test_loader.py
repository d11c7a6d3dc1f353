"""The example with a data loader saves when its container is asked to end, and continues from the saved state."""

import importlib.util
import os
import socket
import sys
from pathlib import Path

import pytest

from embedded.layout import Layout
from embedded.node.runs import container_processes
from embedded.node.runs.container_runs import ContainerRuns, Order, RunKey
from tests.support.waiting import until

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]
SCRIPT = Path(__file__).parents[2] / "examples" / "loader" / "train.py"


@pytest.mark.parametrize(
    "command",
    [
        ("python", str(SCRIPT)),
        ("sh", "-c", f"python {SCRIPT}; exit $?"),
        ("python", "-m", "torch.distributed.run", "--nproc-per-node", "2", str(SCRIPT)),
    ],
    ids=["python", "a shell", "torchrun"],
)
def test_the_example_saves_when_it_is_asked_to_stop(tmp_path: Path, command: tuple[str, ...]) -> None:
    runs = ContainerRuns(Layout(tmp_path))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TORCHQ_OUTPUT": str(tmp_path)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1"}
    keys = [RunKey(f"uid-{os.getpid()}", "c", restart) for restart in (0, 1)]
    try:
        for key in keys:
            assert runs.start(key, Order(command, environment | {"OMP_NUM_THREADS": "1"}, str(tmp_path)))
            until(lambda key=key: "loss" in runs.tail(key, 20_000))
            run = runs.read(key)
            assert run is not None
            assert run.process is not None
            container_processes.ask_to_end(run.process, run.shim)
            until(lambda key=key: (found := runs.read(key)) and found.ending)
            assert "saved at step" in runs.tail(key, 20_000)
        assert "continues at step" in runs.tail(keys[1], 20_000)
    finally:
        while runs.kill_all(keys[0].uid):
            pass
        runs.close()
