"""The live screen on a real terminal: a pseudo-terminal whose keys and size the test changes."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.servers

PROGRAM = """
import itertools, sys
from rich.console import Console
from coordinator.cli.top import live
from coordinator.cli.top.screen import ScreenReading
numbers = itertools.count(1)
def read():
    queues = [{"metadata": {"name": f"team-{n}"}, "spec": {}, "status": {}} for n in range(200)]
    return ScreenReading(status={"cluster": f"reading-{next(numbers)}", "workers": {}}, queues=queues)
live.run(read, 0.05, int(sys.argv[1]), Console())
"""


class Terminal:
    """A program on a pseudo-terminal of 24 lines and 80 columns."""

    def __init__(self, most: int) -> None:
        self.keys, terminal = pty.openpty()
        self.resize(24, 80)
        self.modes = termios.tcgetattr(self.keys)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "", "LINES": ""}
        command = [sys.executable, "-c", PROGRAM, str(most)]
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        os.set_blocking(self.keys, False)
        self.seen = b""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.keys, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def look(self) -> bytes:
        """Return everything that the program has drawn so far."""
        try:
            while piece := os.read(self.keys, 65_536):
                self.seen += piece
        except OSError:  # there is no new output, or the program has ended
            pass
        return self.seen

    def wait_for(self, text: bytes) -> None:
        until(self.look, lambda seen: text in seen)

    def ended(self) -> Any:
        self.look()
        return self.process.poll() is not None


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    made: list[Terminal] = []
    yield made
    for terminal in made:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.keys)


def test_keys_scroll_and_quit_and_a_resize_is_drawn(terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(0))
    terminal.wait_for(b"team-10")
    assert b"team-150" not in terminal.look()
    for _ in range(20):
        os.write(terminal.keys, b"\x1b[6~")
        terminal.look()
    terminal.wait_for(b"team-199")
    terminal.seen = b""
    terminal.resize(40, 80)
    until(terminal.look, lambda seen: b"team-170" in seen)
    os.write(terminal.keys, b"q")
    until(terminal.ended)
    assert terminal.process.returncode == 0
    assert termios.tcgetattr(terminal.keys) == terminal.modes


def test_the_screen_ends_after_the_readings_that_were_asked_for(terminals: list[Terminal]) -> None:
    terminals.append(terminal := Terminal(2))
    until(terminal.ended)
    assert b"reading-2" in terminal.seen
    assert b"reading-3" not in terminal.seen
