"""The program `torchq` of this checkout, as users start it and as the client of Python programs finds it.

One rule: it runs this checkout, whatever is installed, and the cluster is always named.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.support.machine import ROOT

COMMAND_AGENT, RPC_AGENT = "torchq", "torchq-python"
"""The names of its requests in the metrics of the API server: those of commands, and those of `torchq rpc`."""
_SECONDS = 300.0
_TEXT = """#!{python}
import sys

sys.path.insert(0, {root!r})
from coordinator.cli.main import main

main(prog_name="torchq")
"""


@dataclass(frozen=True, slots=True)
class Program:
    """The program, and the cluster that it uses."""

    path: Path
    kubeconfig: str

    def run(self, folder: Path, *arguments: str) -> str:
        """Run a command in a folder to its end, and return what it prints. Raises BenchError if it fails."""
        done = subprocess.run(
            self._command(arguments), cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode:
            raise BenchError(f"torchq {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr[-1000:]}")
        return done.stdout

    def open(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start a command whose output is read while it runs, as it comes."""
        command = self._command(arguments)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)

    @contextlib.contextmanager
    def on_path(self) -> Iterator[None]:
        """Let clients in this process find the program as long as the block lasts."""
        before = os.environ.get("PATH", "")
        os.environ["PATH"] = f"{self.path.parent}{os.pathsep}{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [str(self.path), "--kubeconfig", self.kubeconfig, *arguments]


def install(folder: Path, kubeconfig: str) -> Program:
    """Write the program into a new folder of its own."""
    path = folder / "program" / "torchq"
    path.parent.mkdir()
    path.write_text(_TEXT.format(python=sys.executable, root=str(ROOT)))
    path.chmod(0o755)
    return Program(path, kubeconfig)
