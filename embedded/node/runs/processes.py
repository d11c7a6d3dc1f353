"""The processes of a container, found in /proc and ended.

One rule: a process belongs to a container by any of three marks: it descends from the container's first process or
shim, it is in that session, or it inherited the container's mark in its environment; nothing escapes all three by
accident.
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
    """One process, told apart from a later one of the same pid by the moment it started."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Whether this very process is still there (a zombie is not)."""
        fields = _stat(self.pid)
        return bool(fields) and int(fields[_START_TICKS]) == self.start_ticks and fields[0] != b"Z"

    def kill(self) -> None:
        """SIGKILL, if it is still there."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the process group that a container's first process leads, if that one is still there."""
    if process.alive():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def kill_marked(prefix: str, leader: Process | None = None) -> bool:
    """SIGKILL whatever belongs to the containers whose mark begins with `prefix`; whether anything did.

    To be called until it returns False: what is killed may have forked meanwhile.
    """
    found = members(prefix, leader)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def members(prefix: str, leader: Process | None = None) -> set[int]:
    """The pids of the living processes of containers whose mark begins with `prefix`, and of a known leader's tree."""
    table = {pid: fields for pid in _pids() if (fields := _stat(pid)) and fields[0] != b"Z"}
    found = {pid for pid in table if _marked(pid, prefix)}
    if leader is not None and leader.alive():
        found |= {leader.pid} | {pid for pid, fields in table.items() if int(fields[_SESSION]) == leader.pid}
    return _with_descendants(found, {pid: int(fields[_PARENT]) for pid, fields in table.items()})


class ContainerProcesses:
    """The processes of several containers, found again and again: a process keeps the mark it was seen with."""

    def __init__(self) -> None:
        self._marks: dict[tuple[int, bytes], str] = {}

    def of(self, leaders: Mapping[str, Process]) -> dict[str, set[int]]:
        """The pids of the living processes of each of these containers, by mark and with their first processes."""
        table = {pid: fields for pid in _pids() if (fields := _stat(pid)) and fields[0] != b"Z"}
        identities = {pid: (pid, fields[_START_TICKS]) for pid, fields in table.items()}
        self._marks = {key: self._marks[key] if key in self._marks else _mark(key[0]) for key in identities.values()}
        sessions = {leader.pid: mark for mark, leader in leaders.items() if leader.alive()}
        found: dict[str, set[int]] = {mark: set() for mark in leaders}
        for pid, fields in table.items():
            for mark in (self._marks[identities[pid]], sessions.get(int(fields[_SESSION])), sessions.get(pid)):
                if mark in found:
                    found[mark].add(pid)
        parents = {pid: int(fields[_PARENT]) for pid, fields in table.items()}
        return {mark: _with_descendants(pids, parents) if pids else pids for mark, pids in found.items()}


def _with_descendants(found: set[int], parents: Mapping[int, int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    reached, frontier = set(found), list(found)
    while frontier:
        for child in children.get(frontier.pop(), ()):
            if child not in reached:
                reached.add(child)
                frontier.append(child)
    return reached


def _marked(pid: int, prefix: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"\0{MARK}={prefix}".encode() in b"\0" + environment


def _mark(pid: int) -> str:
    """The mark that a process carries; empty if it carries none, or is another user's."""
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return ""
    _, found, rest = (b"\0" + environment).partition(f"\0{MARK}=".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())


def _stat(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
