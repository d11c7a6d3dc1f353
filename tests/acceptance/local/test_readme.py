"""The first half hour of the README, word by word, on a machine where nothing of torchq runs yet."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import patient

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)"),
]
ROOT = Path(__file__).parents[3]
INSTALLED_ALREADY = "pip install"


def commands() -> list[str]:
    """Return the commands of the first block of the section, without their comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## Use it on one machine\n")[2]
    [block] = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:1]
    return [re.split(r"\s{2,}#", line)[0] for line in block.splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator["Shell"]:
    found = Shell(tmp_path)
    yield found
    found.run("torchq local down --now")


class Shell:
    """A user's shell in a checkout, with a home folder that is empty and `torchq` on PATH."""

    def __init__(self, home: Path) -> None:
        self.folder = ROOT
        programs = home / "programs"
        programs.mkdir()
        (programs / "torchq").write_text(f'#!/bin/sh\nexec {sys.executable} -m coordinator.cli.main "$@"\n')
        (programs / "torchq").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        if command.startswith("cd "):
            self.folder = self.folder / command.removeprefix("cd ")
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.run(
            ["sh", "-c", command],
            check=False,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patient(240),
        )


def test_the_first_half_hour_of_the_readme_works_as_written(shell: Shell) -> None:
    said: dict[str, str] = {}
    for command in commands():
        if command.startswith(INSTALLED_ALREADY):
            continue
        done = shell.run(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        said[" ".join(command.split()[:3])] = done.stdout + done.stderr
    assert "Succeeded in" in said["torchq run --nodes"]
    assert "[master-0] epoch 1/6" in said["torchq run --nodes"]
    assert "first" in said["torchq job list"]
    assert "epoch 6/6" in said["torchq job logs"]
    assert "team-a" in said["torchq queue list"]
