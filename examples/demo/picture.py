"""A picture of `torchq top` in the middle of the demo, as SVG for a light and for a dark page (`--picture FOLDER`).

One rule: a picture shows what the command draws on a terminal, but for the name of this machine.
"""

import fcntl
import io
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from examples.demo.cluster import DemoFailed
from examples.demo.screen import FINAL, Moment, Screen, phase

FILES: Mapping[str, TerminalTheme] = {"top-light.svg": DEFAULT_TERMINAL_THEME, "top-dark.svg": SVG_EXPORT_THEME}
ROWS, COLUMNS = 24, 108
ENDED = 8
"""How many jobs have ended when the picture is taken: all three queues have jobs that wait, and some that run."""
_HOME, _CURSOR = "\x1b[H", "\x1b[?25h"
"""What the terminal gets before each screen, and after the last one."""
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(slots=True)
class Camera:
    """A screen of the demo that takes the picture once, and shows all else on another screen."""

    view: Screen
    kubeconfig: Path
    folder: Path
    taken: bool = False

    def __enter__(self) -> "Camera":
        self.view.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.view.__exit__(*exception)

    def show(self, moment: Moment) -> None:
        self.view.show(moment)
        if not self.taken and sum(phase(job) in FINAL for job in moment.jobs) >= ENDED:
            self.taken = True
            save(drawn(self.kubeconfig), self.folder)

    def say(self, line: str) -> None:
        self.view.say(line)


def drawn(kubeconfig: Path) -> list[Text]:
    """Return the lines that `torchq top` draws on a terminal, with rates of 3 s. Raise DemoFailed if it fails."""
    command = [sys.executable, "-m", "coordinator.cli.main", "--kubeconfig", str(kubeconfig)]
    said = _on_terminal([*command, "top", "--count", "2", "--every", "3"])
    screen = said.rpartition(_HOME)[2].partition(_CURSOR)[0].replace(socket.gethostname(), "this-machine")
    lines = [Text.from_ansi(line) for line in screen.splitlines()]
    for line in lines:
        line.rstrip()
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _on_terminal(command: Sequence[str]) -> str:
    """Return everything that a command writes to a terminal. Raise DemoFailed if it fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while piece := os.read(ours, 65_536):
            said += piece
    except OSError:  # a terminal whose programs have all ended
        pass
    finally:
        os.close(ours)
    if process.wait():
        raise DemoFailed(f"torchq top: {said.decode(errors='replace')[-500:]}")
    return said.decode()


def save(lines: Sequence[Text], folder: Path) -> None:
    """Write the picture of these lines to the folder, once for each kind of page."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, theme in FILES.items():
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        for line in lines:
            console.print(line)
        picture = console.export_svg(title="torchq top", theme=theme, unique_id=name.partition(".")[0])
        # Pages that show a picture load no fonts for it.
        (folder / name).write_text(_FONTS.sub("", picture), encoding="utf-8")
