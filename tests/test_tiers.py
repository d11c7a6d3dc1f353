"""Each test has one tier, and a test of the lowest tier fails if it touches more than its own process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.waiting import patient

ROOT = Path(__file__).parents[1]
CONFTEST = "from tests.conftest import *\nfrom tests.conftest import _no_leftovers, _own_folders"
MARKS = "\n".join(f"    {each}: a tier" for each in tiers.TIERS)
MODULE = """
import pytest, socket, subprocess, sys, threading

@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found

@pytest.fixture(scope="session")
def ended():
    start()

def start():
    subprocess.run([sys.executable, "-c", ""], check=True)

def test_quiet():
    pass

def test_starts():
    start()

def test_starts_in_a_thread():
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

def test_connects():
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", 1))

def test_listens(listener):
    pass

def test_follows_a_start_of_the_session(ended):
    pass

@pytest.mark.servers
def test_may_start():
    start()
"""


def run(folder: Path, code: str, *options: str) -> str:
    """Run the tests of a module with the rules of all tests, and return the output."""
    (folder / "test_it.py").write_text(code)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers\ntimeout = 300\nmarkers =\n{MARKS}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *options, "test_it.py"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=patient()
    )
    return done.stdout + done.stderr


@pytest.mark.servers
def test_unit_tests_that_touch_more_than_their_process_fail(tmp_path: Path) -> None:
    output = run(tmp_path, MODULE)
    passed = set(re.findall(r"^PASSED .*::test_(\w+)", output, re.MULTILINE))
    assert passed == {"quiet", "follows_a_start_of_the_session", "may_start"}, output
    problems = dict(re.findall(r"^(?:FAILED|ERROR) .*::test_(\w+) - Failed: (.*?):", output, re.MULTILINE))
    assert problems == {
        "starts": "a unit test starts a process",
        "starts_in_a_thread": "a unit test starts a process",
        "connects": "a unit test opens a socket",
        "listens": "fixture listener of a unit test opens a socket",
    }


@pytest.mark.servers
def test_tests_are_chosen_by_their_tier_and_none_has_two(tmp_path: Path) -> None:
    code = "import pytest\n@pytest.mark.servers\ndef test_one(): pass\n"
    code += "def test_two(): pass\ndef test_three(server): pass\n"
    chosen = run(tmp_path, code, "--collect-only", "-m", "servers")
    assert re.findall(r"::test_(\w+)", chosen) == ["one", "three"]
    output = run(tmp_path, f"{code}pytestmark = pytest.mark.stack\n")
    assert "test_one has several tiers: servers, stack" in output


def test_every_use_has_a_smoke_test_on_a_whole_cluster() -> None:
    text = "".join(each.read_text() for each in (ROOT / "tests/acceptance").rglob("test_*.py"))
    assert sorted(re.findall(r'^@pytest\.mark\.smoke\("(.*)"\)$', text, re.MULTILINE)) == sorted(tiers.USES)


def test_the_long_tests_are_in_the_files_that_make_test_rest_reads() -> None:
    folders = re.search(r"^REST = \$\(addprefix tests/,(.*)\)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert folders is not None
    assert {f"tests/{name}" for name in folders[1].split()} == tiers.FOLDERS.keys()
    others = (each for each in (ROOT / "tests").rglob("*.py") if not each.name.startswith("test_"))
    assert [each for each in others if re.search(r"mark\.(stack|proof)", each.read_text())] == []
