"""The runs of a pod's containers, read from their folders.

One rule: the folders are the only record. The node starts a run only while it holds the run's lock and has seen that
the command never began. The shim inherits the lock, so that at no moment a run can be started twice or forgotten.
"""

import fcntl
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from os.path import exists
from pathlib import Path
from typing import Any

from embedded import log_files
from embedded.layout import Layout
from embedded.node.runs import container_processes, fork_server, shim
from embedded.node.runs.cgroups import NO_GROUPS, ControlGroups
from embedded.node.runs.container_processes import Process
from embedded.node.runs.fork_server import ForkServer

logger = logging.getLogger(__name__)

LOST = "ContainerStatusUnknown"
"""The reason of a run whose end is not recorded, as in the kubelet."""
OOM_KILLED = "OOMKilled"
"""The reason of a run that exceeded its memory limit, as in the kubelet."""
_LOST_MESSAGE = "the process that watched over this container was killed; how the container ended is not known"
KILLED = 137
"""The exit code of a process that SIGKILL has ended."""
MESSAGE = "message"
"""The file of a run into which its container may write its termination message."""
_LONGEST_MESSAGE = 4096
"""The number of bytes that are read from the end of a container's message, as in the kubelet."""
LOG_BYTES = 64 * 1024 * 1024
"""The default limit of a container's log, in bytes."""
_KEPT_RUNS = 8
"""The number of runs of a container whose folders stay: enough for the back-off to reach its longest wait."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """One run of one container."""

    uid: str
    """The uid of the pod."""
    container: str
    restart: int

    @property
    def mark(self) -> str:
        """The value of the environment variable that marks the run's processes."""
        return f"{self.uid}/{self.container}/{self.restart}/"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a run."""

    exit_code: int
    finished_at: float
    """The time at which the run ended, in seconds since the epoch."""
    signal: int = 0
    reason: str = ""
    message: str = ""
    signalled_at: float = 0.0
    """The time at which the shim received SIGTERM or SIGHUP, in seconds since the epoch; 0 if it did not.

    Only the end of a session or of the machine sends them to a shim, since it sends them to every process.
    """


@dataclass(frozen=True, slots=True)
class Run:
    """One run: about to begin, running (`process`), or over (`ending`)."""

    restart: int
    started_at: float | None = None
    """The time at which the shim began the command, in seconds since the epoch; None before."""
    process: Process | None = None
    ending: Ending | None = None
    shim: Process | None = None
    """The parent of the first process; None also for a run that an earlier version started."""

    @property
    def alive(self) -> bool:
        """Whether no end of the run is recorded."""
        return self.ending is None


@dataclass(frozen=True, slots=True)
class Order:
    """The command of a container, and the environment in which it is executed."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    memory: int = 0
    """The memory limit in bytes; 0 for none."""


