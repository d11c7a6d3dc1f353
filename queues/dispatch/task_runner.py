"""The keys a worker process is busy with: begun as threads are free, run, given back.

One rule: whatever happens to a run, its key comes back, by `finish` or by the end of its lease; the lease of a run
that hangs ends, too.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from crds.keys import JobKey
from kube.object_errors import ObjectErrors
from queues import errors
from queues.redis.log_throttle import Complaints, Outage
from queues.values import Task
from queues.work import Lease, Left, WorkSink

Reconcile = Callable[[Task, Callable[[], bool]], float | None]
"""What is done for a task. Gets the fence to ask before it acts; returns seconds to wait before the next run, or None.
Any exception means that the run failed: it is logged and the key backs off."""

log = logging.getLogger(__name__)


class Runs:
    """A fixed number of threads and what they work on. `take` is for one thread, everything else for any."""

    def __init__(
        self,
        sink: WorkSink,
        reconcile: Reconcile,
        threads: int,
        *,
        outage: Outage,
        expected: tuple[type[Exception], ...] = (),
        left: Callable[[JobKey], Left] = lambda _: Left(),
        longest: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected` errors of a run are logged as one line, without a traceback. `left` tells once after
        each run what it has left behind. A run longer than `longest` seconds
        counts as one that hangs."""
        self.threads = threads
        self._sink = sink
        self._reconcile = reconcile
        self._outage = outage
        self._expected: tuple[type[Exception], ...] = (errors.QueueError, *expected)
        self._complaints = Complaints(log)
        self._errors = ObjectErrors()
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._changed = threading.Condition()
        self._left = left
        self._longest = longest
        self._clock = clock
        self._running: dict[Lease, float] = {}
        self._hanging: set[Lease] = set()
        for number in range(threads):
            # Daemons, so that a reconcile that hangs cannot keep a stopping process alive.
            threading.Thread(target=self._work, name=f"reconcile-{number}", daemon=True).start()

    def take(self, leases: Sequence[Lease], stopping: Callable[[], bool], patience: float) -> None:
        """Begin on leased keys as threads are free; returns when all have started. Those not started when the process
        is told to stop, or after `patience` seconds, are given back."""
        rest, deadline = list(leases), time.monotonic() + patience
        while rest:
            free = self.wait_for_room(0.5)
            if stopping() or time.monotonic() > deadline:
                self._give_back(rest)
                return
            now, rest = rest[:free], rest[free:]
            if now and not self._begin(now):
                return

    def wait_for_room(self, seconds: float) -> int:
        """How many threads are free; waits until one is, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._running) < self.threads, timeout=seconds)
            return self.threads - len(self._running)

    def wait_for_end(self, seconds: float) -> int:
        """How many keys still run; waits until none does, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=seconds)
            return len(self._running)

    def leases(self) -> list[Lease]:
        """The leases to renew: those of runs that do not hang. Somebody else may have the key of one that does, and the
        fence keeps it from making anything should it go on after all."""
        now = self._clock()
        with self._changed:
            late = {lease for lease, began in self._running.items() if now - began > self._longest}
            fresh, self._hanging = late - self._hanging, late
            lively = [lease for lease in self._running if lease not in late]
        for key, _ in fresh:
            log.error("%s: the run takes over %.0f s: it hangs, and another run may have its key", key, self._longest)
        return lively

    @property
    def stuck(self) -> bool:
        """Whether every thread hangs, as last seen by `leases`: this process does nothing any more."""
        with self._changed:
            return len(self._hanging & self._running.keys()) >= self.threads

    def _begin(self, leases: Sequence[Lease]) -> bool:
        try:
            tasks = self._sink.begin(leases)
        except errors.QueueError as error:
            self._outage.met(error)
            return False
        for task in tasks:
            with self._changed:
                self._running[task.key, task.token] = self._clock()
            self._tasks.put(task)
        return True

    def _give_back(self, leases: Sequence[Lease]) -> None:
        try:
            for key, token in leases:
                self._sink.finish(key, token, requeue_after=0)
        except errors.QueueError as error:
            self._outage.met(error)

    def _work(self) -> None:
        while True:
            task = self._tasks.get()
            try:
                self._run(task)
            finally:
                with self._changed:
                    self._running.pop((task.key, task.token), None)
                    self._changed.notify_all()

    def _run(self, task: Task) -> None:
        requeue_after, failed = self._outcome(task)
        try:
            made, settled = self._left(task.key)
            self._sink.finish(
                task.key, task.token, requeue_after=requeue_after, failed=failed, made=made, settled=settled
            )
        except errors.QueueError as error:
            # Nobody renews the lease from here on, so the key comes back by itself.
            self._outage.met(error)
        except Exception as error:
            self._errors.met(f"TorchJob {task.key}", error)
        else:
            self._errors.over(f"TorchJob {task.key}")

    def _outcome(self, task: Task) -> tuple[float | None, bool]:
        try:
            return self._reconcile(task, lambda: self._sink.holds(task.key, task.token)), False
        except self._expected as error:
            self._complaints.about(task.key, str(error))
        except Exception:
            log.exception("%s: the run failed; it will be tried again", task.key)
        return None, True
