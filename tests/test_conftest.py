"""The limits that hold for all tests: signals, hanging teardowns, and processes that are left behind. Each test makes a
separate run.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.stack import alive
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[1]
LIMITS = "from tests.conftest import *\nfrom tests.conftest import _no_leftovers, _own_folders"
HANGS = """
import signal, time
def test_one():
    assert False
def teardown_function():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    while True:
        time.sleep(1)
"""
STARTS = """
import os, pathlib, subprocess, time
def test_one(tmp_path):
    program = subprocess.Popen(["sleep", "600"], start_new_session=True)
    alone = subprocess.Popen(["sh", "-c", "cd $0 && env -i sleep 600", tmp_path], start_new_session=True)
    pathlib.Path("started").write_text(f"{program.pid} {alone.pid}")
    time.sleep(600)
"""


@pytest.fixture(params=[signal.SIGINT, signal.SIGHUP])
def ignored(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """Ignore a signal, as a run under nohup or in the background of a shell does."""
    former = signal.signal(request.param, signal.SIG_IGN)
    yield request.param
    signal.signal(request.param, former)


@pytest.mark.usefixtures("ignored", "own_signals")
def test_a_program_of_a_test_ends_by_a_signal_that_the_run_ignores(ignored: signal.Signals) -> None:
    command = ["sh", "-c", f"kill -{ignored} $$; echo survived"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (-ignored, "")


def run(folder: Path, code: str, *options: str) -> "subprocess.Popen[str]":
    """Start a separate run, in a folder with one test."""
    (folder / "test_it.py").write_text(code)
    (folder / "conftest.py").write_text(
        "from tests.conftest import *\nfrom tests.conftest import _no_leftovers, _own_folders"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *options, "test_it.py"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)  # fmt: skip


def test_a_teardown_that_hangs_after_a_failure_ends_the_run_and_says_where(tmp_path: Path) -> None:
    with run(tmp_path, HANGS, "--timeout=0.5") as process:
        out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "teardown_function" in out


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whose processes they are")
def test_what_a_test_has_started_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    with run(tmp_path, STARTS, f"--basetemp={tmp_path / 'own'}") as process:
        until(lambda: (tmp_path / "started").exists() and (tmp_path / "started").read_text())
        started = [int(each) for each in (tmp_path / "started").read_text().split()]
        assert all(map(alive, started))
        process.kill()
        process.communicate()
    until(lambda: not any(map(alive, started)))
