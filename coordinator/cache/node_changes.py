"""What has changed about the places of pods on nodes since the leader looked last, and what it looks at once more.

One rule: an event becomes only a key, a name, or nothing. A process that never led collects nothing, and one that leads
no more collects no more than MOST.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from coordinator.cache.node_views import NodeView
from coordinator.cache.views import JobView, PodView
from crds.keys import JobKey

MOST = 100_000
"""The most changes that are kept apart. If there are more, everything is read at the next look."""
TURN_SECONDS = 300.0
"""Within which time every job and node is looked at once more, whatever was overlooked."""
_PAUSE_SECONDS = 1.0
_MOST_LOOKS = 256
"""The most jobs and nodes that are looked at once more at a time. In large clusters a turn takes longer for it."""


def node_index(pod: PodView) -> str | None:
    """Return the key under which a pod is found: the uid of its job, or the node of a foreign pod."""
    return pod.job.uid if pod.job is not None else foreign_on(pod.node) if pod.node else None


def foreign_on(node: str) -> str:
    """Return the key under which the foreign pods of a node are found. No uid has a space."""
    return f"node {node}"


@dataclass(frozen=True, slots=True)
class Changed:
    """The changes since the last look."""

    everything: bool = False
    """Whether nothing was collected, so that all must be read."""
    jobs: frozenset[JobKey] = frozenset()
    """Jobs whose pods came to nodes or left them, or whose number of workers changed."""
    nodes: frozenset[str] = frozenset()
    """Nodes that changed, or whose foreign pods did."""
    edited: bool = False
    """Whether a job that may wait asks for other pods than before."""


@dataclass(slots=True)
class NodeChanges:
    """Collects the changes; safe to note in one thread and to take in another."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _everything: bool = True
    _edited: bool = False
    _jobs: set[JobKey] = field(default_factory=set)
    _nodes: set[str] = field(default_factory=set)

    def note(self, before: JobView | None, after: JobView | None) -> None:
        """Note a change of a job."""
        if before is None or self._everything:
            return
        if after is None or before.admission != after.admission or before.gang is not after.gang:
            with self._lock:
                self._jobs.add(before.key)
                # The admission itself may name the domain of the gang, which then waits no more, or not yet again.
                is_same_state = after is not None and (before.admission is None) == (after.admission is None)
                self._edited |= is_same_state and after is not None and before.gang is not after.gang

    def note_charges(self, keys: Iterable[JobKey]) -> None:
        """Note that charges of jobs were lowered in the store."""
        if not self._everything:
            with self._lock:
                self._jobs.update(keys)

    def note_pod(self, before: PodView | None, after: PodView | None) -> None:
        """Note a change of a pod, if it takes or frees room of a node."""
        if self._everything or _place(before) == _place(after):
            return
        with self._lock:
            for pod in (before, after):
                if pod is not None and pod.job is not None:
                    self._jobs.add(pod.job)
                elif pod is not None and pod.node:
                    self._nodes.add(pod.node)
            self._everything = len(self._jobs) + len(self._nodes) > MOST

    def note_node(self, before: NodeView | None, after: NodeView | None) -> None:
        """Note a change of a node."""
        node = after or before
        if node is not None and not self._everything:
            with self._lock:
                self._nodes.add(node.name)

    def take(self) -> Changed:
        """Return what has changed since the last call. From now on, changes are collected."""
        with self._lock:
            changed = Changed(self._everything, frozenset(self._jobs), frozenset(self._nodes), self._edited)
            self._everything = self._edited = False
            self._jobs.clear()
            self._nodes.clear()
        return changed

    def stop(self) -> None:
        """Collect nothing until the next `take`."""
        with self._lock:
            self._everything = True
            self._jobs.clear()
            self._nodes.clear()


class SecondLooks:
    """The jobs and nodes that are looked at once more, a few at a time: no single look costs what all of them do."""

    def __init__(self, now: float) -> None:
        self._rest: Iterator[JobKey | str] = iter(())
        self._size = 0
        self._looked = now

    def take(self, now: float, found: Callable[[], tuple[int, Iterator[JobKey | str]]]) -> Changed:
        """Return the jobs and nodes that are due. `found` returns all of them and their number, at the beginning of
        each turn; it may return one twice."""
        passed = abs(now - self._looked)
        if passed < _PAUSE_SECONDS:
            return Changed()
        self._looked = now
        count = min(_MOST_LOOKS, math.ceil(self._size * passed / TURN_SECONDS))
        due = [*islice(self._rest, count)]
        if len(due) < count or not self._size:
            self._size, self._rest = found()
        return Changed(
            jobs=frozenset(each for each in due if isinstance(each, JobKey)),
            nodes=frozenset(each for each in due if isinstance(each, str)),
        )


def holding(pod: PodView | None) -> object:
    """Return what a pod holds of which node; None if it holds nothing, or is about to leave the node."""
    return None if pod is None or pod.deleting else _place(pod)


def _place(pod: PodView | None) -> object:
    return None if pod is None or not pod.occupies or not pod.node else (pod.job, pod.node, pod.demand)
