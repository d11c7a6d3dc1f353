"""The threads of a worker process, which run leased keys and give them back.

One rule: whatever happens to a run, its key comes back, by `finish` or by the end of its lease. The lease of a run that
hangs ends, too.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from crds.keys import JobKey
from kube.object_errors import ObjectErrors
from kube.process.meter import NO_METER, Meter
from queues import errors, metrics
from queues.redis.log_throttle import FailureLog, OutageLog
from queues.tasks import Task
from queues.work import Lease, RunVersions, WorkSink

Reconcile = Callable[[Task, Callable[[], bool]], float | None]
"""The function that runs a task. Its second argument is the fence, which it checks before each action. It returns the
seconds until the next run, or None. An exception means that the run failed; the key backs off."""

log = logging.getLogger(__name__)


class TaskRunner:
    """A fixed number of threads and the tasks that they run. Only one thread may call `run_batch`; any thread may call
    the other methods."""

    def __init__(
        self,
        sink: WorkSink,
        reconcile: Reconcile,
        threads: int,
        *,
        outage: OutageLog,
        expected: tuple[type[Exception], ...] = (),
        run_versions: Callable[[JobKey], RunVersions] = lambda _: RunVersions(),
        longest: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected` errors of a run are logged as one line, without a traceback. `run_versions` is called once after
        each run, for its key. A run that takes longer than `longest` seconds counts as hung."""
        self.threads = threads
        self._sink = sink
        self._reconcile = reconcile
        self._outage = outage
        self._expected: tuple[type[Exception], ...] = (errors.QueueError, *expected)
        self._failures = FailureLog(log)
        self._errors = ObjectErrors()
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._changed = threading.Condition()
        self._run_versions = run_versions
        self._longest = longest
        self._clock = clock
        self.meter: Meter = NO_METER
        """What counts and measures the runs."""
        self._running: dict[Lease, float] = {}
        self._hanging: set[Lease] = set()
        for number in range(threads):
            # Daemon threads, so that a reconcile that hangs cannot keep a stopping process alive.
            threading.Thread(target=self._work, name=f"reconcile-{number}", daemon=True).start()

    def run_batch(self, leases: Sequence[Lease], stopping: Callable[[], bool], patience: float) -> None:
        """Begin runs of leased keys as threads become free, and return when all runs have begun. When the process
        stops, or after `patience` seconds, give back the keys whose runs have not begun."""
        rest, taken = list(leases), time.monotonic()
        deadline = taken + patience
        while rest:
            free = self.wait_for_room(0.5)
            if stopping() or time.monotonic() > deadline:
                self._give_back(rest)
                return
            batch, rest = rest[:free], rest[free:]
            for _ in batch:
                self.meter.observe(metrics.WORK_WAIT_SECONDS, time.monotonic() - taken, metrics.WORK_QUEUE)
            if batch and not self._begin(batch):
                return

    def wait_for_room(self, seconds: float) -> int:
        """Wait until a thread is free or the time is over. Return the number of free threads."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._running) < self.threads, timeout=seconds)
            return self.threads - len(self._running)

    def wait_for_end(self, seconds: float) -> int:
        """Wait until no key runs or the time is over. Return the number of keys that still run."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running, timeout=seconds)
            return len(self._running)

    def leases(self) -> list[Lease]:
        """Return the leases to renew: those of runs that do not hang.

        The key of a run that hangs may go to another worker. If the run continues after all, the fence keeps it from
        any action."""
        now = self._clock()
        with self._changed:
            late = {lease for lease, began in self._running.items() if now - began > self._longest}
            newly_hung, self._hanging = late - self._hanging, late
            current = [lease for lease in self._running if lease not in late]
        for key, _ in newly_hung:
            log.error("%s: the run hangs: it takes over %.0f s, and another worker may run the key", key, self._longest)
        return current

    def unfinished_seconds(self) -> float:
        """Return the sum of the times for which the runs of now have run."""
        now = self._clock()
        with self._changed:
            return sum(now - began for began in self._running.values())

    @property
    def is_stuck(self) -> bool:
        """Whether every thread hung at the last call of `leases`, so that this process does nothing any more."""
        with self._changed:
            return len(self._hanging & self._running.keys()) >= self.threads

    def _begin(self, leases: Sequence[Lease]) -> bool:
        try:
            tasks = self._sink.begin(leases)
        except errors.QueueError as error:
            self._outage.report_failure(error)
            return False
        for task in tasks:
            self.meter.count(metrics.WORK_ADDS, metrics.WORK_QUEUE)
            with self._changed:
                self._running[task.key, task.token] = self._clock()
            self._tasks.put(task)
        return True

    def _give_back(self, leases: Sequence[Lease]) -> None:
        try:
            for key, token in leases:
                self._sink.finish(key, token, requeue_after=0)
        except errors.QueueError as error:
            self._outage.report_failure(error)

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
        began = self._clock()
        requeue_after, failed = self._outcome(task)
        self._measure(self._clock() - began, "error" if failed else "success" if requeue_after is None else "requeue")
        try:
            versions = self._run_versions(task.key)
            self._sink.finish(
                task.key,
                task.token,
                requeue_after=requeue_after,
                failed=failed,
                pods_version=versions.pods_version,
                settled_version=versions.settled_version,
            )
        except errors.QueueError as error:
            # The lease is not renewed from here on, so the key comes back when the lease ends.
            self._outage.report_failure(error)
        except Exception as error:
            self._errors.record(f"TorchJob {task.key}", error)
        else:
            self._errors.clear(f"TorchJob {task.key}")

    def _measure(self, seconds: float, result: str) -> None:
        self.meter.count(metrics.RECONCILES, result)
        self.meter.observe(metrics.RECONCILE_SECONDS, seconds)
        self.meter.observe(metrics.WORK_SECONDS, seconds, metrics.WORK_QUEUE)
        if result == "error":
            self.meter.count(metrics.WORK_RETRIES, metrics.WORK_QUEUE)

    def _outcome(self, task: Task) -> tuple[float | None, bool]:
        try:
            return self._reconcile(task, lambda: self._sink.holds(task.key, task.token)), False
        except self._expected as error:
            self._failures.report(task.key, str(error))
        except Exception:
            log.exception("%s: the run failed; it will be tried again", task.key)
        return None, True
