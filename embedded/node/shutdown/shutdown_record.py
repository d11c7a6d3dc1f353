"""The files of a node's shutdown: when it began, the mark of each pod that it ends, and which pods still end.

One rule: a mark is on disk before the first container of its pod is sent SIGTERM. So a node that starts later knows
the reason of the pod's end, whichever processes were killed in between.
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
    """The mark of a pod that ends because its node shuts down."""

    at: float
    """The time of the mark, in seconds since the epoch. A container that ended before that ended by itself."""
    asked_at: float | None = None
    """The time at which the first container was sent SIGTERM; None if none was."""
    asked: tuple[tuple[str, int], ...] = ()
    """Container and restart of the runs that were sent SIGTERM."""


@dataclass(frozen=True, slots=True)
class EndingPod:
    """A pod that has not ended yet although the node shuts down."""

    namespace: str
    name: str
    job: str
    """The TorchJob to which the pod belongs; empty if it belongs to none."""
    until: float | None
    """The time at which the pod is killed, in seconds since the epoch; None if it was not sent SIGTERM yet."""


def read(layout: Layout, uid: str) -> Mark | None:
    """Return a pod's mark; None if the pod has no mark."""
    with suppress(FileNotFoundError):
        content = json.loads((layout.pod(uid) / _FILE).read_bytes())
        return Mark(content["at"], content["asked_at"], tuple((name, restart) for name, restart in content["asked"]))
    return None


def write(layout: Layout, uid: str, mark: Mark) -> None:
    """Write a pod's mark to disk, whole or not at all. Raise OSError on failure."""
    folder = layout.pod(uid)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    shim.write(str(folder), _FILE, json.dumps(asdict(mark)))


def last_shutdown(layout: Layout) -> float | None:
    """Return when the last shutdown of this folder's node began, in seconds since the epoch; None if there was no
    shutdown.
    """
    with suppress(FileNotFoundError):
        return float(json.loads((layout.root / _FILE).read_bytes())["at"])
    return None


def begin(layout: Layout, now: float) -> None:
    """Record that the node shuts down. Raise OSError on failure."""
    shim.write(str(layout.root), _FILE, json.dumps({"at": now}))


def ending_pods(layout: Layout) -> tuple[EndingPod, ...] | None:
    """Return the pods that have not ended yet; None if no node of this folder shuts down."""
    with suppress(FileNotFoundError):
        return tuple(EndingPod(**pod) for pod in json.loads((layout.root / _LEFT).read_bytes()))
    return None


def write_ending_pods(layout: Layout, pods: Iterable[EndingPod]) -> None:
    """Write which pods have not ended yet. Raise OSError on failure."""
    shim.write(str(layout.root), _LEFT, json.dumps([asdict(pod) for pod in pods]))


def clear_ending_pods(layout: Layout) -> None:
    """Remove the record of pods that have not ended: no node of this folder shuts down any more."""
    (layout.root / _LEFT).unlink(missing_ok=True)
