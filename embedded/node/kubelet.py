"""Runs the pods that are bound to this node.

One rule: one thread does it all, from what the API server and the runs' folders say; killing it loses nothing, since
containers live under their shims.
"""

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from embedded.log_times import NOTE_SECONDS
from embedded.node.pods.pod_worker import Ground, PodWork
from embedded.node.resources.memory_watch import WatchedPod
from embedded.node.runs import processes
from embedded.node.shutdown.shutdown_record import EndingPod
from embedded.pod import NONSENSE, LocalPod
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
"""How soon the beginning or end of a container is noticed."""
_IDLE_SECONDS = 0.5
"""How long to wait for news while nothing runs."""
_RETRY_SECONDS = 1.0
_MOST_DOUBLINGS = 4
"""Of the pause after an error: a disk that has room again is noticed within 16 s."""


class Kubelet:
    """The thread that runs pods."""

    def __init__(
        self,
        node: str,
        ground: Ground,
        clock: Callable[[], float] = time.time,
        errors: ObjectErrors | None = None,
    ) -> None:
        self._node = node
        self._ground = ground
        self._clock = clock
        self._news: queue.SimpleQueue[tuple[LocalPod | None, LocalPod | None]] = queue.SimpleQueue()
        self._work: dict[str, PodWork] = {}
        self._astir: dict[str, PodWork] = {}
        """Those of which something may change without news: pods that have ended stay long, and many."""
        self._vanished: set[str] = set()
        self._unread: dict[str, LocalPod] = {}
        """Pods whose record on disk could not be read: they are begun as soon as it can."""
        self._read_at = 0.0
        self._note_at = 0.0
        self.left: tuple[EndingPod, ...] | None = None
        """The pods that still end because the node shuts down; None while that is not known."""
        self._hurried = False
        self._unmarked: tuple[int, float] | None = None
        """How many pods the API server does not show to be ended by the shutdown, and since when so many."""
        self._errors = errors or ObjectErrors()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def start(self, pods: Iterable[LocalPod]) -> None:
        """Begin, knowing all pods there are: the folders of others are cleared away, with what runs in them."""
        known = {pod.uid for pod in pods}
        with suppress(FileNotFoundError):
            self._vanished = set(os.listdir(self._ground.layout.root / "pods")) - known
        self._thread.start()

    def changed(self, before: LocalPod | None, after: LocalPod | None) -> None:
        """News of a pod, from any thread."""
        self._news.put((before, after))

    def shut_down(self) -> None:
        """Begin no container any more, and end the pods; `left` says which still end."""
        self._ground.shutdown.request()
        self._news.put((None, None))

    def hurry(self) -> None:
        """Kill what is left of the pods that the shutdown ends."""
        self._ground.shutdown.hurried = True

    def stop(self) -> None:
        """End the thread; what runs of the pods runs on."""
        self._stopping.set()
        self._news.put((None, None))
        self._thread.join()
        self._ground.runs.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._hear()
            now = self._clock()
            noting = now >= self._note_at
            self._note_at = now + NOTE_SECONDS if noting else self._note_at
            self._begin_unread(now)
            self._shut_down(now)
            for uid, work in tuple(self._astir.items()):
                self._sync(work, now)
                if noting:
                    self._note(work, now)
                if work.at_rest:
                    del self._astir[uid]
            self._vanished = {uid for uid in self._vanished if not self._cleared(uid)}
            self._say_what_is_left()

    def _shut_down(self, now: float) -> None:
        """Look at all pods when the node is told to shut down, when containers may be asked to end, and when what is
        left is to be killed."""
        shutdown = self._ground.shutdown
        if shutdown.since is None:
            return
        begins, released, hurried = self._unmarked is None, shutdown.released, shutdown.hurried and not self._hurried
        shutdown.released = released or (not begins and self._is_marked(now))
        self._hurried = shutdown.hurried
        if begins:
            self._unmarked = (len(self._work) + 1, now)
        if begins or hurried or shutdown.released != released:
            self._astir.update(self._work)
            for work in self._work.values():
                work.wake_at = 0.0

    def _is_marked(self, now: float) -> bool:
        """Whether the API server shows the marks of all pods that run, or has shown no further one for too long."""
        count = sum(work.unmarked for work in self._work.values())
        before, since = self._unmarked or (count, now)
        self._unmarked = (count, since if count >= before else now)
        return count == 0 or now - self._unmarked[1] >= self._ground.shutdown.patience()

    def _say_what_is_left(self) -> None:
        if self._ground.shutdown.released:
            self.left = tuple(found for work in self._work.values() if (found := work.ending()) is not None)

    def _hear(self) -> None:
        """Take the news there is; wait a tick for some."""
        patience = _TICK_SECONDS if self._busy() else _IDLE_SECONDS
        with suppress(queue.Empty):
            self._take(*self._news.get(timeout=patience))
            while True:
                self._take(*self._news.get_nowait())

    def _busy(self) -> bool:
        return bool(self._vanished) or any(work.wake_at < float("inf") for work in self._astir.values())

    def _take(self, before: LocalPod | None, after: LocalPod | None) -> None:
        if after is None:
            if before is not None:
                self._forget(before)
        elif after.node == self._node:
            known = self._work.get(after.uid)
            if known is not None:
                known.update(after)
                self._astir[after.uid] = known
                return
            self._begin(after)

    def _forget(self, pod: LocalPod) -> None:
        """The pod is no more."""
        self._errors.over(_subject(pod))
        self._errors.over(f"the log of {_subject(pod)}")
        self._unread.pop(pod.uid, None)
        self._ground.memory.watch(pod.uid, WatchedPod())
        if pod.uid in self._work:
            del self._work[pod.uid]
            self._astir.pop(pod.uid, None)
            self._vanished.add(pod.uid)

    def _begin(self, pod: LocalPod) -> None:
        self._unread.pop(pod.uid, None)
        try:
            self._astir[pod.uid] = self._work[pod.uid] = PodWork(pod, self._ground)
        except NONSENSE as e:  # no API server takes it today
            logger.error("pod %s is not run: its spec cannot be read: %s", pod, e)
        except Exception as e:
            self._errors.met(_subject(pod), e)
            self._unread[pod.uid] = pod
        else:
            self._errors.over(_subject(pod))

    def _begin_unread(self, now: float) -> None:
        if self._unread and now >= self._read_at:
            self._read_at = now + _RETRY_SECONDS
            for pod in tuple(self._unread.values()):
                self._begin(pod)

    def _sync(self, work: PodWork, now: float) -> None:
        """Bring one pod further. What fails there, because the disk is full for example, must not stop the others."""
        try:
            if not work.due(now):
                return
            work.sync(now)
        except Exception as e:
            self._errors.met(_subject(work.pod), e)
            work.wake_at = now + _RETRY_SECONDS * 2.0 ** min(work.failures, _MOST_DOUBLINGS)
            work.failures += 1
            return
        if work.failures:
            work.failures = 0
            self._errors.over(_subject(work.pod))

    def _note(self, work: PodWork, now: float) -> None:
        subject = f"the log of {_subject(work.pod)}"
        try:
            work.note(now)
        except Exception as e:
            self._errors.met(subject, e)
        else:
            self._errors.over(subject)

    def _cleared(self, uid: str) -> bool:
        """As `_clear`; what fails is tried again."""
        try:
            done = self._clear(uid)
        except Exception as e:
            self._errors.met(f"the folder of pod {uid}", e)
            return False
        if done:
            self._errors.over(f"the folder of pod {uid}")
        return done

    def _clear(self, uid: str) -> bool:
        """End what is left of a pod that is no more, and remove its folder; whether that is done."""
        if self._ground.runs.unsettled(uid) and (processes.kill_marked(f"{uid}/") or self._ground.runs.alive(uid)):
            return False
        self._ground.devices.release(uid)
        shutil.rmtree(self._ground.layout.pod(uid), ignore_errors=True)
        return True


def _subject(pod: LocalPod) -> str:
    return f"Pod {pod}"
