"""The end of a coordinator process whose control loop hangs."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.waiting import patient

pytestmark = pytest.mark.servers

HANGING = """
import logging, sys, threading
from types import SimpleNamespace
from coordinator.cli.commands import processes
from kube.process.turns import Turns

def write(stop, leading, turns):
    print("runs", flush=True)
    stop.wait()
    print("stops", flush=True)

logging.basicConfig(format="%(message)s")
coordinator = SimpleNamespace(
    stop=threading.Event(),
    turns=Turns(),
    settings=SimpleNamespace(drain_seconds=float(sys.argv[1])),
    run=threading.Event().wait,
)
processes._serve(coordinator, [SimpleNamespace(run=write)], [])
"""


@pytest.fixture
def hanging(request: pytest.FixtureRequest) -> "Iterator[subprocess.Popen[str]]":
    """Yield a coordinator that hangs. The parameter is its drain time in seconds."""
    command = [sys.executable, "-c", HANGING, str(request.param)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        process.terminate()
        assert process.stdout.readline() == "stops\n"
        yield process
        process.kill()


@pytest.mark.parametrize("hanging", [1], indirect=True)
def test_a_coordinator_that_hangs_ends_after_its_drain_time(hanging: "subprocess.Popen[str]") -> None:
    _, log = hanging.communicate(timeout=patient())
    assert log == "a thread hangs 1 s after the stop signal: the process ends without it\n"
    assert hanging.returncode == 1


@pytest.mark.parametrize("hanging", [3600], indirect=True)
def test_a_second_signal_ends_a_coordinator_that_hangs(hanging: "subprocess.Popen[str]") -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        hanging.wait(1.2)  # a signal within a second of the first one does not count
    hanging.terminate()
    assert hanging.wait(patient()) == 128 + signal.SIGTERM
