"""Finds the processes of containers in /proc, and ends them.

One rule: any of three properties makes a process belong to a container. A process belongs to a container if it descends
from the container's first process or shim, it is in that process's session, or it inherited the container's mark in its
environment. No process loses all three properties by accident.
"""

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from embedded.node.runs.command_processes import ASK, stat

MARK = "TORCHQ_CONTAINER"
"""The variable that every process of a container inherits: `<pod uid>/<container>/<restart>/`."""

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
        fields = stat(str(self.pid))
        return bool(fields) and int(fields[_START_TICKS]) == self.start_ticks and fields[0] != b"Z"

    def kill(self) -> None:
        """Send SIGKILL, if the process still runs."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


def ask_to_end(first: Process, shim: Process | None) -> None:
    """Have SIGTERM sent to a container's first process alone, as container runtimes do.

    The shim signals the first process, and handles the processes that the first process leaves. A shim of an earlier
    version does not know the request and is not in the record of the run.
    """
    target, number = (first, signal.SIGTERM) if shim is None else (shim, ASK)
    if target.alive():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target.pid, number)


def kill_marked(prefix: str, leader: Process | None = None, shims: Iterable[Process] = ()) -> bool:
    """Send SIGKILL to all processes of the containers whose mark begins with `prefix`; return whether there were such
    processes.

    Call this function until it returns False: a process may have forked before it was killed.
    """
    pids = members(prefix, leader, shims)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def members(prefix: str, leader: Process | None = None, shims: Iterable[Process] = ()) -> set[int]:
    """Return the pids of the running processes of containers whose mark begins with `prefix`.

    The first process of a container, as `leader`, adds its session and its descendants. The shims of these containers
    add their descendants.
    """
    table = _table()
    pids = {pid for pid in table if _mark(pid).startswith(prefix)}
    if leader is not None and leader.alive():
        pids |= {leader.pid} | {pid for pid, fields in table.items() if int(fields[_SESSION]) == leader.pid}
    owners = {shim.pid for shim in shims if shim.alive()}
    pids |= {pid for pid, fields in table.items() if int(fields[_PARENT]) in owners}
    return _with_descendants(pids, {pid: int(fields[_PARENT]) for pid, fields in table.items()})


class ContainerProcesses:
    """Finds the processes of several containers repeatedly. The mark of a process is read once and then remembered."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, bytes], str] = {}

    def find(self, leaders: Mapping[str, Process]) -> dict[str, set[int]]:
        """Return the pids of the running processes of each container, by mark; `leaders` are the first processes."""
        table = _table()
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


def _mark(pid: int) -> str:
    """Return the mark in the environment of a process; empty if the process has no mark, or belongs to another user."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    _, separator, rest = (b"\0" + environment).partition(f"\0{MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if separator else ""


def _table() -> dict[int, list[bytes]]:
    """Return the fields of /proc/<pid>/stat after the command's name, by pid; without zombies."""
    pids = (name for name in os.listdir(_PROC) if name.isdecimal())
    return {int(pid): fields for pid in pids if (fields := stat(pid)) and fields[0] != b"Z"}
