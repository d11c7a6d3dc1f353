"""The notes of a stack about itself in its data folder, and whether it runs.

One rule: a stack runs exactly while a process holds its lock. A note is valid only if the process that holds the lock
wrote it; notes of earlier processes are ignored.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from coordinator.errors import LocalError
from coordinator.looks import looks
from coordinator.settings import REDIS_URL_NOTE
from embedded.layout import Layout

NO_URLS: Mapping[str, str] = MappingProxyType({})
_PATIENCE_SECONDS = 1.0
"""The longest time for which a command may hold the lock to test it, or a new holder may not have written its id yet.
"""
_PAUSE_SECONDS = 0.01
_END_SECONDS = 3.0
"""The longest time for which a process may live after it has released the lock."""
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of paths at which no file can exist."""
_START_TICKS = 19
"""The position of the start time in /proc/<pid>/stat, counted after the command's name."""


class AlreadyRuns(LocalError):
    """Another supervisor holds the lock of the data folder."""


class Files:
    """The files of the stack itself in the data folder, beside the cluster's own files."""

    def __init__(self, data: Path) -> None:
        self.layout = Layout(data)
        self.lock = data / "lock"
        """The lock that the supervisor holds as long as it lives; it contains the process id and start time."""
        self.ready = data / "ready"
        """The note that all parts have started: JSON with the supervisor, as in `lock`, all process ids, and the URLs
        at which processes answer probes."""
        self.port = data / "port"
        """The API server's port, stored so that kubeconfigs stay valid over restarts."""
        self.report_port = data / "report-port"
        """The coordinator's port for reports, stored because running pods know it."""
        self.report_key = data / "report.key"
        """The key of the tokens with which pods report; mode 0600."""
        self.metrics_token = data / "metrics.token"
        """The token that Prometheus shows at the pages of metrics; mode 0600."""
        self.history = data / "history.sqlite"
        """The history of the jobs, which outlives the cluster; mode 0600."""
        self.redis_url = data / REDIS_URL_NOTE
        """The URL of the stack's own Redis, for commands; missing if the stack uses another one."""
        self.secrets = (self.report_key, self.metrics_token)
        """The secrets of the stack itself, which are made at its start unless they are there."""

    @property
    def history_url(self) -> str:
        """The URL of the history, for the setting of this name."""
        return f"sqlite:///{self.history}"


@contextlib.contextmanager
def hold_lock(files: Files) -> Iterator[None]:
    """Hold the lock of a data folder. Raises AlreadyRuns if another supervisor holds it, and OSError if locks do not
    work."""
    files.layout.logs("any").parent.mkdir(parents=True, exist_ok=True)
    with files.lock.open("a+") as lock:
        if not _take_lock(lock.fileno()):
            lock.seek(0)
            holder = lock.read().partition(" ")[0]
            raise AlreadyRuns(
                f"a cluster already runs in {files.layout.root} (process {holder}); "
                "`torchq local down` stops it, --data names another folder"
            )
        lock.truncate(0)
        lock.write(_signature(os.getpid()))
        lock.flush()
        yield


def note_ready(files: Files, processes: Mapping[str, int], urls: Mapping[str, str] = NO_URLS) -> None:
    """Note the processes of a stack whose parts all run, and the URLs at which they answer probes. Only the process
    that holds the lock may call this."""
    partial = files.ready.with_suffix(".partial")
    pids = {"supervisor": os.getpid(), **processes}
    note = {"supervisor": _signature(os.getpid()), "processes": pids, "metrics": dict(urls)}
    partial.write_bytes(orjson.dumps(note))
    partial.replace(files.ready)


def supervisor_pid(data: Path) -> int | None:
    """Return the process that runs the stack of a data folder; None if the stack does not run.

    Raises LocalError if the state cannot be determined.
    """
    holder = _holder(data)
    return None if holder is None else int(holder.split()[0])


def original(data: Path) -> int | None:
    """Return the process that runs the stack from whose folder this folder was copied while it ran; else None.

    Call this for a folder in which no stack runs. The function waits for a supervisor of that folder that is just
    ending.
    """
    try:
        signature = Files(data).lock.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    pid, _, ticks = signature.partition(" ")
    if not (ticks and pid.isdecimal()) or int(pid) == os.getpid():
        return None
    return int(pid) if all(_is_alive(signature) for _ in looks(_END_SECONDS, _PAUSE_SECONDS)) else None


def members(data: Path) -> dict[str, int]:
    """Return the stack's processes by name; empty while the stack does not run or is not ready."""
    holder = _holder(data)
    note = {} if holder is None else _note(data)
    processes: dict[str, int] = note["processes"] if note and note.get("supervisor") == holder else {}
    return processes


def metrics_urls(data: Path) -> dict[str, str]:
    """Return the URLs at which the stack's processes answer probes, by name; empty while the stack is not ready."""
    urls: dict[str, str] = _note(data).get("metrics", {}) if members(data) else {}
    return urls


def _note(data: Path) -> dict[str, Any]:
    try:
        note = orjson.loads(Files(data).ready.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return note if isinstance(note, dict) else {}


def _holder(data: Path) -> str | None:
    """Return the signature of the process that holds the lock; None if no process holds it."""
    for _ in looks(_PATIENCE_SECONDS, _PAUSE_SECONDS):
        signature = _lock_text(data)
        if signature is None or (signature and _is_alive(signature)):
            return signature
    raise LocalError(
        f"{Files(data).lock} is locked by a process that is not visible here: the cluster runs in another container or "
        "on another machine; run the command there"
    )


def _lock_text(data: Path) -> str | None:
    """Return the text of the lock if it is locked, else None.

    While a process takes the lock, the text is empty or the text of an earlier holder for a moment.
    """
    try:
        with Files(data).lock.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read()
    except OSError as error:
        if error.errno not in _NOWHERE:
            message = f"cannot tell whether a cluster runs in {data}: {error.filename}: {error.strerror}"
            raise LocalError(message) from error
    return None


def _take_lock(descriptor: int) -> bool:
    """Take the lock; return whether that succeeded. Waits for commands that hold the lock for an instant to test it."""
    for _ in looks(_PATIENCE_SECONDS, _PAUSE_SECONDS):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _signature(pid: int) -> str:
    """Return process id and start time, which distinguish a process from a later process with the same id.

    The start time is missing where the system does not provide it.
    """
    return f"{pid} {ticks}" if (ticks := _start_ticks(pid)) else str(pid)


def _is_alive(signature: str) -> bool:
    pid, _, ticks = signature.partition(" ")
    return _start_ticks(int(pid)) == ticks if ticks else pid.isdecimal()


def _start_ticks(pid: int) -> str:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if fields[0] == b"Z" else fields[_START_TICKS].decode()
    except (OSError, IndexError):
        return ""
