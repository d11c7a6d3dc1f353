"""A thread that looks at the pods that run, again and again while any pod runs.

One rule: the time between two looks is at least a multiple of the time that a look takes, however many processes there
are.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

IDLE = 20.0
"""The pause after a look, as a multiple of what the look took: looks take at most a twentieth of a core."""
Pod = TypeVar("Pod")


@dataclass(slots=True, kw_only=True)
class PodWatch(ABC, Generic[Pod]):
    """The thread, and the pods that it looks at."""

    _pods: dict[str, Pod] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _stopping: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _put(self, uid: str, pod: Pod | None) -> bool:
        """Set the knowledge about a pod, or None if the watch can skip the pod; the caller has locked `_changed`.

        Return whether the pod is to be looked at anew.
        """
        if pod is None:
            self._pods.pop(uid, None)
        elif self._pods.get(uid) != pod:
            self._pods[uid] = pod
            self._changed.notify()
            return True
        return False

    @abstractmethod
    def _turn(self, pods: Mapping[str, Pod]) -> float:
        """Look once at pods, by uid; return the seconds until the next look."""

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, timeout=pause)
                self._changed.wait_for(lambda: self._stopping or self._pods)
                if self._stopping:
                    return
                pods = dict(self._pods)
            pause = self._turn(pods)
