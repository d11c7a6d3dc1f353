"""What a stack notes about itself in its data folder, and whether it runs.

One rule: a stack runs exactly while a process holds its lock; a note counts only if the process that holds the lock
wrote it. What an earlier process left behind says nothing.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson

from coordinator.errors import LocalError
from coordinator.settings import REDIS_URL_NOTE
from embedded.layout import Layout

_PATIENCE_SECONDS = 1.0
"""How long the lock may be held by a process that only looks, or by one that has not written its name yet."""
_PAUSE_SECONDS = 0.01
_END_SECONDS = 3.0
"""How long a process may live after it has let go of the lock."""
_NOWHERE = (errno.ENAMETOOLONG, errno.ELOOP)
"""Paths at which there cannot be a file."""
_START_TICKS = 19
"""Position in /proc/<pid>/stat after the command's name."""


class AlreadyRuns(LocalError):
    """Another supervisor holds the lock of the data folder."""


class Files:
    """What the stack itself keeps in the data folder, beside the cluster's own files."""

    def __init__(self, data: Path) -> None:
        self.layout = Layout(data)
        self.lock = data / "lock"
        """Held by the supervisor as long as it lives; contains its process id and when that process started."""
        self.ready = data / "ready"
        """There once everything has started: JSON with the supervisor, as in `lock`, and the processes' ids."""
        self.port = data / "port"
        """The API server's port, kept so that kubeconfigs stay right over restarts."""
        self.redis_url = data / REDIS_URL_NOTE
        """Where the stack's own Redis is, for commands that look at it; not there if it uses another one."""


@contextlib.contextmanager
def locked(files: Files) -> Iterator[None]:
    """One supervisor per data folder. AlreadyRuns if another has it; OSError if the folder cannot hold a lock."""
    files.layout.logs("any").parent.mkdir(parents=True, exist_ok=True)
    with files.lock.open("a+") as lock:
        if not _take_lock(lock.fileno()):
            lock.seek(0)
            holder = lock.read().partition(" ")[0]
            raise AlreadyRuns(
                f"a stack runs in {files.layout.root} already (process {holder}); "
                "`torchq local down` stops it, --data names another folder"
            )
        lock.truncate(0)
        lock.write(_signature(os.getpid()))
        lock.flush()
        yield


def note_ready(files: Files, processes: Mapping[str, int]) -> None:
    """Note that everything runs, as which processes; for the process that holds the lock."""
    partial = files.ready.with_suffix(".partial")
    note = {"supervisor": _signature(os.getpid()), "processes": {"supervisor": os.getpid(), **processes}}
    partial.write_bytes(orjson.dumps(note))
    partial.replace(files.ready)


def supervisor_pid(data: Path) -> int | None:
    """The process that runs the stack of a data folder, None if none does. LocalError if that cannot be told."""
    holder = _holder(data)
    return None if holder is None else int(holder.split()[0])


def predates(data: Path) -> bool:
    """Whether the version before runs the stack of a data folder: it kills pods 5 s after it was told to end, and takes
    what they exit with for their own doing."""
    holder = _holder(data)
    return holder is not None and " " not in holder and bool(_start_ticks(int(holder)))


def original(data: Path) -> int | None:
    """The process that runs the stack of which this folder is a copy, made while it ran; else None. For a folder
    in which no stack runs: a supervisor that has just ended one there is waited for."""
    try:
        signature = Files(data).lock.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    pid, _, ticks = signature.partition(" ")
    deadline = time.monotonic() + _END_SECONDS
    while ticks and pid.isdecimal() and int(pid) != os.getpid() and _is_alive(signature):
        if time.monotonic() > deadline:
            return int(pid)
        time.sleep(_PAUSE_SECONDS)
    return None


def members(data: Path) -> dict[str, int]:
    """The stack's processes by name; empty while it does not run, or is not ready."""
    holder = _holder(data)
    if holder is None:
        return {}
    try:
        note = orjson.loads(Files(data).ready.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    if not isinstance(note, dict):
        return {}
    if "processes" not in note:  # written by the version before, whose lock has the process id alone
        return note if str(note.get("supervisor")) == holder else {}
    processes: dict[str, int] = note["processes"] if note.get("supervisor") == holder else {}
    return processes


def _holder(data: Path) -> str | None:
    """What the process that holds the lock wrote into it; None if none holds it."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (signature := _lock_text(data)) is not None:
        if signature and _is_alive(signature):
            return signature
        if time.monotonic() > deadline:
            raise LocalError(
                f"{Files(data).lock} is held by a process that cannot be seen from here: "
                "the cluster runs in another container, or on another machine"
            )
        time.sleep(_PAUSE_SECONDS)
    return None


def _lock_text(data: Path) -> str | None:
    """The lock's text if it is held, else None. Empty, or of an earlier holder, for the moment in which it is taken."""
    try:
        with Files(data).lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno in _NOWHERE:
            return None
        raise LocalError(f"cannot tell whether a cluster runs in {data}: {error.filename}: {error.strerror}") from error
    return None


def _take_lock(descriptor: int) -> bool:
    """Take the lock. A command that looks holds it for an instant: that is waited for."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True


def _signature(pid: int) -> str:
    """A process, told apart from a later one of the same id by the moment it started; the id alone where the system
    does not tell that moment."""
    return f"{pid} {ticks}" if (ticks := _start_ticks(pid)) else str(pid)


def _is_alive(signature: str) -> bool:
    pid, _, ticks = signature.partition(" ")
    if not ticks:
        return pid.isdecimal()
    return _start_ticks(int(pid)) == ticks


def _start_ticks(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[_START_TICKS].decode()
    except (OSError, IndexError):
        return ""
