"""Control groups (version 2, else 1) for containers with a memory limit, where this user may create them.

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
            for file, value in _limits(group, limit):
                (group / file).write_text(value)
        except OSError:
            with suppress(OSError):
                group.rmdir()
            return ""
        return str(group)


def _limits(group: Path, limit: int) -> Iterator[tuple[str, str]]:
    """Yield the files that limit the memory of a group, without swap, and the text that is written into each, in this
    order.
    """
    if (group / "memory.limit_in_bytes").exists():
        yield "memory.limit_in_bytes", str(limit)
        if (group / "memory.memsw.limit_in_bytes").exists():
            yield "memory.memsw.limit_in_bytes", str(limit)
        return
    yield "memory.oom.group", "1"
    if (group / "memory.swap.max").exists():
        yield "memory.swap.max", "0"
    yield "memory.max", str(limit)


NO_GROUPS = ControlGroups()


def find(mount: Path = _MOUNT, own_groups: Path = _OWN) -> ControlGroups:
    """Return the nearest writable control group above this process whose children have memory limits.

    A systemd user session has such a group, since its slices belong to the user. To move a process between two groups,
    a user must be allowed to write to a parent group of both groups. So only the groups above this process are
    candidates.
    """
    for folder in _groups_above(mount, own_groups):
        if _may_hold(folder):
            return ControlGroups(folder)
    return ControlGroups(_group_of_version_1(mount, own_groups))


def _group_of_version_1(mount: Path, own_groups: Path) -> Path | None:
    """Return the memory group of this process in version 1, if this user can create groups in it.

    Where the path of the group is not visible, as in a container, the mount itself is the group. A group elsewhere
    would leave the limits under which this process runs.
    """
    with suppress(OSError):
        lines = [line.split(":", 2) for line in own_groups.read_text().splitlines()]
        own = next((line[2] for line in lines if len(line) == 3 and "memory" in line[1].split(",")), None)
        if own is not None and ".." not in Path(own).parts:
            folder = mount / "memory" / own.lstrip("/")
            folder = folder if folder.is_dir() else mount / "memory"
            if (folder / "memory.limit_in_bytes").exists() and os.access(folder, os.W_OK):
                return folder
    return None


def _groups_above(mount: Path, own_groups: Path) -> Iterator[Path]:
    """Yield the control groups of this process, the nearest first; none where version 2 does not control memory."""
    with suppress(OSError):
        lines = own_groups.read_text().splitlines()
        if len(lines) == 1 and lines[0].startswith("0::/"):
            steps = Path(lines[0].removeprefix("0::/"))
            if ".." not in steps.parts:  # otherwise the group is outside the part that this process can see
                yield from (mount / step for step in (steps, *steps.parents))


def _may_hold(folder: Path) -> bool:
    """Return whether this user can create groups in this group and move processes into them."""
    with suppress(OSError):
        governs = "memory" in (folder / "cgroup.subtree_control").read_text().split()
        return governs and all(os.access(path, os.W_OK) for path in (folder, folder / "cgroup.procs"))
    return False
