"""The end of a coordinator process."""

import subprocess
import sys

HANGING = """
import logging, os, signal, threading
from types import SimpleNamespace
from coordinator.cli.commands import processes
from kube.process.turns import Turns

logging.basicConfig(format="%(message)s")
hangs = threading.Event()
coordinator = SimpleNamespace(
    stop=threading.Event(),
    turns=Turns(),
    settings=SimpleNamespace(drain_seconds=1.0),
    targets=SimpleNamespace(run=lambda stop, turns: stop.wait()),
    run=lambda: (os.kill(os.getpid(), signal.SIGTERM), hangs.wait()),
)
processes._serve(coordinator, [], lambda: None)
"""
"""A coordinator whose control loop hangs when SIGTERM arrives."""


def test_a_coordinator_whose_term_hangs_ends_after_its_drain_seconds() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr == "1 threads have not ended in 1 s: ending without them\n"
