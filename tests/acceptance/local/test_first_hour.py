"""docs/first-hour.md, word by word: every command of the page runs in its order, and prints what the page shows.

Names, times, sizes and numbers of steps may differ. A line `...` of the page stands for any lines.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acceptance.shell import ROOT, Shell
from tests.support.waiting import until

PAGE = ROOT / "docs" / "first-hour.md"
HOME = "/home/ann"
LOOKS = re.compile(r"torchq job (list|show|why|logs (?!-f))")
"""Commands that change nothing. The output of such a command may be right only a moment later, so the command is
repeated.
"""
VARYING = {
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UID",
    r"\d+ KiB packed, [0-9a-f]{8}": "PACKED",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ": "TIME",
    r"\b(\d+m)?\d+s\b|\b\d+m\b": "DURATION",
    r"step \d{2,}": "step N",
    r"^\d+ pods? of job .* still ends?, .*\n": "",
    r"^(waiting|admitted): .*\n": "",
    r" {2,}": "  ",
    r" +$": "",
}
"""Parts of the output that differ from one session to the next, by pattern. `down` names pods that take a moment to
end, and `run` names what a slow machine waits for.
"""


def blocks(language: str = "") -> list[str]:
    """Return the blocks of the page in a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [block for name, block in found if name == language]


def session() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with the output that the page shows."""
    for block in blocks():
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, said = part.partition("\n")
            yield command, said


def same(text: str) -> str:
    """Return the text with a fixed name in place of each part that differs from one session to the next."""
    for pattern, name in VARYING.items():
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def says(shown: str, said: str) -> bool:
    """Return whether a command printed what the page shows."""
    pattern = "(?:.*\n)*".join(map(re.escape, same(shown).split("...\n")))
    return re.fullmatch(pattern, same(said)) is not None


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    folder = tmp_path / "training"
    folder.mkdir()
    [program] = blocks("python")
    (folder / "train.py").write_text(program)
    found = Shell(tmp_path / "home", folder)
    yield found
    found.run("torchq local down --now")


def test_the_first_hour_goes_as_the_page_shows(shell: Shell) -> None:
    steps: list[int] = []
    for command, shown in session():

        def run(command: str = command) -> str:
            done = shell.run(command)
            failed = "\nFailed in " in done.stdout
            assert done.returncode == failed, f"{command}\n{done.stdout}"
            return done.stdout.replace(shell.environment["HOME"], HOME)

        if LOOKS.match(command):
            said = until(run, lambda said, shown=shown: says(shown, said), pause=0.2)
        else:
            said = run()
            assert says(shown, said), f"{command}\n{said}"
        if command.startswith("torchq job logs long"):
            steps += map(int, re.findall(r"step (\d+)", said))
    assert len(steps) == 4
    assert steps == sorted(set(steps)), "a restart begins at the step that the program saved, not from the first step"
