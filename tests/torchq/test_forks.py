"""The process behind the client, when the process of the client forks, ends or is killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.support.acceptance.stack import alive
from tests.support.client.programs import ROOT, FakeProgram
from tests.support.waiting import until
from tests.torchq.conftest import Plan

FORKING = """
import os, sys, torchq
torchq.status()
if os.fork() == 0:
    print("child", torchq.status(), flush=True)
    sys.stdin.read()
    os._exit(0)
print("parent", torchq.status(), flush=True)
os.wait()
"""
CALLING = """
import sys, torchq
torchq.status()
print("called", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(plan: Plan) -> FakeProgram:
    return plan({"status": {"result": {}}})


def start(code: str, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    """Start a Python program that uses the client."""
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
    )


def test_a_fork_has_a_program_of_its_own_and_does_not_keep_that_of_its_parent(program: FakeProgram) -> None:
    with start(FORKING, program.environment) as parent:
        assert parent.stdout is not None
        assert sorted(parent.stdout.readline().split()[0] for _ in range(2)) == ["child", "parent"]
        of_parent, of_child = program.pids
        parent.kill()
        parent.wait()
        until(lambda: not alive(of_parent))
        assert alive(of_child), "the child still exists and holds the other end of the parent's pipes"
        assert parent.stdin is not None
        parent.stdin.close()
        until(lambda: not alive(of_child))


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_program_ends_with_its_parent_however_that_ends(program: FakeProgram, number: signal.Signals) -> None:
    with start(CALLING, program.environment) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "called\n"
        parent.send_signal(number)
        parent.wait()
    until(lambda: not alive(program.pids[0]))


def test_a_program_ends_without_a_sound_and_leaves_none_behind(program: FakeProgram) -> None:
    code = "import torchq; torchq.status(); lines = torchq.Job('a/b/c', torchq.Client()).logs()"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        env={**os.environ, **program.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not any(alive(pid) for pid in program.pids)