class ContainerRuns:
    """The runs in one data folder."""

    def __init__(self, layout: Layout, log_bytes: int = LOG_BYTES, groups: ControlGroups = NO_GROUPS) -> None:
        """Keep up to `log_bytes` of the logs of each container, over all its runs."""
        self._layout = layout
        self._groups = groups
        self._log_bytes = log_bytes
        self._fork_server = ForkServer()

    def folder(self, key: RunKey) -> Path:
        """Return the folder of a run, with its log, its files and its termination message."""
        return _folder(self._layout, key)

    def start(self, key: RunKey, order: Order) -> bool:
        """Start a run, unless it was started before. Raise OSError if the machine cannot start another process."""
        folder = self.folder(key)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _lock(folder) as lock:
            if lock is None or (folder / "started").exists():
                return False
            for name in ("exited", shim.OUT_OF_MEMORY):
                shim.reserve(str(folder), name)
            self._spawn(folder, key, order, lock)
        return True

    def history(self, uid: str, container: str, before: tuple[Run, ...] = ()) -> tuple[Run, ...]:
        """Return the runs of a container, oldest first. Runs that are over in `before` are not read again."""
        over = {run.restart: run for run in before if not run.alive}
        numbers = self._numbers(uid, container)
        runs = (over.get(number) or self.read(RunKey(uid, container, number)) for number in numbers)
        return tuple(run for run in runs if run is not None)

    def read(self, key: RunKey) -> Run | None:
        """Return the run of a folder; None if its command never began and no shim is about to begin it."""
        folder = self.folder(key)
        if (folder / "exited").exists():
            return _read_ended_run(key.restart, folder)
        with _lock(folder) as lock:
            if lock is None:
                return _read_alive_run(key.restart, folder)
            if (folder / "exited").exists():  # the shim wrote it and ended since the check above
                return _read_ended_run(key.restart, folder)
            return self._record_loss(key, folder) if (folder / "started").exists() else None

    def has_changed(self, key: RunKey, run: Run) -> bool:
        """Return whether a run that was alive has begun or ended since it was read. The look takes two stat calls."""
        folder = str(self.folder(key))
        return exists(folder + "/exited") or (run.started_at is None and exists(folder + "/started"))

    def tail(self, key: RunKey, most: int) -> str:
        """Return the last bytes of a run's output."""
        return log_files.tail(self.folder(key), most)

    def record_oom(self, key: RunKey, message: str) -> None:
        """Write to disk that a run is killed because it exceeded a memory limit. Raise OSError on failure."""
        shim.write_reserved(str(self.folder(key)), shim.OUT_OF_MEMORY, message)

    def prune(self, uid: str, container: str) -> None:
        """Remove the folders of runs that are too old to matter."""
        for number in self._numbers(uid, container)[:-_KEPT_RUNS]:
            shutil.rmtree(self.folder(RunKey(uid, container, number)), ignore_errors=True)

    def has_live_shim(self, uid: str) -> bool:
        """Return whether the shim of any of a pod's runs is alive."""
        return any(not _is_free(folder) for folder in self._layout.containers(uid).glob("*/*"))

    def kill_all(self, uid: str) -> bool:
        """Send SIGKILL to all processes of a pod's runs; return whether some may be left, or a shim is alive."""
        folders = [each for each in self._layout.containers(uid).glob("*/*") if not (each / "exited").exists()]
        if not any((folder / "started").exists() or not _is_free(folder) for folder in folders):
            return False
        shims = [run.shim for folder in folders if (run := _read_alive_run(0, folder)).shim is not None]
        return container_processes.kill_marked(f"{uid}/", shims=shims) or self.has_live_shim(uid)

    def close(self) -> None:
        """End the fork server; the containers continue."""
        self._fork_server.close()

    def _spawn(self, folder: Path, key: RunKey, order: Order, lock: int) -> None:
        """Fork a shim that has the order and the lock."""
        environment = {**order.environment, container_processes.MARK: key.mark}
        group = self._groups.make(key.mark.rstrip("/").replace("/", "-"), order.memory)
        shim_order = (str(folder), list(order.command), environment, order.directory, self._log_bytes, group)
        order_file = fork_server.write_order(shim_order)
        try:
            output = os.open(folder / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._fork_server.fork(order_file, lock, output)
            finally:
                os.close(output)
        finally:
            os.close(order_file)

    def _numbers(self, uid: str, container: str) -> list[int]:
        folder = self._layout.container(uid, container, 0).parent
        with suppress(FileNotFoundError):
            return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
        return []

    def _record_loss(self, key: RunKey, folder: Path) -> Run:
        """Record the end of a run whose shim was killed, as soon as none of its processes is left."""
        started = _read(folder / "started")
        process = Process(started["pid"], started["startTicks"])
        if container_processes.kill_marked(key.mark, process):
            return Run(key.restart, started["startedAt"], process)
        ending = {"exitCode": KILLED, "reason": LOST, "message": _LOST_MESSAGE, "finishedAt": time.time()}
        try:
            shim.write_reserved(str(folder), "exited", json.dumps(ending))
        except OSError as e:  # the disk is full: this is tried again, and the pod's other containers go on meanwhile
            logger.warning("the end of the run %s could not be written to disk yet: %s", key.mark, e)
            return Run(key.restart, started["startedAt"], process)
        return _read_ended_run(key.restart, folder)


@lru_cache(maxsize=4096)
def _folder(layout: Layout, key: RunKey) -> Path:
    """Return a run's folder. The result is cached, because it is needed 20 times a second for every container."""
    return layout.container(key.uid, key.container, key.restart)


@contextmanager
def _lock(folder: Path) -> Iterator[int | None]:
    """Hold a run's lock, which child processes share; yield None if another process holds it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_free(folder: Path) -> bool:
    with suppress(FileNotFoundError), _lock(folder) as lock:
        return lock is not None
    return True


def _read_alive_run(restart: int, folder: Path) -> Run:
    with suppress(FileNotFoundError):
        started = _read(folder / "started")
        parent = Process(started["shim"], started["shimTicks"]) if "shim" in started else None
        return Run(restart, started["startedAt"], Process(started["pid"], started["startTicks"]), shim=parent)
    return Run(restart)


def _read_ended_run(restart: int, folder: Path) -> Run:
    exited = _read(folder / "exited")
    begun = _read_alive_run(restart, folder)
    oom = _text(folder / shim.OUT_OF_MEMORY).rstrip()
    if oom and exited["exitCode"]:
        killed = Ending(KILLED, exited["finishedAt"], int(signal.SIGKILL), OOM_KILLED, oom)
        return Run(restart, begun.started_at, begun.process, killed)
    ending = Ending(
        exit_code=exited["exitCode"],
        finished_at=exited["finishedAt"],
        signal=exited.get("signal", 0),
        reason=exited.get("reason", ""),
        signalled_at=exited.get("signalledAt", 0.0),
        message=exited.get("message") or _text(folder / "problem") or _tail(folder / MESSAGE, _LONGEST_MESSAGE),
    )
    return Run(restart, begun.started_at, begun.process, ending)


def _tail(path: Path, most: int) -> str:
    with suppress(OSError), path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return file.read(most).decode(errors="replace")
    return ""


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_bytes())
    return content
