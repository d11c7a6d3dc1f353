"""How much memory processes use, as a memory limit counts it.

One rule: memory that several processes share is counted once, in parts: otherwise every worker of a data loader would
count the data set again. What can be dropped at any time (pages of mapped files) does not count: a control group drops
these before it ends anything.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT, _SHARED = 1, 2
"""Positions in /proc/<pid>/statm."""
_EXACT_SECONDS = 2.0
"""How old the last exact figure may be while the rough one is above the limit."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """An exact figure, and the rough one of the same moment."""

    used: int
    rough: int
    at: float
    """In seconds of the clock that the caller goes by."""


def rough(pids: Iterable[int]) -> int:
    """The bytes that these processes have in memory, those that they share counted for each of them: at least as many
    as `used`, and cheap to know. A process that is gone has none."""
    return sum(resident for resident, _ in map(_statm, pids))


def used(pids: Iterable[int]) -> int:
    """The bytes that these processes have to themselves, and their parts of what they share."""
    return sum(map(_used, pids))


def is_due(limit: int, rough_now: int, last: MemoryUse | None, now: float, interval: float = _EXACT_SECONDS) -> bool:
    """Whether the exact figure may have reached the limit since it was taken last: to know it is expensive.

    It grows by no more than the rough one does; but that one may also shrink meanwhile, so its age counts too. Growth
    counts twice, so that the next look is in time.
    """
    if rough_now <= limit:
        return False
    if last is None or now - last.at >= interval:
        return True
    growth = rough_now - last.rough
    return last.used + max(growth, 2 * growth) >= limit


def shown(size: int) -> str:
    """Bytes for people: in MiB, or in GiB from 10 of those on."""
    return f"{size / _MIB:.0f}Mi" if size < 10 * 1024 * _MIB else f"{size / _MIB / 1024:.1f}Gi"


def _used(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            found = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        names = (b"Pss_Anon", b"Pss_Shmem") if b"Pss_Anon" in found else (b"Pss",)
        return sum(int(found[name].split()[0]) for name in names) * 1024
    except (OSError, KeyError, ValueError, IndexError):  # gone, or of another user
        resident, shared = _statm(pid)
        return max(0, resident - shared)


def _statm(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            words = file.read().split()
        return int(words[_RESIDENT]) * _PAGE, int(words[_SHARED]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0, 0
