"""The example that checks nodes before training."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crds.torchjob import torchjob
from examples.node_check import pairs

FOLDER = Path(pairs.__file__).parent
BROKEN = {"NODE_CHECK_SIZE": "-1"}
"""The environment in which the multiplication fails."""


@pytest.mark.parametrize(
    ("world", "failed", "expected"),
    [
        (1, (), [[0]]),
        (2, (), [[1, 0]]),
        (4, None, [[0, 1], [2, 3]]),
        (4, (), [[1, 2], [3, 0]]),
        (5, (), [[1, 2], [3, 4, 0]]),
        (4, (2, 3), [[2, 0], [3, 1]]),
        (6, (0, 1), [[0, 2], [1, 3], [4, 5]]),
        (3, (0, 1), [[0, 2, 1]]),
    ],
)
def test_pair(world: int, failed: tuple[int, ...] | None, expected: list[list[int]]) -> None:
    assert pairs.pair(world, failed) == expected


def test_job_is_valid_and_its_workers_wait_for_the_check() -> None:
    body = yaml.safe_load((FOLDER / "job.yaml").read_text())
    body["metadata"] |= {
        "namespace": "a",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    spec = torchjob.parse(body).spec
    assert [sorted(stage.tasks) for stage in spec.stages] == [["NodeCheck"], ["Worker"]]


@pytest.mark.stack
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)")
@pytest.mark.parametrize("broken", [None, 1, 2])
def test_only_the_broken_node_fails(broken: int | None) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "check.py"],
            cwd=FOLDER,
            env={**os.environ, **settings, "RANK": str(rank), **(BROKEN if rank == broken else {})},
        )
        for rank in range(4)
    ]
    codes = [process.wait(280) for process in started]
    assert codes == [int(rank == broken) for rank in range(4)]
