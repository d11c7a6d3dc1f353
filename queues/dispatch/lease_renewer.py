"""The thread of a worker process that renews its leases.

One rule: a key's lease is renewed exactly while a thread runs the key and does not hang. So the keys of a dead process
come back without help. A process in which every thread hangs ends.
"""

import logging
import threading

from kube.stop import Stop
from queues import errors
from queues.dispatch.intake import Intake
from queues.dispatch.task_runner import TaskRunner
from queues.redis.log_throttle import OutageLog
from queues.work import WorkSink

log = logging.getLogger(__name__)


class LeaseRenewer(threading.Thread):
    """Registers the worker and renews the leases of its keys every few seconds."""

    def __init__(
        self,
        worker: str,
        sink: WorkSink,
        runner: TaskRunner,
        *,
        pause: float,
        stop: Stop,
        outage: OutageLog,
        intake: Intake | None = None,
    ) -> None:
        """`pause` is the time between two renewals, in seconds. `intake` records what the store answers."""
        super().__init__(name="lease-keeper", daemon=True)
        self._worker = worker
        self._sink = sink
        self._runner = runner
        self._pause = pause
        self._stopping = stop
        self._outage = outage
        self._intake = intake or Intake()
        self._ended = threading.Event()
        self._has_failed = False

    def run(self) -> None:
        """Renew until `end` is called."""
        with self._intake.turns.loop("lease-keeper") as turn:
            pause = self.renew()
            turn.allow(pause)
            while not self._ended.wait(pause):
                turn.mark()
                pause = self.renew()
                turn.allow(pause)

    def renew(self) -> float:
        """Register the worker and renew its leases once. Return the seconds until the next renewal."""
        leases = self._runner.leases()
        if self._runner.is_stuck and not self._stopping():
            log.error("every thread of this worker hangs: the worker ends, and a new one takes its place")
            self._stopping.request()
        try:
            self._register()
            self._sink.renew(leases)
        except errors.QueueError as error:
            self._outage.report_failure(error)
            self._intake.fail(str(error))
            self._has_failed = True
            return 1.0
        self._outage.report_recovery()
        self._has_failed = False
        return self._pause

    def _register(self) -> None:
        """Register, and log once that this worker takes no batches, and once that it takes them again."""
        threads, before = 0 if self._stopping() else self._runner.threads, self._intake.refusal
        self._intake.learn(self._sink.register(self._intake.registration(self._worker, threads)))
        refusal = self._intake.refusal
        if refusal and refusal != before:
            log.warning("this worker takes no work, and finishes what it runs: %s", refusal)
        elif before and not refusal:
            log.info("this worker takes work again")

    def end(self) -> None:
        """Stop the thread, and take the worker off the list of workers.

        If the last call of Redis failed, the worker stays on the list. A supervisor that dies ends the worker and Redis
        together, and the end of the worker must not wait for Redis."""
        self._ended.set()
        self.join()
        if not self._has_failed:
            self.renew()
