"""Runs the pods that are bound to this node.

One rule: one thread runs all pods, by what the API server and the folders of the runs show. Killing the thread's
process loses nothing, since containers live under their shims.
"""

import logging
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from embedded.log_times import NOTE_SECONDS
from embedded.node.pods.node_context import NodeContext
from embedded.node.pods.pod_worker import PodWorker
from embedded.node.resources.memory_watch import WatchedPod
from embedded.node.shutdown.shutdown import NodeShutdown
from embedded.node.shutdown.shutdown_record import EndingPod
from embedded.pod import INVALID_SPEC_ERRORS, LocalPod
from kube.object_errors import ObjectErrors

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.05
"""The longest time until the beginning or end of a container is noticed."""
_IDLE_SECONDS = 0.5
"""The longest wait for a change while nothing runs."""
_RETRY_SECONDS = 1.0
_MOST_DOUBLINGS = 4
"""The limit of doublings of the pause after an error: a disk that has room again is noticed within 16 s."""


class ShutdownProgress:
    """The progress of the node's shutdown."""

    def __init__(self, shutdown: NodeShutdown) -> None:
        self._shutdown = shutdown
        self._hurried = False
        self._unmarked: tuple[int, float] | None = None
        """The number of pods that the API server does not show as marked, and the time of its last change."""

    def step(self, workers: Collection[PodWorker], now: float) -> bool:
        """Update the shutdown's state; return whether every pod has to be synced now.

        The pods are synced when the shutdown begins, when containers may be sent SIGTERM, and when the remaining
        containers are to be killed.
        """
        shutdown = self._shutdown
        if shutdown.since is None:
            return False
        begins, released, hurried = self._unmarked is None, shutdown.released, shutdown.hurried and not self._hurried
        shutdown.released = released or (not begins and self._are_marked(workers, now))
        self._hurried = shutdown.hurried
        if begins:
            self._unmarked = (len(workers) + 1, now)
        return begins or hurried or shutdown.released != released

    def _are_marked(self, workers: Collection[PodWorker], now: float) -> bool:
        """Return whether the API server shows the marks of all pods that run, or has shown none for too long."""
        count = sum(worker.lacks_mark for worker in workers)
        before, since = self._unmarked or (count, now)
        self._unmarked = (count, since if count >= before else now)
        return count == 0 or now - self._unmarked[1] >= self._shutdown.patience()


