"""An installation under watch: two coordinators, two workers, a recorder, Redis, an API server and a node, as real
processes.

One rule: every process of torchq serves /metrics at a port. The process keeps this port when it is started again.
"""

import contextlib
import os
import signal
import sqlite3
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator.cli.commands import doctor
from queues import redis_keys
from tests.chaos import stores
from tests.chaos.arena import CLIENTS, COORDINATORS, Arena, Times
from tests.chaos.parts import children
from tests.monitoring.prometheus import Target
from tests.support import ports
from tests.support.acceptance import rolling
from tests.support.acceptance.stack import clean_environment, run, torchq_command
from tests.support.acceptance.warm import CommandResult

NAMESPACE = "torchq-system"
WORKERS, OLD_WORKERS, LATE_WORKERS = "workers", "old-workers", "late-workers"
RECORDER = "recorder"
TIMES = Times(lease=9.0, deadline=6.0, renew=1.0, running_lease=5.0, resync=10.0)
SETTINGS = {"TORCHQ_HEALTH_PORT": "-1", "TORCHQ_ADMISSION_TIMEOUT": "6", "TORCHQ_ADMISSION_BACKOFF": "1"}
CPUS = 8
HANG, FAIL = "hang", "fail"
_OTHER_TREE = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("coordinator.cli.main", run_name="__main__", alter_sys=True)
"""
_OTHER_CLOCK = """
import runpy, time
now = time.time
time.time = lambda: now() + 600.0
runpy.run_module("coordinator.cli.main", run_name="__main__", alter_sys=True)
"""


class Installation(Arena):
    """A cluster in a folder, which Prometheus watches."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 0, TIMES, CPUS, more=SETTINGS)
        self.ports = {name: self._kept.enter_context(ports.reserve()) for name in (*CLIENTS, OLD_WORKERS, RECORDER)}
        self.history = folder / "history.sqlite"

    @property
    def targets(self) -> list[Target]:
        """The targets that Prometheus scrapes. The old workers are no targets, since workers that an upgrade left
        behind may be no targets either.
        """
        jobs = {**dict.fromkeys(COORDINATORS, "torchq-coordinator"), WORKERS: "torchq-worker"}
        jobs[RECORDER] = "torchq-recorder"
        return [Target(job, NAMESPACE, self.ports[name]) for name, job in jobs.items()]

    def start(self) -> None:
        """Start all processes, and last the recorder, which needs no Redis."""
        super().start()
        environment = clean_environment(
            TORCHQ_KUBECONFIG=str(self.layout.kubeconfig),
            TORCHQ_HISTORY_URL=f"sqlite:///{self.history}",
            TORCHQ_METRICS_PORT=str(self.ports[RECORDER]),
        )
        self._add(RECORDER, torchq_command("recorder"), environment)

    def start_beside(self, name: str, command: Sequence[str]) -> None:
        """Start a process that belongs to no cluster, and start it again when it dies."""
        self._add(name, command)

    def page(self, name: str) -> str:
        """Return the page /metrics of a process."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def torchq(self, *arguments: str, text: str | None = None) -> str:
        """Run a torchq command that must succeed, and return its output."""
        said = self.try_torchq(*arguments, text=text)
        assert said.code == 0, f"torchq {' '.join(arguments)}: {said.err}{said.out}"
        return said.out

    def try_torchq(self, *arguments: str, text: str | None = None) -> CommandResult:
        """Run a torchq command as an admin."""
        assert isinstance(self.store, stores.OneServer)
        environment = clean_environment(
            TORCHQ_KUBECONFIG=str(self.layout.kubeconfig), TORCHQ_REDIS_URL=f"unix://{self.store.socket}"
        )
        return run(*arguments, cwd=self.folder, environment=environment, text=text)

    def doctor_agrees(self) -> bool:
        """Return whether `torchq doctor` succeeds."""
        assert doctor.DISAGREE == 1
        return self.try_torchq("doctor", "--settle", "1").code == 0

    def lose_queues(self) -> None:
        """Empty Redis, unless the queues are lost already."""
        with contextlib.closing(self.redis()) as connection:
            if connection.exists("torchq:epoch"):
                connection.flushall()

    # Faults. Each fault is over at the end of its block.

    @contextlib.contextmanager
    def down(self, *names: str) -> Iterator[None]:
        """Kill processes, and keep them down."""
        try:
            for name in names:
                self.parts[name].kill(float("inf"))
            yield
        finally:
            for name in names:
                self.parts[name].due = 0.0

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        """Stop a process and its children with SIGSTOP."""
        pids = [self.parts[name].pid, *children(self.parts[name].pid)]
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def spoiled_leader(self, how: str) -> Iterator[None]:
        """Make the control loop of the leader hang or fail, as `how` says. The other coordinator is well."""
        file = self._spoiling_file(self.leader(), how)
        try:
            file.touch()
            yield
        finally:
            file.unlink()

    @contextlib.contextmanager
    def refused(self, client: str) -> Iterator[None]:
        """Let the API server refuse half of the requests of a process."""
        assert self.network is not None
        try:
            self.network.api(client, "refuse")
            yield
        finally:
            self.network.api(client, "")

    @contextlib.contextmanager
    def without_redis(self, *clients: str) -> Iterator[None]:
        """Cut processes off from Redis. The other processes still reach Redis."""
        assert self.network is not None
        try:
            for client in clients:
                self.network.redis(client, "away")
            yield
        finally:
            for client in clients:
                self.network.redis(client, "")

    @contextlib.contextmanager
    def locked_history(self) -> Iterator[None]:
        """Let the database of the history take no writes of the recorder."""
        with contextlib.closing(sqlite3.connect(self.history, isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield

    @contextlib.contextmanager
    def old_workers(self) -> Iterator[None]:
        """Run a worker from a source tree with another layout of keys."""
        tree = rolling.copy_with_layout(self.folder / "old", redis_keys.OWN_LAYOUT - 1)
        command = [sys.executable, "-P", "-c", _OTHER_TREE, str(tree), "worker", "--single"]
        with self._other_workers(OLD_WORKERS, command, self.ports[OLD_WORKERS]):
            yield

    @contextlib.contextmanager
    def late_workers(self) -> Iterator[None]:
        """Run a worker with a wrong clock in place of the workers."""
        command = [sys.executable, "-c", _OTHER_CLOCK, "worker", "--single"]
        with self.down(WORKERS), self._other_workers(LATE_WORKERS, command, self.ports[WORKERS]):
            yield

    @contextlib.contextmanager
    def _other_workers(self, name: str, command: list[str], port: int) -> Iterator[None]:
        try:
            self._add(name, command, self._desk(WORKERS) | {"TORCHQ_METRICS_PORT": str(port)})
            yield
        finally:
            part = self.parts.all.pop(name)
            assert part.process is not None
            part.process.terminate()
            part.process.wait(60)

    def _spoiling_file(self, name: str, how: str) -> Path:
        return self.folder / f"{name}.{how}"

    def _desk(self, name: str) -> dict[str, str]:
        return super()._desk(name) | {"TORCHQ_METRICS_PORT": str(self.ports[name])}

    def _add(self, name: str, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        if name in COORDINATORS:
            assert list(command) == torchq_command("coordinator")
            files = [str(self._spoiling_file(name, how)) for how in (HANG, FAIL)]
            command = [sys.executable, "-m", "tests.monitoring.spoiled_coordinator", *files]
        super()._add(name, command, environment)
