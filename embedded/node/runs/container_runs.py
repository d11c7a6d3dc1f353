"""The runs of a pod's containers, as their folders tell them.

One rule: the folders are the only record. Whoever starts a run holds its lock and has seen that the command never
began; the lock passes to the shim by inheritance, so that at no moment a run is begun twice or forgotten.
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

from embedded import log_files, log_times
from embedded.layout import Layout
from embedded.node.runs import fork_server, processes, shim
from embedded.node.runs.cgroups import NO_GROUPS, ControlGroups
from embedded.node.runs.fork_server import Zygote
from embedded.node.runs.processes import Process

logger = logging.getLogger(__name__)

LOST = "ContainerStatusUnknown"
"""The reason of a run whose end nobody saw, as the kubelet gives it."""
OOM_KILLED = "OOMKilled"
"""The reason of a run that used more memory than it may, as the kubelet gives it."""
_LOST_MESSAGE = "the process that watched over this container was killed; how the container ended is not known"
KILLED = 137
"""The exit code of what SIGKILL has ended."""
_MESSAGE = "message"
_LONGEST_MESSAGE = 4096
"""Bytes from the end of a container's message that are read, as by the kubelet."""
LOG_BYTES = 64 * 1024 * 1024
"""What is kept of the output of a container, unless the node is told otherwise."""
_KEPT_RUNS = 8
"""Runs of a container that are kept: enough for the doubling of the back-off to reach its end."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """One run of one container."""

    uid: str
    """The pod's."""
    container: str
    restart: int

    @property
    def mark(self) -> str:
        """What the run's processes carry in their environment."""
        return f"{self.uid}/{self.container}/{self.restart}/"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    exit_code: int
    finished_at: float
    """Seconds since the epoch."""
    signal: int = 0
    reason: str = ""
    message: str = ""
    signalled_at: float = 0.0
    """When its shim was sent SIGTERM or SIGHUP, in seconds since the epoch; 0 if it was not. Nobody sends them to a
    shim but the end of a session or of the machine, which sends them to every process."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: about to begin, running (`process`), or over (`ending`)."""

    restart: int
    started_at: float | None = None
    """Seconds since the epoch; None while the shim has not begun the command."""
    process: Process | None = None
    ending: Ending | None = None

    @property
    def alive(self) -> bool:
        """Whether it is not over, as far as is known."""
        return self.ending is None


