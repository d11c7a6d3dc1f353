"""Finds the processes of containers in /proc, and ends them.

One rule: any of three properties makes a process belong to a container. It descends from the container's first process
or shim, it is in that process's session, or it inherited the container's mark in its environment. No process loses all
three by accident.
"""

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MARK = "TORCHQ_CONTAINER"
"""The variable that every process of a container inherits: `<pod uid>/<container>/<restart>/`."""

TERMINATE = signal.SIGTERM

_PROC = Path("/proc")
_PARENT, _SESSION, _START_TICKS = 1, 3, 19
"""Positions in /proc/<pid>/stat after the command's name."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the time of its start distinguishes it from a later process with the same pid."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Return whether this process still runs; a zombie does not."""
        fields = _stat(self.pid)
        return bool(fields) and int(fields[_START_TICKS]) == self.start_ticks and fields[0] != b"Z"

    def kill(self) -> None:
        """Send SIGKILL, if the process still runs."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the process group of a container's first process, if that process still runs."""
    if process.alive():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def kill_marked(prefix: str, leader: Process | None = None) -> bool:
    """Send SIGKILL to all processes of the containers whose mark begins with `prefix`; return whether there were any.

    Call it until it returns False: a process may have forked before it was killed.
    """
    pids = members(prefix, leader)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def members(prefix: str, leader: Process | None = None) -> set[int]:
    """Return the pids of the running processes of containers whose mark begins with `prefix`.

    The first process of a container, as `leader`, adds its session and its descendants.
    """
    table = {pid: fields for pid in _pids() if (fields := _stat(pid)) and fields[0] != b"Z"}
    pids = {pid for pid in table if _has_mark(pid, prefix)}
    if leader is not None and leader.alive():
        pids |= {leader.pid} | {pid for pid, fields in table.items() if int(fields[_SESSION]) == leader.pid}
    return _with_descendants(pids, {pid: int(fields[_PARENT]) for pid, fields in table.items()})


class ContainerProcesses:
    """Finds the processes of several containers repeatedly. The mark of a process is read once and then remembered."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, bytes], str] = {}

    def find(self, leaders: Mapping[str, Process]) -> dict[str, set[int]]:
        """Return the pids of the running processes of each container, by mark; `leaders` are the first processes."""
        table = {pid: fields for pid in _pids() if (fields := _stat(pid)) and fields[0] != b"Z"}
        identities = {pid: (pid, fields[_START_TICKS]) for pid, fields in table.items()}
        self._marks = {key: self._marks[key] if key in self._marks else _mark(key[0]) for key in identities.values()}
        sessions = {leader.pid: mark for mark, leader in leaders.items() if leader.alive()}
        members: dict[str, set[int]] = {mark: set() for mark in leaders}
        for pid, fields in table.items():
            for mark in (self._marks[identities[pid]], sessions.get(int(fields[_SESSION])), sessions.get(pid)):
                if mark in members:
                    members[mark].add(pid)
        parents = {pid: int(fields[_PARENT]) for pid, fields in table.items()}
        return {mark: _with_descendants(pids, parents) if pids else pids for mark, pids in members.items()}


def _with_descendants(pids: set[int], parents: Mapping[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    reached, frontier = set(pids), list(pids)
    while frontier:
        for child in children.get(frontier.pop(), ()):
            if child not in reached:
                reached.add(child)
                frontier.append(child)
    return reached


def _has_mark(pid: int, prefix: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"\0{MARK}={prefix}".encode() in b"\0" + environment


def _mark(pid: int) -> str:
    """Return the mark in the environment of a process; empty if it has none, or belongs to another user."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    _, separator, rest = (b"\0" + environment).partition(f"\0{MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if separator else ""


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())


def _stat(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
