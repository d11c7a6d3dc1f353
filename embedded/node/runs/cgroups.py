"""Control groups (version 2) for containers with a limit of memory, where this user may make some.

One rule: a control group only makes a limit stricter. The node watches the memory of every container anyway, so what
fails here costs nothing: the container runs without a control group.
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
    """Where control groups of containers are made; nowhere without a folder."""

    folder: Path | None = None

    def make(self, name: str, limit: int) -> str:
        """The folder of a control group whose processes may use so many bytes together, or nothing if there is none."""
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


def find(mount: Path = _MOUNT, own: Path = _OWN) -> ControlGroups:
    """The nearest control group above this process whose children have limits of memory and which this user may write.

    So it is in a systemd user session, whose slices are the user's own. To move a process between two groups takes the
    right to write the group above both, so the one that is looked for is above this process.
    """
    for folder in _above(mount, own):
        if _may_hold(folder):
            return ControlGroups(folder)
    return NO_GROUPS


def _above(mount: Path, own: Path) -> Iterator[Path]:
    """The control groups that this process is in, the nearest first; none where version 2 does not govern memory."""
    with suppress(OSError):
        lines = own.read_text().splitlines()
        if len(lines) == 1 and lines[0].startswith("0::/"):
            steps = Path(lines[0].removeprefix("0::/"))
            if ".." not in steps.parts:  # it is outside of what this process can see
                yield from (mount / step for step in (steps, *steps.parents))


def _may_hold(folder: Path) -> bool:
    """Whether groups can be made in this one, and processes moved into them."""
    with suppress(OSError):
        governs = "memory" in (folder / "cgroup.subtree_control").read_text().split()
        return governs and all(os.access(path, os.W_OK) for path in (folder, folder / "cgroup.procs"))
    return False