@dataclass(frozen=True, slots=True)
class Order:
    """What a container is to execute."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    memory: int = 0
    """The bytes that it may use; 0 for any number."""


class Runs:
    """The runs in one data folder."""

    def __init__(self, layout: Layout, log_bytes: int = LOG_BYTES, groups: ControlGroups = NO_GROUPS) -> None:
        """`log_bytes`: what is kept of the logs of a container, over all its runs."""
        self._layout = layout
        self._groups = groups
        self._log_bytes = log_bytes
        self._zygote = Zygote()

    def start(self, key: RunKey, order: Order) -> bool:
        """Begin a run, unless it was begun before. OSError if the machine cannot start another process."""
        folder = self._folder(key)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(folder) as lock:
            if lock is None or (folder / "started").exists():
                return False
            for name in ("exited", shim.OUT_OF_MEMORY):
                shim.reserve(str(folder), name)
            self._spawn(folder, key, order, lock)
        return True

    def history(self, uid: str, container: str, known: tuple[Run, ...] = ()) -> tuple[Run, ...]:
        """The runs of a container, oldest first; `known` saves reading again those that are over."""
        over = {run.restart: run for run in known if not run.alive}
        numbers = self._numbers(uid, container)
        found = (over.get(number) or self.read(RunKey(uid, container, number)) for number in numbers)
        return tuple(run for run in found if run is not None)

    def read(self, key: RunKey) -> Run | None:
        """A run as its folder tells it; None if its command never began and nobody is about to begin it."""
        folder = self._folder(key)
        if (folder / "exited").exists():
            return _ended(key.restart, folder)
        with _locked(folder) as lock:
            if lock is None:
                return _begun(key.restart, folder)
            if (folder / "exited").exists():  # the shim wrote it and went between our two looks
                return _ended(key.restart, folder)
            return self._lose(key, folder) if (folder / "started").exists() else None

    def changed(self, key: RunKey, run: Run) -> bool:
        """Whether a run that was alive has begun or ended since it was read. Two looks at the disk, no more."""
        folder = str(self._folder(key))
        return exists(folder + "/exited") or (run.started_at is None and exists(folder + "/started"))

    def tail(self, key: RunKey, most: int) -> str:
        """The last bytes of a run's output."""
        return log_files.tail(self._folder(key), most)

    def message(self, key: RunKey) -> Path:
        """The file in which a container may leave a message for whoever asks how it ended."""
        return self._folder(key) / _MESSAGE

    def record_oom(self, key: RunKey, message: str) -> None:
        """Put on record that a run is ended because of the memory it uses. OSError."""
        shim.write_reserved(str(self._folder(key)), shim.OUT_OF_MEMORY, message)

    def note(self, key: RunKey, now: float, known: int) -> int:
        """Note how long a run's log is, for those who ask when its lines were written; its length."""
        return log_times.note(str(self._folder(key)), now, known)

    def prune(self, uid: str, container: str) -> None:
        """Forget runs that are too old to matter."""
        for number in self._numbers(uid, container)[:-_KEPT_RUNS]:
            shutil.rmtree(self._folder(RunKey(uid, container, number)), ignore_errors=True)

    def alive(self, uid: str) -> bool:
        """Whether a shim of any of a pod's runs is alive."""
        return any(not _free(folder) for folder in (self._layout.pod(uid) / "containers").glob("*/*"))

    def unsettled(self, uid: str) -> bool:
        """Whether something of a pod's runs may be left: one that began has not been seen to end."""
        folders = (self._layout.pod(uid) / "containers").glob("*/*")
        return any(
            not (folder / "exited").exists() and ((folder / "started").exists() or not _free(folder))
            for folder in folders
        )

    def close(self) -> None:
        """Start no more; what runs, runs on."""
        self._zygote.close()

    def _spawn(self, folder: Path, key: RunKey, order: Order, lock: int) -> None:
        """Have a shim born with the order and the lock."""
        environment = {**order.environment, processes.MARK: key.mark}
        group = self._groups.make(key.mark.rstrip("/").replace("/", "-"), order.memory)
        words = (str(folder), list(order.command), environment, order.directory, self._log_bytes, group)
        paper = fork_server.write_order(words)
        try:
            output = os.open(folder / "shim.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                self._zygote.fork(paper, lock, output)
            finally:
                os.close(output)
        finally:
            os.close(paper)

    def _folder(self, key: RunKey) -> Path:
        return _folder(self._layout, key)

    def _numbers(self, uid: str, container: str) -> list[int]:
        folder = self._layout.container(uid, container, 0).parent
        with suppress(FileNotFoundError):
            return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
        return []

    def _lose(self, key: RunKey, folder: Path) -> Run:
        """Record the end of a run whose shim was killed, once nothing of it is left."""
        started = _read(folder / "started")
        process = Process(started["pid"], started["startTicks"])
        if processes.kill_marked(key.mark, process):
            return Run(key.restart, started["startedAt"], process)
        ending = {"exitCode": KILLED, "reason": LOST, "message": _LOST_MESSAGE, "finishedAt": time.time()}
        try:
            shim.write_reserved(str(folder), "exited", json.dumps(ending))
        except OSError as e:  # the disk is full: looked at again, and the pod's other containers go on meanwhile
            logger.warning("the end of %s is not on record yet: %s", key.mark, e)
            return Run(key.restart, started["startedAt"], process)
        return _ended(key.restart, folder)


@lru_cache(maxsize=4096)
def _folder(layout: Layout, key: RunKey) -> Path:
    """Asked for twenty times a second for every container that runs: making a path costs more than looking at it."""
    return layout.container(key.uid, key.container, key.restart)


@contextmanager
def _locked(folder: Path) -> Iterator[int | None]:
    """A run's lock, shared with what inherits it; None if another has it."""
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


def _free(folder: Path) -> bool:
    with suppress(FileNotFoundError), _locked(folder) as lock:
        return lock is not None
    return True


def _begun(restart: int, folder: Path) -> Run:
    with suppress(FileNotFoundError):
        started = _read(folder / "started")
        return Run(restart, started["startedAt"], Process(started["pid"], started["startTicks"]))
    return Run(restart)


def _ended(restart: int, folder: Path) -> Run:
    exited = _read(folder / "exited")
    begun = _begun(restart, folder)
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
        message=exited.get("message") or _text(folder / "problem") or _tail(folder / _MESSAGE, _LONGEST_MESSAGE),
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
