"""The processes a benchmark runs beside itself, in a folder that goes away with it.

One rule: whatever happens, they end before the block does, or with this process if that is killed.
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
from bench.support.machine import ROOT
from coordinator.local.supervisor import Command, Supervisor

START_SECONDS = 30.0
"""How long a process may take to answer."""
_POLL_SECONDS = 0.01


class Bench:
    """A folder and the processes started in it."""

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
        """Start a program; its output goes to NAME.log in the folder. Higher stages are stopped first; if we die, it
        gets the signal."""
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
        """The same for a module of this environment's Python."""
        self.start(name, [sys.executable, "-m", module, *arguments], stage, environment)

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        seconds: float = START_SECONDS,
        progress: Callable[[], str] = str,
    ) -> None:
        """Return once the condition holds; BenchError with the end of the logs if it does not in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(f"waited {seconds:.0f} s in vain for {what} {progress()}{self.logs()}")
            time.sleep(_POLL_SECONDS)

    def wait_said(self, names: Sequence[str], word: str) -> None:
        """Return once each of these processes has said a word."""
        logs = [self.log(name) for name in names]
        said = f"{', '.join(names)} to say {word}"
        self.wait(lambda: all(log.exists() and word in log.read_text() for log in logs), said)

    def log(self, name: str) -> Path:
        """Where a process says what it says."""
        return self.folder / f"{name}.log"

    def keep_alive(self) -> None:
        """Start again what has died, after a pause."""
        self._supervisor.step()

    def port(self) -> int:
        """A port that is nobody else's while the block lasts: a socket holds it that never listens, which keeps no
        server away that asks to reuse addresses."""
        holder = self._ports.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])

    def pids(self) -> dict[str, int]:
        """The processes that run, by name."""
        return self._supervisor.pids()

    def logs(self) -> str:
        """The end of each log."""
        logs = sorted(self.folder.glob("*.log"))
        return "".join(f"\n--- {log.name}\n{log.read_text(errors='replace')[-1000:]}" for log in logs)


@contextlib.contextmanager
def room(drain_seconds: float = 5.0) -> Iterator[Bench]:
    """A folder of our own for as long as the block lasts; each process has so long to end by itself."""
    with tempfile.TemporaryDirectory(prefix="torchq-bench-") as folder, contextlib.ExitStack() as ports:
        supervisor = Supervisor(drain_seconds=drain_seconds)
        try:
            yield Bench(Path(folder), supervisor, ports)
        finally:
            supervisor.stop()
