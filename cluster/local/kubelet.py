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

from cluster.local import processes
from cluster.local.localpod import NONSENSE, LocalPod
from cluster.local.log_times import NOTE_SECONDS
from cluster.local.podwork import Ground, PodWork

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
"""How soon the beginning or end of a container is noticed."""
_IDLE_SECONDS = 0.5
"""How long to wait for news while nothing runs."""
_RETRY_SECONDS = 1.0
_LAST_GRACE_SECONDS = 5.0
"""How long pods have to end when the node is told to stop them."""


class Kubelet:
    """The thread that runs pods."""

    def __init__(self, node: str, ground: Ground, clock: Callable[[], float] = time.time) -> None:
        self._node = node
        self._ground = ground
        self._clock = clock
        self._news: queue.SimpleQueue[tuple[LocalPod | None, LocalPod | None]] = queue.SimpleQueue()
        self._work: dict[str, PodWork] = {}
        self._astir: dict[str, PodWork] = {}
        """Those of which something may change without news: pods that have ended stay long, and many."""
        self._vanished: set[str] = set()
        self._note_at = 0.0
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

    def stop(self, *, stop_pods: bool = False) -> None:
        """End the thread; the pods run on, unless they are to stop too."""
        self._stopping.set()
        self._news.put((None, None))
        self._thread.join()
        if stop_pods:
            self._stop_pods()
        self._ground.runs.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._hear()
            now = self._clock()
            noting = now >= self._note_at
            self._note_at = now + NOTE_SECONDS if noting else self._note_at
            for uid, work in tuple(self._astir.items()):
                if work.due(now):
                    self._sync(work, now)
                if noting:
                    work.note(now)
                if work.at_rest:
                    del self._astir[uid]
            self._vanished = {uid for uid in self._vanished if not self._clear(uid)}

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
            if before is not None and before.uid in self._work:
                del self._work[before.uid]
                self._astir.pop(before.uid, None)
                self._vanished.add(before.uid)
        elif after.node == self._node:
            known = self._work.get(after.uid)
            if known is not None:
                known.update(after)
                self._astir[after.uid] = known
                return
            try:
                self._astir[after.uid] = self._work[after.uid] = PodWork(after, self._ground)
            except NONSENSE as e:  # no API server takes it today
                logger.error("pod %s is not run: its spec cannot be read: %s", after, e)

    def _sync(self, work: PodWork, now: float) -> None:
        try:
            work.sync(now)
            work.failures = 0
        except Exception:  # one pod must not stop the others
            logger.exception("pod %s is looked at again after an unforeseen error", work.pod)
            work.wake_at = now + _RETRY_SECONDS * 2.0 ** min(work.failures, 6)
            work.failures += 1

    def _clear(self, uid: str) -> bool:
        """End what is left of a pod that is no more, and remove its folder; whether that is done."""
        if self._ground.runs.unsettled(uid) and (processes.kill_marked(f"{uid}/") or self._ground.runs.alive(uid)):
            return False
        self._ground.devices.release(uid)
        shutil.rmtree(self._ground.layout.pod(uid), ignore_errors=True)
        return True

    def _stop_pods(self) -> None:
        """SIGTERM for all, SIGKILL for who does not care."""
        marks = [f"{uid}/" for uid in self._work]
        processes.terminate_marked(marks)
        deadline = time.monotonic() + _LAST_GRACE_SECONDS
        while any(self._ground.runs.alive(uid) for uid in self._work):
            if time.monotonic() > deadline:
                for mark in marks:
                    processes.kill_marked(mark)
            time.sleep(_TICK_SECONDS)
