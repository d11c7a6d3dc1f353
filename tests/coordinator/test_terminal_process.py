"""What a real terminal gets from a `torchq` of its own process: a pseudo-terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coordinator.test_terminal import controls
from tests.support.kube.servers import Server
from tests.support.waiting import SECONDS

pytestmark = pytest.mark.servers

TITLE = "\x1b]0;title\x07\x9b31m"
BUG = """
import sys
from coordinator.__main__ import main
from coordinator.cli.main import main as group
@group.command("fail")
def fail():
    raise RuntimeError(text)
text = sys.argv.pop()
sys.argv.append("fail")
main()
"""


def on_terminal(*command: str, folder: Path, kubeconfig: object = "none") -> str:
    """Run a Python program on a terminal, and return what the terminal got."""
    keys, terminal = pty.openpty()
    environment = {**os.environ, "TORCHQ_KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    with subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        seen = b""
        try:
            while piece := os.read(keys, 65_536):
                seen += piece
        except OSError:  # the program has ended
            pass
        process.wait(SECONDS)
    os.close(keys)
    return seen.decode().replace("\r\n", "\n")


def test_names_of_files_reach_a_terminal_as_escapes(tmp_path: Path, embedded_server: Server) -> None:
    os.mkfifo(tmp_path / f"{TITLE}\nError: none")
    command = ("-m", "coordinator", "run", "--dry-run", "--image", "i", "--", "echo")
    seen = on_terminal(*command, folder=tmp_path, kubeconfig=embedded_server.kubeconfig)
    assert r"\x1b]0;title\x07\x9b31m Error: none is a fifo" in seen
    assert controls(seen) == set()


def test_tracebacks_reach_a_terminal_as_escapes(tmp_path: Path) -> None:
    seen = on_terminal("-c", BUG, TITLE, folder=tmp_path)
    assert r"RuntimeError: \x1b]0;title\x07\x9b31m" in seen
    assert controls(seen) == set()


LOG = """
import sys
from coordinator import terminal
from coordinator.cli.jobs.followed_output import LinePrinter
terminal.put_doors()
text = "\\x1b[31mred\\x1b[0m\\tend\\x1b]52;c;bHM=\\x07\\x1b[2J\\x08"
LinePrinter(raw=sys.argv[1:] == ["raw"]).line(text, "[a] ")
"""


def test_lines_of_logs_reach_a_terminal_with_colors_alone_and_raw_with_all_bytes(tmp_path: Path) -> None:
    red = "[a] \x1b[31mred\x1b[0m"
    assert on_terminal("-c", LOG, folder=tmp_path) == f"{red} end\\x08\x1b[0m\n"
    assert on_terminal("-c", LOG, "raw", folder=tmp_path) == f"{red}\tend\x1b]52;c;bHM=\x07\x1b[2J\x08\n"
    piped = subprocess.run([sys.executable, "-c", LOG], capture_output=True, text=True, check=True).stdout
    assert piped == f"{red}\tend\\x08\x1b[0m\n"