class Kubelet:
    """The thread that runs pods."""

    def __init__(
        self,
        node: str,
        context: NodeContext,
        clock: Callable[[], float] = time.time,
        errors: ObjectErrors | None = None,
    ) -> None:
        self._node = node
        self._context = context
        self._clock = clock
        self._changes: queue.SimpleQueue[tuple[LocalPod | None, LocalPod | None]] = queue.SimpleQueue()
        self._workers: dict[str, PodWorker] = {}
        self._active: dict[str, PodWorker] = {}
        """The workers whose pods may change without the API server. Pods that have ended are many and stay long."""
        self._deleted: set[str] = set()
        """The uids of pods that no longer exist and whose folders are still there."""
        self._unread: dict[str, LocalPod] = {}
        """The pods whose files on disk cannot be read yet. Their workers are made as soon as they can."""
        self._read_at = 0.0
        self._note_at = 0.0
        self.ending_pods: tuple[EndingPod, ...] | None = None
        """The pods that still end because the node shuts down; None while that is not known."""
        self._shutdown = ShutdownProgress(context.shutdown)
        self._errors = errors or ObjectErrors()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")

    def start(self, pods: Iterable[LocalPod]) -> None:
        """Start the thread. `pods` are all pods of the API server.

        The thread kills the processes of all other pods and removes their folders.
        """
        uids = {pod.uid for pod in pods}
        with suppress(FileNotFoundError):
            self._deleted = set(os.listdir(self._context.layout.root / "pods")) - uids
        self._thread.start()

    def on_change(self, before: LocalPod | None, after: LocalPod | None) -> None:
        """Take a change of a pod; callable from any thread."""
        self._changes.put((before, after))

    def shut_down(self) -> None:
        """Start no more containers, and end the pods; `ending_pods` lists the pods that still end."""
        self._context.shutdown.request()
        self._changes.put((None, None))

    def hurry(self) -> None:
        """Kill the containers of the pods that the shutdown ends."""
        self._context.shutdown.hurried = True

    def stop(self) -> None:
        """End the thread; the containers continue."""
        self._stopping.set()
        self._changes.put((None, None))
        self._thread.join()
        self._context.runs.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._take_changes()
            now = self._clock()
            noting = now >= self._note_at
            self._note_at = now + NOTE_SECONDS if noting else self._note_at
            self._start_unread(now)
            self._shut_down(now)
            for uid, worker in tuple(self._active.items()):
                self._sync(worker, now)
                if noting:
                    self._note_log_lengths(worker, now)
                if worker.is_idle:
                    del self._active[uid]
            self._deleted = {uid for uid in self._deleted if not self._try_clear(uid)}
            self._list_ending_pods()

    def _shut_down(self, now: float) -> None:
        if self._shutdown.step(self._workers.values(), now):
            self._active.update(self._workers)
            for worker in self._workers.values():
                worker.wake_at = 0.0

    def _list_ending_pods(self) -> None:
        if self._context.shutdown.released:
            pods = (worker.ending_pod() for worker in self._workers.values())
            self.ending_pods = tuple(pod for pod in pods if pod is not None)

    def _take_changes(self) -> None:
        """Take all waiting changes; wait a tick for the first change."""
        is_busy = self._deleted or any(worker.wake_at < float("inf") for worker in self._active.values())
        patience = _TICK_SECONDS if is_busy else _IDLE_SECONDS
        with suppress(queue.Empty):
            self._take(*self._changes.get(timeout=patience))
            while True:
                self._take(*self._changes.get_nowait())

    def _take(self, before: LocalPod | None, after: LocalPod | None) -> None:
        if after is None:
            if before is not None:
                self._forget(before)
        elif after.node == self._node:
            worker = self._workers.get(after.uid)
            if worker is None:
                self._start_worker(after)
            else:
                worker.update(after)
                self._active[after.uid] = worker

    def _forget(self, pod: LocalPod) -> None:
        """Drop the worker of a pod that no longer exists."""
        self._errors.clear(_subject(pod))
        self._errors.clear(f"the log of {_subject(pod)}")
        self._unread.pop(pod.uid, None)
        self._context.memory.watch(pod.uid, WatchedPod())
        self._context.ports.forget(pod.uid)
        if pod.uid in self._workers:
            del self._workers[pod.uid]
            self._active.pop(pod.uid, None)
            self._deleted.add(pod.uid)

    def _start_worker(self, pod: LocalPod) -> None:
        self._unread.pop(pod.uid, None)
        try:
            self._active[pod.uid] = self._workers[pod.uid] = PodWorker(pod, self._context)
        except INVALID_SPEC_ERRORS as e:
            # The API server rejects such a pod today, but an older version of the API server may have stored such a
            # pod.
            logger.error("pod %s is not run: its spec cannot be read: %s", pod, e)
        except Exception as e:
            self._errors.record(_subject(pod), e)
            self._unread[pod.uid] = pod
        else:
            self._errors.clear(_subject(pod))

    def _start_unread(self, now: float) -> None:
        if self._unread and now >= self._read_at:
            self._read_at = now + _RETRY_SECONDS
            for pod in tuple(self._unread.values()):
                self._start_worker(pod)

    def _sync(self, worker: PodWorker, now: float) -> None:
        """Sync one pod. An error, for example because the disk is full, must not stop the other pods."""
        try:
            if not worker.is_due(now):
                return
            worker.sync(now)
        except Exception as e:
            self._errors.record(_subject(worker.pod), e)
            worker.wake_at = now + _RETRY_SECONDS * 2.0 ** min(worker.failures, _MOST_DOUBLINGS)
            worker.failures += 1
            return
        if worker.failures:
            worker.failures = 0
            self._errors.clear(_subject(worker.pod))

    def _note_log_lengths(self, worker: PodWorker, now: float) -> None:
        with self._errors.skipping(f"the log of {_subject(worker.pod)}"):
            worker.note_log_lengths(now)

    def _try_clear(self, uid: str) -> bool:
        """Kill the processes of a pod that no longer exists and remove its folder; return whether that is done.

        After an error the result is False, so that the removal is tried again.
        """
        with self._errors.skipping(f"the folder of pod {uid}"):
            if self._context.runs.kill_all(uid):
                return False
            self._context.devices.release(uid)
            self._context.kept_logs.keep(uid)
            shutil.rmtree(self._context.layout.pod(uid), ignore_errors=True)
            return True
        return False


def _subject(pod: LocalPod) -> str:
    return f"Pod {pod}"
