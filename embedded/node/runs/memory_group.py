"""The control group that limits the memory of one container, in version 1 or 2.

One rule: an error here has no consequence, since the node watches the memory, too. The container runs without a group.

The kernel ends all processes of a group of version 2 that exceeds its limit. In version 1 the kernel ends one process,
so an event tells the shim, which ends the other processes.

This module is a part of the shim, which stays in memory beside its container. So this module imports as little as
possible.
"""

import os
import signal

LIMIT, PEAK, KILLS = 0, 1, 2
_FILES = {
    1: ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.peak", "memory.events"),
}
"""By version: the files with the limit, the most that was used, and the number of processes that were killed."""


class MemoryGroup:
    """The group in a folder; no group if the folder's name is empty."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._files = _FILES[1 if os.path.exists(os.path.join(folder, _FILES[1][LIMIT])) else 2]

    def join(self) -> None:
        """Move this process into the group."""
        try:
            if self._folder:
                _write_now(os.path.join(self._folder, "cgroup.procs"), "0")
        except OSError:
            pass

    def events(self) -> int:
        """Return a descriptor that becomes readable when memory is short in a group of version 1; -1 for other groups.

        The kernel's name of this is cgroup.event_control.
        """
        try:
            if not self._folder or self._files is not _FILES[1]:
                return -1
            kills = os.open(os.path.join(self._folder, self._files[KILLS]), os.O_RDONLY)
            descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            _write_now(os.path.join(self._folder, "cgroup.event_control"), f"{descriptor} {kills}")
            return descriptor
        except OSError:
            return -1

    def kill(self) -> None:
        """Send SIGKILL to the processes of the group. Orphans that they forked in the meantime are the shim's to
        kill."""
        try:
            pids = self._read("cgroup.procs").split()
        except OSError:
            return
        for pid in pids:
            try:  # noqa: SIM105 - contextlib is not imported here
                os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass

    def has_killed(self) -> bool:
        """Return whether the kernel has killed processes of the group for their memory."""
        try:
            lines = self._read(self._files[KILLS]).splitlines() if self._folder else []
            return any(line.startswith("oom_kill ") and int(line.split()[1]) > 0 for line in lines)
        except (OSError, ValueError):
            return False

    def message(self, container: str) -> str:
        """Return the message about a container that has exceeded its limit."""
        limit, peak = self._megabytes(LIMIT), self._megabytes(PEAK)
        return (
            f"container {container} used {peak or limit}Mi of memory, and its limit is {limit}Mi "
            "(resources.limits.memory): raise the limit, or let the program use less"
        )

    def remove(self) -> None:
        """Remove the group, in which no process is any more."""
        try:
            if self._folder:
                os.rmdir(self._folder)
        except OSError:
            pass

    def _megabytes(self, which: int) -> int:
        try:
            return int(self._read(self._files[which])) >> 20
        except (OSError, ValueError):  # memory.peak exists since Linux 5.19
            return 0

    def _read(self, name: str) -> str:
        with open(os.path.join(self._folder, name), encoding="ascii") as file:
            return file.read()


def _write_now(path: str, text: str) -> None:
    """Write to an existing file, unbuffered and in one call. Raise OSError on failure."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
