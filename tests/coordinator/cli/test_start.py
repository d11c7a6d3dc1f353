"""The start of the command, in its own process."""

import signal
import subprocess
import sys

import pytest

from tests.support.waiting import patient

pytestmark = pytest.mark.servers

INTERRUPTED = """
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, {handler})
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "coordinator.cli.main":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
sys.argv = ["torchq", "--version"]
from coordinator.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("handler", "code", "said"),
    [("signal.default_int_handler", -signal.SIGINT, b""), ("signal.SIG_IGN", 0, b"torchq ")],
    ids=["Ctrl-C", "nohup"],
)
def test_interrupt_while_the_command_is_imported_is_quiet(handler: str, code: int, said: bytes) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(handler=handler)]
    done = subprocess.run(command, capture_output=True, timeout=patient(), check=False)
    assert (done.returncode, done.stderr) == (code, b"")
    assert done.stdout.startswith(said)
