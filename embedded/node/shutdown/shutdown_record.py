"""What is on disk of a node's shutdown: when it began, the mark of each pod it ends, and which pods still end.

One rule: a mark is on disk before the first container of its pod is asked to end, so that a node that starts later
knows what has ended the pod, whatever was killed in between.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass

from embedded.layout import Layout
from embedded.node.runs import shim

_FILE = "shutdown"
_LEFT = "ending"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of a pod that is ended because its node shuts down."""

    at: float
    """When it was made, in seconds since the epoch: what had ended before that ended by itself."""
    asked_at: float | None = None
    """When the first container was asked to end; None: none was."""
    asked: tuple[tuple[str, int], ...] = ()
    """Container and restart of the runs that were asked to end."""


@dataclass(frozen=True, slots=True)
class EndingPod:
    """A pod that still ends."""

    namespace: str
    name: str
    job: str
    """The TorchJob it belongs to; empty if it belongs to none."""
    until: float | None
    """When it is killed, in seconds since the epoch; None if it was not asked to end yet."""


def read(layout: Layout, uid: str) -> Mark | None:
    """A pod's mark; None if it has none."""
    with suppress(FileNotFoundError):
        found = json.loads((layout.pod(uid) / _FILE).read_bytes())
        return Mark(found["at"], found["asked_at"], tuple((name, restart) for name, restart in found["asked"]))
    return None


def write(layout: Layout, uid: str, mark: Mark) -> None:
    """Put a pod's mark on disk, whole or not at all. OSError."""
    folder = layout.pod(uid)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shim.write(str(folder), _FILE, json.dumps(asdict(mark)))


def last_began(layout: Layout) -> float | None:
    """When the node of this folder was last told to shut down, in seconds since the epoch; None if it never was."""
    with suppress(FileNotFoundError):
        return float(json.loads((layout.root / _FILE).read_bytes())["at"])
    return None


def begin(layout: Layout, now: float) -> None:
    """Record that the node shuts down. OSError."""
    shim.write(str(layout.root), _FILE, json.dumps({"at": now}))


def left(layout: Layout) -> tuple[EndingPod, ...] | None:
    """The pods that still end; None if no node of this folder shuts down."""
    with suppress(FileNotFoundError):
        return tuple(EndingPod(**each) for each in json.loads((layout.root / _LEFT).read_bytes()))
    return None


def write_left(layout: Layout, pods: Iterable[EndingPod]) -> None:
    """Say which pods still end. OSError."""
    shim.write(str(layout.root), _LEFT, json.dumps([asdict(each) for each in pods]))


def clear_left(layout: Layout) -> None:
    """No node of this folder shuts down any more."""
    (layout.root / _LEFT).unlink(missing_ok=True)
