"""Kills containers that use more memory than their limit.

One rule: the reason is on disk before a container is killed, so that no node process reports another reason.

Several times a second, and more often while the memory of a container rises fast, the watch adds up the resident memory
of the processes that each container had a moment ago. This sum is cheap, and it is never less than the memory that
is compared with the limit. Only if the sum is above the limit, the watch computes the exact figure.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embedded.node.resources import used_memory
from embedded.node.resources.pod_watch import IDLE, PodWatch
from embedded.node.resources.used_memory import MemoryUse
from embedded.node.runs.container_processes import ContainerProcesses, Process, kill_marked
from embedded.node.runs.container_runs import RunKey
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_SOON_SECONDS = 0.02
"""The pause while the use of a container rises so fast that it could exceed its limit before the next tick."""
_MEMBERS_SECONDS = 0.5
"""The largest age of the list of a container's processes. It is always updated before a container is killed."""
_NEAR_SECONDS = 0.2
"""The largest age of that list while a container is near its limit."""


@dataclass(frozen=True, slots=True)
class WatchedContainer:
    """A container that runs."""

    key: RunKey
    process: Process
    limit: int = 0
    """The container's own memory limit in bytes; 0 for none."""


@dataclass(frozen=True, slots=True)
class WatchedPod:
    """The containers of a pod that run."""

    containers: tuple[WatchedContainer, ...] = ()
    limit: int = 0
    """The memory limit of all containers together, in bytes; 0 for none."""

    @property
    def has_limit(self) -> bool:
        """Whether a container runs and a limit applies to it."""
        return bool(self.containers) and (self.limit > 0 or any(container.limit for container in self.containers))


@dataclass(slots=True)
class MemoryWatch(PodWatch[WatchedPod]):
    """A thread that watches the memory of containers. `record` writes to disk why a container is killed."""

    record: Callable[[RunKey, str], None]
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    _pids_by_mark: dict[str, set[int]] = field(default_factory=dict)
    """The processes of each container, by its mark."""
    _last: dict[str, MemoryUse] = field(default_factory=dict)
    """The last exact figure of each container, by its mark, and of each pod, by its uid."""
    _near: bool = False
    _rising: bool = False
    _rough: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The time and the last upper bound of each container and pod with a limit, by mark or uid."""
    _members: ContainerProcesses = field(default_factory=ContainerProcesses)
    _members_at: float = -_MEMBERS_SECONDS

    def start(self) -> None:
        """Start the thread. On a machine without /proc nothing can be measured, so limits do not apply there."""
        if Path("/proc/self/statm").exists():
            PodWatch.start(self)

    def watch(self, uid: str, pod: WatchedPod) -> None:
        """Set the containers of a pod that run now; none if the pod is over. Callable from any thread."""
        with self._changed:
            if self._put(uid, pod if pod.has_limit else None):
                self._members_at = -_MEMBERS_SECONDS

    def _turn(self, pods: Mapping[str, WatchedPod]) -> float:
        # The time for which the check waited for a processor is not counted: where many programs run, the pauses would
        # be longest.
        began = time.thread_time()
        self.check(pods, time.monotonic())
        return max(_SOON_SECONDS if self._rising else _TICK_SECONDS, IDLE * (time.thread_time() - began))

    def check(self, pods: Mapping[str, WatchedPod], now: float) -> None:
        """Check all pods once; `now` is in seconds of any clock that does not go back."""
        if now - self._members_at >= (_NEAR_SECONDS if self._near else _MEMBERS_SECONDS):
            self._pids_by_mark, self._members_at = self._find_members(pods.values()), now
            self._last = {name: last for name, last in self._last.items() if name in self._pids_by_mark or name in pods}
            self._rough = {name: at for name, at in self._rough.items() if name in self._pids_by_mark or name in pods}
        self._near = self._rising = False
        for uid, pod in pods.items():
            with self.errors.skipping(f"the memory of the pod with uid {uid}"):
                self._check_pod(uid, pod, now)

    def _check_pod(self, uid: str, pod: WatchedPod, now: float) -> None:
        for container in pod.containers:
            if self._exceeds(container.key.mark, (container,), container.limit, now):
                self._pids_by_mark |= self._find_members([pod])
                used = used_memory.used(self._pids((container,)))
                if used > container.limit:
                    self._kill(container, _container_message(container, used))
                    return
        if self._exceeds(uid, pod.containers, pod.limit, now):
            self._pids_by_mark |= self._find_members([pod])
            shares = [(used_memory.used(self._pids((container,))), container) for container in pod.containers]
            used = sum(share for share, _ in shares)
            if used > pod.limit:
                share, largest = max(shares, key=lambda pair: pair[0])
                self._kill(largest, _pod_message(pod, largest, used, share))

    def _find_members(self, pods: Iterable[WatchedPod]) -> dict[str, set[int]]:
        leaders = {container.key.mark: container.process for pod in pods for container in pod.containers}
        return self._members.find(leaders)

    def _pids(self, containers: Iterable[WatchedContainer]) -> set[int]:
        return {pid for container in containers for pid in self._pids_by_mark.get(container.key.mark, ())}

    def _exceeds(self, name: str, containers: Iterable[WatchedContainer], limit: int, now: float) -> bool:
        """Return whether the listed processes of these containers use more than a limit."""
        if not limit:
            return False
        pids = self._pids(containers)
        bound = used_memory.rough(pids)
        self._near = self._near or 2 * bound > limit
        at, before = self._rough.get(name, (now, bound))
        self._rough[name] = (now, bound)
        self._rising = self._rising or used_memory.is_rising(limit, before, bound, now - at, 2 * _TICK_SECONDS)
        if not used_memory.is_due(limit, bound, self._last.get(name), now):
            return False
        used = used_memory.used(pids)
        self._last[name] = MemoryUse(used, bound, now)
        return used > limit

    def _kill(self, container: WatchedContainer, message: str) -> None:
        """Record the reason and kill the container, even if the record fails: the machine needs the memory."""
        logger.warning("container %s of the pod with uid %s is ended: %s", container.key.container, container.key.uid,
                       message)  # fmt: skip
        try:
            self.record(container.key, message)
        finally:
            container.process.kill()
            kill_marked(container.key.mark, container.process)


def _container_message(container: WatchedContainer, used: int) -> str:
    return (
        f"container {container.key.container} used {used_memory.text(used)} of memory, and its limit is "
        f"{used_memory.text(container.limit)} (resources.limits.memory): raise the limit, or let the program use less"
    )


def _pod_message(pod: WatchedPod, container: WatchedContainer, used: int, share: int) -> str:
    part = used_memory.text(share)
    return (
        f"the pod used {used_memory.text(used)} of memory, and its limit is {used_memory.text(pod.limit)} "
        f"(spec.resources.limits.memory); container {container.key.container} used most of it, {part}: "
        "raise the limit, or let the program use less"
    )
