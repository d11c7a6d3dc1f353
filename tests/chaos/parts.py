"""The processes of a cluster under faults. A process that dies is started again.

One rule: only the main thread uses this module. Every process ends when the main thread ends
(coordinator/local/die_with_parent.py).
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.local import die_with_parent
from tests.support.acceptance.stack import alive

RESTART_SECONDS = 0.3
END_SECONDS = 40.0


@dataclass
class Part:
    """A process that is started again after its death."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    due: float = 0.0
    """The earliest time of the next start."""
    starts: int = 0
    ended: list[int] = field(default_factory=list)
    """The exit codes of unexpected ends."""

    @property
    def pid(self) -> int:
        """The process id; 0 while the process is down."""
        return self.process.pid if self.process else 0

    def start(self) -> None:
        """Start the process so that it ends with this process."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                die_with_parent.wrap_command(self.command),
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        self.starts += 1

    def tick(self) -> None:
        """Check whether the process has died. Start the process again when its restart is due."""
        if self.process is not None and self.process.poll() is not None:
            if self.process.returncode != -signal.SIGKILL:
                self.ended.append(self.process.returncode)
            self.process = None
            self.due = max(self.due, time.monotonic() + RESTART_SECONDS)
        if self.process is None and time.monotonic() >= self.due:
            self.start()

    def kill(self, away: float) -> None:
        """Kill the process with SIGKILL. The process stays down for `away` seconds longer than usual."""
        self.due = time.monotonic() + RESTART_SECONDS + away
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Parts:
    """All processes of a cluster. The processes are stopped in the reverse order of their start."""

    def __init__(self) -> None:
        self.all: dict[str, Part] = {}
        self.pids_ever: set[int] = set()

    def __getitem__(self, name: str) -> Part:
        return self.all[name]

    def add(self, part: Part) -> None:
        """Start a process and add it."""
        self.all[part.name] = part
        part.start()

    def tick(self) -> None:
        """Start dead processes again."""
        for part in self.all.values():
            part.tick()
            if part.pid:
                self.pids_ever.add(part.pid)
        self.pids_ever.update(self.worker_pids())

    def worker_pids(self) -> list[int]:
        """Return the ids of the worker processes, which are children of a supervisor."""
        return children(self.all["workers"].pid) if "workers" in self.all else []

    def stop(self) -> list[str]:
        """Stop all processes with SIGTERM. Return what went wrong."""
        wrong = []
        self.pids_ever.update(self.worker_pids())
        for part in reversed(self.all.values()):
            wrong += _end(part)
        self.all.clear()
        return wrong


def children(pid: int) -> list[int]:
    """Return the direct children of a process, oldest first."""
    if not pid:
        return []
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def still_alive(pids: set[int]) -> list[int]:
    """Return the processes that still run. A foreign process that reuses a process id is recognized by its command and
    left out.
    """
    return sorted(pid for pid in pids if alive(pid) and _ours(pid))


def _ours(pid: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return any(word in words for word in (b"coordinator.cli.main", b"embedded.", b"redis-server", b"valkey-server"))
    return False


def _end(part: Part) -> list[str]:
    if part.process is None:
        return []
    with contextlib.suppress(ProcessLookupError):
        os.kill(part.pid, signal.SIGCONT)
    part.process.terminate()
    try:
        code = part.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        part.process.kill()
        part.process.wait()
        return [f"{part.name} did not end within {END_SECONDS:.0f} s of SIGTERM"]
    return [f"{part.name} ended with code {code}"] if code else []
