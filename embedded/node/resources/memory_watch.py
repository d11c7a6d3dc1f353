"""Ends containers that use more memory than their limit.

One rule: what counts is on disk before anything is ended, so that no node takes the end for another one's doing; and
looking takes no more than a twentieth of a core, however many processes there are.

It looks at the processes that each container had a moment ago, many times a second, and adds up what is resident, which
is cheap and never too little. Only where that is above the limit it takes the exact figure.
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
"""How many times as long as a look took it is waited before the next."""
_MEMBERS_SECONDS = 1.0
"""How old the knowledge may be which processes a container has; it is renewed before anything is ended."""
_NEAR_SECONDS = 0.2
"""The same where a container has come near its limit."""


@dataclass(frozen=True, slots=True)
class WatchedContainer:
    """A container that runs."""

    key: RunKey
    process: Process
    limit: int = 0
    """In bytes; 0 for none of its own."""


@dataclass(frozen=True, slots=True)
class WatchedPod:
    """The containers of a pod that run."""

    containers: tuple[WatchedContainer, ...] = ()
    limit: int = 0
    """Of all containers together, in bytes; 0 for none."""

    @property
    def limited(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.containers) and (self.limit > 0 or any(each.limit for each in self.containers))


@dataclass(slots=True)
class MemoryWatch:
    """A thread that looks at the containers it was told of. `record` puts on disk why a container is ended."""

    record: Callable[[RunKey, str], None]
    errors: ObjectErrors = field(default_factory=ObjectErrors)
    _pods: dict[str, WatchedPod] = field(default_factory=dict)
    _found: dict[str, set[int]] = field(default_factory=dict)
    """The processes of each container, by its mark."""
    _last: dict[str, MemoryUse] = field(default_factory=dict)
    """What each container, by its mark, and each pod, by its uid, used when it was looked at closely."""
    _near: bool = False
    _members: ContainerProcesses = field(default_factory=ContainerProcesses)
    _members_at: float = -_MEMBERS_SECONDS
    _news: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to look. On a machine without /proc there is nothing to be seen: limits do not hold there."""
        if Path("/proc/self/statm").exists():
            self._thread = threading.Thread(target=self._run, name="memory")
            self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()

    def watch(self, uid: str, pod: WatchedPod) -> None:
        """What runs of a pod now; nothing, once it is over. From any thread."""
        with self._news:
            if not pod.limited:
                self._pods.pop(uid, None)
            elif self._pods.get(uid) != pod:
                self._pods[uid] = pod
                self._members_at = -_MEMBERS_SECONDS
                self._news.notify()

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._news:
                self._news.wait_for(lambda: self._stopping, timeout=pause)
                self._news.wait_for(lambda: self._stopping or self._pods)
                if self._stopping:
                    return
                pods = dict(self._pods)
            began = time.monotonic()
            self.look(pods, began)
            pause = max(_TICK_SECONDS, _IDLE * (time.monotonic() - began))

    def look(self, pods: Mapping[str, WatchedPod], now: float) -> None:
        """Look at all pods once; `now` is in seconds of any clock that does not go back."""
        if now - self._members_at >= (_NEAR_SECONDS if self._near else _MEMBERS_SECONDS):
            self._found, self._members_at = self._find_members(pods.values()), now
            self._last = {name: last for name, last in self._last.items() if name in self._found or name in pods}
        self._near = False
        for uid, pod in pods.items():
            subject = f"the memory of the pod with uid {uid}"
            try:
                self._look_at(uid, pod, now)
            except Exception as e:
                self.errors.met(subject, e)
            else:
                self.errors.over(subject)

    def _look_at(self, uid: str, pod: WatchedPod, now: float) -> None:
        for each in pod.containers:
            if self._reached(each.key.mark, (each,), each.limit, now):
                self._found |= self._find_members([pod])
                used = memory.used(self._pids((each,)))
                if used > each.limit:
                    self._end(each, _container_message(each, used))
                    return
        if self._reached(uid, pod.containers, pod.limit, now):
            self._found |= self._find_members([pod])
            shares = [(memory.used(self._pids((each,))), each) for each in pod.containers]
            if sum(share for share, _ in shares) > pod.limit:
                self._end_largest(pod, shares)

    def _find_members(self, pods: Iterable[WatchedPod]) -> dict[str, set[int]]:
        return self._members.of({each.key.mark: each.process for pod in pods for each in pod.containers})

    def _pids(self, containers: Iterable[WatchedContainer]) -> set[int]:
        return {pid for each in containers for pid in self._found.get(each.key.mark, ())}

    def _reached(self, name: str, containers: Iterable[WatchedContainer], limit: int, now: float) -> bool:
        """Whether these containers use more than a limit, as far as their processes are known."""
        if not limit:
            return False
        pids = self._pids(containers)
        rough = memory.rough(pids)
        self._near = self._near or 2 * rough > limit
        if not memory.is_due(limit, rough, self._last.get(name), now):
            return False
        used = memory.used(pids)
        self._last[name] = MemoryUse(used, rough, now)
        return used > limit

    def _end_largest(self, pod: WatchedPod, shares: Sequence[tuple[int, WatchedContainer]]) -> None:
        share, largest = max(shares, key=lambda pair: pair[0])
        self._end(largest, _pod_message(pod, largest, sum(each for each, _ in shares), share))

    def _end(self, container: WatchedContainer, message: str) -> None:
        """End all of a container. If it could not be put on record it is ended all the same: the machine needs it."""
        logger.warning("container %s of the pod with uid %s is ended: %s", container.key.container, container.key.uid,
                       message)  # fmt: skip
        try:
            self.record(container.key, message)
        finally:
            container.process.kill()
            kill_marked(container.key.mark, container.process)


def _container_message(container: WatchedContainer, used: int) -> str:
    return (
        f"container {container.key.container} used {memory.shown(used)} of memory, and its limit is "
        f"{memory.shown(container.limit)} (resources.limits.memory): raise the limit, or let the program use less"
    )


def _pod_message(pod: WatchedPod, container: WatchedContainer, used: int, share: int) -> str:
    return (
        f"the pod used {memory.shown(used)} of memory, and its limit is {memory.shown(pod.limit)} "
        f"(spec.resources.limits.memory); container {container.key.container} used most of it, {memory.shown(share)}: "
        "raise the limit, or let the program use less"
    )
