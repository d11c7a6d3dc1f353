"""Control groups (version 2) for containers with a memory limit, where this user may create them.

One rule: a control group only makes a limit stricter. The node watches the memory of every container in any case, so an
error here has no consequence: the container runs without a control group.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """Creates the control groups of containers in a folder; without a folder it creates none."""

    folder: Path | None = None

    def make(self, name: str, limit: int) -> str:
        """Create a control group with a memory limit in bytes; return its folder, or nothing if that is impossible."""
        if self.folder is None or not limit:
            return ""
        group = self.folder / f"torchq-{name}"
        try:
            group.mkdir(exist_ok=True)
            (group / "memory.oom.group").write_text("1")
            if (group / "memory.swap.max").exists():
                (group / "memory.swap.max").write_text("0")
            (group / "memory.max").write_text(str(limit))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return ""
        return str(group)


NO_GROUPS = ControlGroups()


def find(mount: Path = _MOUNT, own_groups: Path = _OWN) -> ControlGroups:
    """Return the nearest writable control group above this process whose children have memory limits.

    A systemd user session has one, since its slices belong to the user. To move a process between two groups, a user
    must be allowed to write to a group above both. So only the groups above this process are candidates.
    """
    for folder in _groups_above(mount, own_groups):
        if _may_hold(folder):
            return ControlGroups(folder)
    return NO_GROUPS


def _groups_above(mount: Path, own_groups: Path) -> Iterator[Path]:
    """Yield the control groups of this process, the nearest first; none where version 2 does not control memory."""
    with suppress(OSError):
        lines = own_groups.read_text().splitlines()
        if len(lines) == 1 and lines[0].startswith("0::/"):
            steps = Path(lines[0].removeprefix("0::/"))
            if ".." not in steps.parts:  # otherwise the group is outside the part that this process can see
                yield from (mount / step for step in (steps, *steps.parents))


def _may_hold(folder: Path) -> bool:
    """Return whether this user can create groups in this one and move processes into them."""
    with suppress(OSError):
        governs = "memory" in (folder / "cgroup.subtree_control").read_text().split()
        return governs and all(os.access(path, os.W_OK) for path in (folder, folder / "cgroup.procs"))
    return False
