"""The first half hour of the README, word by word, on a machine where nothing of torchq runs yet."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.shell import ROOT, Shell

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `demo`)"),
]
INSTALLED_ALREADY = "pip install"
ENDLESS = ("torchq dashboard",)
"""The commands that Ctrl-C ends."""


def commands() -> list[str]:
    """Return the commands of the first block of the section, without their comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## On one machine\n")[2]
    [block] = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:1]
    return [re.split(r"\s{2,}#", line)[0] for line in block.splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    found = Shell(tmp_path, ROOT)
    yield found
    found.run("torchq local down --now")


def test_the_first_half_hour_of_the_readme_works_as_written(shell: Shell) -> None:
    said: dict[str, str] = {}
    for command in commands():
        if command.startswith(INSTALLED_ALREADY):
            continue
        done = (shell.interrupt if command in ENDLESS else shell.run)(command)
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        said[" ".join(command.split()[:3])] = done.stdout
    assert re.fullmatch(r"dashboard of local: http://127\.0\.0\.1:\d+/\S*( \(.*\))?\n", said["torchq dashboard"])
    assert "Succeeded in" in said["torchq run --nodes"]
    assert "[master-0] epoch 1/6" in said["torchq run --nodes"]
    assert "first" in said["torchq job list"]
    assert "epoch 6/6" in said["torchq job logs"]
    assert "team-a" in said["torchq queue list"]
