"""Kills containers that use more memory than their limit.

One rule: the reason is on disk before a container is killed, so that no node process reports another reason. The checks
take at most a twentieth of a core, however many processes there are.

Several times a second, the watch adds up the resident memory of the processes that each container had a moment ago.
This sum is cheap, and it is never less than the memory that counts. Only if it is above the limit, the watch computes
the exact figure.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embedded.node.resources import memory
from embedded.node.resources.memory import MemoryUse
from embedded.node.runs.container_runs import RunKey
from embedded.node.runs.processes import ContainerProcesses, Process, kill_marked
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_IDLE = 20.0
"""The pause after a check, as a multiple of the time that the check took."""
_MEMBERS_SECONDS = 1.0
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
class MemoryWatch:
    """A thread that watches the memory of containers. `record` writes to disk why a container is killed."""

    record: Callable[[RunKey, str], None]
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    _pods: dict[str, WatchedPod] = field(default_factory=dict)
    _pids_by_mark: dict[str, set[int]] = field(default_factory=dict)
    """The processes of each container, by its mark."""
    _last: dict[str, MemoryUse] = field(default_factory=dict)
    """The last exact figure of each container, by its mark, and of each pod, by its uid."""
    _near: bool = False
    _members: ContainerProcesses = field(default_factory=ContainerProcesses)
    _members_at: float = -_MEMBERS_SECONDS
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread. On a machine without /proc nothing can be measured, so limits do not apply there."""
        if Path("/proc/self/statm").exists():
            self._thread = threading.Thread(target=self._run, name="memory")
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def watch(self, uid: str, pod: WatchedPod) -> None:
        """Set the containers of a pod that run now; none if the pod is over. Callable from any thread."""
        with self._changed:
            if not pod.has_limit:
                self._pods.pop(uid, None)
            elif self._pods.get(uid) != pod:
                self._pods[uid] = pod
                self._members_at = -_MEMBERS_SECONDS
                self._changed.notify()

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, timeout=pause)
                self._changed.wait_for(lambda: self._stopping or self._pods)
                if self._stopping:
                    return
                pods = dict(self._pods)
            began = time.monotonic()
            self.check(pods, began)
            pause = max(_TICK_SECONDS, _IDLE * (time.monotonic() - began))

    def check(self, pods: Mapping[str, WatchedPod], now: float) -> None:
        """Check all pods once; `now` is in seconds of any clock that does not go back."""
        if now - self._members_at >= (_NEAR_SECONDS if self._near else _MEMBERS_SECONDS):
            self._pids_by_mark, self._members_at = self._find_members(pods.values()), now
            self._last = {name: last for name, last in self._last.items() if name in self._pids_by_mark or name in pods}
        self._near = False
        for uid, pod in pods.items():
            subject = f"the memory of the pod with uid {uid}"
            try:
                self._check_pod(uid, pod, now)
            except Exception as e:
                self.errors.record(subject, e)
            else:
                self.errors.clear(subject)

    def _check_pod(self, uid: str, pod: WatchedPod, now: float) -> None:
        for container in pod.containers:
            if self._exceeds(container.key.mark, (container,), container.limit, now):
                self._pids_by_mark |= self._find_members([pod])
                used = memory.used(self._pids((container,)))
                if used > container.limit:
                    self._kill(container, _container_message(container, used))
                    return
        if self._exceeds(uid, pod.containers, pod.limit, now):
            self._pids_by_mark |= self._find_members([pod])
            shares = [(memory.used(self._pids((container,))), container) for container in pod.containers]
            if sum(share for share, _ in shares) > pod.limit:
                self._kill_largest(pod, shares)

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
        bound = memory.rough(pids)
        self._near = self._near or 2 * bound > limit
        if not memory.is_due(limit, bound, self._last.get(name), now):
            return False
        used = memory.used(pids)
        self._last[name] = MemoryUse(used, bound, now)
        return used > limit

    def _kill_largest(self, pod: WatchedPod, shares: Sequence[tuple[int, WatchedContainer]]) -> None:
        share, largest = max(shares, key=lambda pair: pair[0])
        self._kill(largest, _pod_message(pod, largest, sum(used for used, _ in shares), share))

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
        f"container {container.key.container} used {memory.text(used)} of memory, and its limit is "
        f"{memory.text(container.limit)} (resources.limits.memory): raise the limit, or let the program use less"
    )


def _pod_message(pod: WatchedPod, container: WatchedContainer, used: int, share: int) -> str:
    return (
        f"the pod used {memory.text(used)} of memory, and its limit is {memory.text(pod.limit)} "
        f"(spec.resources.limits.memory); container {container.key.container} used most of it, {memory.text(share)}: "
        "raise the limit, or let the program use less"
    )
