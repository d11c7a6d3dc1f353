"""The processes that a benchmark starts, in a temporary folder.

One rule: the processes always end before the block ends. If this process is killed, the programs end with this process.
"""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bench.errors import BenchError
from coordinator.local.supervisor import Command, Supervisor

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0
"""The time limit for a process to answer."""
_POLL_SECONDS = 0.01


class Bench:
    """A folder, and the processes that were started in it."""

    def __init__(self, folder: Path, supervisor: Supervisor, ports: contextlib.ExitStack) -> None:
        self.folder = folder
        self._supervisor = supervisor
        self._ports = ports

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        stage: int = 0,
        environment: Mapping[str, str] | None = None,
        at_death: signal.Signals = signal.SIGINT,
    ) -> None:
        """Start a program; its output goes to NAME.log in the folder.

        Programs of higher stages are stopped first. If this process dies, the program receives the signal `at_death`.
        """
        command = Command(
            name=name,
            arguments=arguments,
            environment={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            output=self.log(name),
            stage=stage,
            foreign=True,
            at_death=at_death,
        )
        self._supervisor.start(command)

    def start_python(
        self,
        name: str,
        module: str,
        *arguments: str,
        stage: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start a module with this environment's Python, as `start` does."""
        self.start(name, [sys.executable, "-m", module, *arguments], stage, environment)

    def end(self, stage: int) -> None:
        """End the programs of a stage."""
        self._supervisor.end(stage)

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        seconds: float = START_SECONDS,
        progress: Callable[[], str] = str,
    ) -> None:
        """Return once the condition is true. Raises BenchError, with the end of the logs, if the time is over before
        the text appears."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(f"{what}: not ready after {seconds:.0f} s {progress()}{self.logs()}")
            time.sleep(_POLL_SECONDS)

    def wait_said(self, names: Sequence[str], text: str) -> None:
        """Return once the output of each of these processes contains a text."""
        logs = [self.log(name) for name in names]
        condition = f"output {text!r} of {', '.join(names)}"
        self.wait(lambda: all(log.exists() and text in log.read_text() for log in logs), condition)

    def log(self, name: str) -> Path:
        """Return the file with the output of a process."""
        return self.folder / f"{name}.log"

    def keep_alive(self) -> None:
        """Restart processes that have died, after a pause."""
        self._supervisor.step()

    def port(self) -> int:
        """Return a port that no other process gets while the block lasts.

        A socket that never listens holds the port. A server that reuses addresses can still bind to the port.
        """
        holder = self._ports.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])

    def pids(self) -> dict[str, int]:
        """Return the pids of the running processes, by name."""
        return self._supervisor.pids()

    def logs(self) -> str:
        """Return the end of each log as text."""
        logs = sorted(self.folder.glob("*.log"))
        return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-1000:]}" for log in logs)


@contextlib.contextmanager
def room(drain_seconds: float = 5.0) -> Iterator[Bench]:
    """Provide a folder as long as the block lasts. At the end of the context, each process has `drain_seconds` to end
    by itself.
    """
    with tempfile.TemporaryDirectory(prefix="torchq-bench-") as folder, contextlib.ExitStack() as ports:
        supervisor = Supervisor(drain_seconds=drain_seconds)
        try:
            yield Bench(Path(folder), supervisor, ports)
        finally:
            supervisor.stop()
