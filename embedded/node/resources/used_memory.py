"""Measures the memory that processes use, as a memory limit counts it.

One rule: memory that several processes share is counted once, divided among them. Otherwise every worker of a data
loader would count the data set again. Pages of mapped files are not counted, since the kernel can drop them at any
time; a control group drops them before it kills a process.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_RESIDENT, _SHARED = 1, 2
"""The positions of the fields in /proc/<pid>/statm."""
_EXACT_SECONDS = 2.0
"""The largest age of the last exact figure while the upper bound is above the limit."""
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """An exact figure, and the upper bound at the same time."""

    used: int
    rough: int
    at: float
    """The time of the measurement, in seconds of the caller's clock."""


def rough(pids: Iterable[int]) -> int:
    """Return an upper bound of the bytes that these processes use.

    Shared memory counts for each process, so the sum is never less than `used`, and it is cheap to compute. A process
    that has ended counts as 0.
    """
    return sum(resident for resident, _ in map(_statm, pids))


def used(pids: Iterable[int]) -> int:
    """Return the bytes that these processes have to themselves, plus their parts of shared memory."""
    return sum(map(_used, pids))


def is_due(limit: int, bound: int, last: MemoryUse | None, now: float, interval: float = _EXACT_SECONDS) -> bool:
    """Return whether the exact figure, which is expensive, may have reached the limit since it was last computed.

    The growth of the exact figure is at most the growth of the upper bound. The bound may also have shrunk in between,
    so the age of the last figure is used, too. Growth is doubled, so that the next check comes in time.
    """
    if bound <= limit:
        return False
    if last is None or now - last.at >= interval:
        return True
    growth = bound - last.rough
    return last.used + max(growth, 2 * growth) >= limit


def is_rising(limit: int, before: int, bound: int, seconds: float, ahead: float) -> bool:
    """Return whether the upper bound, if the bound continues to rise as in the last seconds, exceeds the limit within
    `ahead` seconds.
    """
    return bound > before and seconds > 0 and bound + (bound - before) * ahead / seconds > limit


def text(size: int) -> str:
    """Format bytes for people: in MiB, in GiB from 10 GiB on, and in bytes below 1 MiB."""
    if size < _MIB:
        return f"{size} bytes"
    return f"{size / _MIB:.0f}Mi" if size < 10 * 1024 * _MIB else f"{size / _MIB / 1024:.1f}Gi"


def _used(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        names = (b"Pss_Anon", b"Pss_Shmem") if b"Pss_Anon" in fields else (b"Pss",)
        return sum(int(fields[name].split()[0]) for name in names) * 1024
    except (OSError, KeyError, ValueError, IndexError):  # the process has ended, or belongs to another user
        resident, shared = _statm(pid)
        return max(0, resident - shared)


def _statm(pid: int) -> tuple[int, int]:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            fields = file.read().split()
        return int(fields[_RESIDENT]) * _PAGE, int(fields[_SHARED]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0, 0
