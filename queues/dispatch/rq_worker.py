"""A worker process, which takes batches of keys from RQ and runs them on its threads.

One rule: RQ pops batches, counts them and shows workers; state that must not be lost lives in leases. So a worker may
be killed at any moment, and a worker that cannot reach Redis waits for it and goes on.
"""

import logging
import math
import os
import secrets
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rq import SimpleWorker, worker_registration
from rq.exceptions import DequeueTimeout, DeserializationError, NoSuchJobError
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended
from rq.timeouts import BaseDeathPenalty
from rq.worker import WorkerStatus

from crds.keys import JobKey
from kube.process.turns import Turn
from kube.stop import Stop
from queues import errors
from queues.dispatch import rq_job
from queues.dispatch.intake import Intake
from queues.dispatch.lease_renewer import LeaseRenewer
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.task_runner import Reconcile, TaskRunner
from queues.inspection import rq_record
from queues.redis import connection
from queues.redis.location import Location
from queues.redis.log_throttle import OutageLog
from queues.work import RunVersions, WorkSettings

log = logging.getLogger(__name__)

WORKER_SECONDS = 30
"""How long RQ shows a worker after its last heartbeat."""
MAINTENANCE_SECONDS = 30
"""How often a worker removes the entries of dead workers from RQ's registries."""
REDIS_VERSION = (6, 2, 0)
"""The oldest version of Redis that can move a batch to a worker without the risk of losing it."""
POP_SECONDS = 1
"""How long one wait for a batch lasts, and so how soon an idle worker notices a request to stop."""
HEARTBEAT_SECONDS = 5.0
"""How often a busy worker sends a heartbeat to RQ."""
_RETRY_SECONDS = (0.1, 2.0)
_ANSWER_SECONDS = 5


class _NoAlarm(BaseDeathPenalty):  # type: ignore[misc]
    """A death penalty that does nothing. RQ's alarm would interrupt torchq's code anywhere; a batch limits its own
    time."""

    def setup_death_penalty(self) -> None:
        """Do nothing."""

    def cancel_death_penalty(self) -> None:
        """Do nothing."""


class BatchWorker(SimpleWorker):  # type: ignore[misc]
    """An RQ worker in this process with another loop than RQ's.

    RQ's loop ends with the first error of Redis, starts a thread that accepts commands from every client of Redis, and
    raises exceptions in signal handlers."""

    death_penalty_class = _NoAlarm
    _suspension_checked_at, _is_paused = -math.inf, False

    def loop(self, runner: TaskRunner, stop: Callable[[], bool], intake: Intake) -> None:
        """Pop and run batches until `stop` returns True. Raises `queues.errors.QueueError` when Redis fails."""
        with connection.translate_errors(self.connection):
            self.register_birth()
            while not stop():
                self._turn(runner, intake)
            self.register_death()  # after an error of Redis, the registration expires instead

    def _turn(self, runner: TaskRunner, intake: Intake) -> None:
        if self.should_run_maintenance_tasks:
            self._maintain()
        if not intake.is_open:
            self._show(WorkerStatus.SUSPENDED)
            intake.wait(POP_SECONDS)
            return
        if self._is_suspended():
            self._show(WorkerStatus.SUSPENDED)
            time.sleep(POP_SECONDS)
            return
        self._show(WorkerStatus.IDLE)
        # A process without a free thread leaves the batch to another process.
        if runner.wait_for_room(POP_SECONDS):
            intake.mark_pop()
            self.run_next(POP_SECONDS)

    def _is_suspended(self) -> bool:
        """Return whether RQ's workers are suspended. Reads Redis once a second at most."""
        now = time.monotonic()
        if now - self._suspension_checked_at >= POP_SECONDS:
            self._suspension_checked_at, self._is_paused = now, bool(is_suspended(self.connection, self))
        return self._is_paused

    def run_next(self, seconds: int | None) -> bool:
        """Wait for one batch and run it; with None, do not wait. Return whether there was a job."""
        [queue] = self.queues
        try:
            result = self.queue_class.lmove(self.connection, queue.key, seconds)
        except DequeueTimeout:
            return False
        if result is None:
            return False
        job = self._fetch(result[1])
        if job is None:
            self.connection.lrem(queue.intermediate_queue_key, 1, result[1])
        else:
            job.redis_server_version = self.get_redis_server_version()
            self.execute_job(job, queue)
        return True

    def _fetch(self, job_id: bytes) -> rq_job.BatchJob | None:
        """Return the job of an id, which may be any bytes; None if there is no job to run."""
        try:
            return self.job_class.fetch(  # type: ignore[no-any-return]
                job_id.decode(errors="replace"), connection=self.connection, serializer=self.serializer
            )
        except NoSuchJobError:
            return None

    def execute_job(self, job: rq_job.BatchJob, queue: Any) -> None:
        """Begin a batch, with one call of Redis for RQ's bookkeeping.

        RQ's own fifteen calls store results, dependents and abandoned jobs. A batch has none of these, because its keys
        live in leases. The runs begin before that call: if this process died before they begin, the keys would wait for
        the end of the longer dispatched lease.

        A job that is not a batch goes through RQ's own method, which records the failure.
        """
        try:
            batch = job.batch()
        except Exception:
            super().execute_job(job, queue)
            return
        job.started_at = datetime.now(UTC)
        try:
            job.run(batch)
        except BaseException:
            job.ended_at = datetime.now(UTC)
            self.handle_exception(job, *sys.exc_info())
            self.handle_job_failure(job, queue, exc_string=traceback.format_exc())
            self.connection.lrem(queue.intermediate_queue_key, 1, job.id)
        else:
            self._close(job, queue)

    def _close(self, job: rq_job.BatchJob, queue: Any) -> None:
        """Delete a batch whose runs have begun, and count it for this worker."""
        with self.connection.pipeline(transaction=False) as pipeline:
            pipeline.delete(job.key)
            pipeline.lrem(queue.intermediate_queue_key, 1, job.id)
            self.increment_successful_job_count(pipeline=pipeline)
            self.increment_total_working_time(datetime.now(UTC) - job.started_at, pipeline)
            last = self.last_heartbeat
            if last is None or (datetime.now(UTC) - last).total_seconds() >= HEARTBEAT_SECONDS:
                self.heartbeat(pipeline=pipeline)
            pipeline.execute()

    def _set_ip_address(self, _connection: Any) -> None:
        """Set the host name as the address. RQ would read a list of all clients of Redis, to which a worker's user has
        no right."""
        self.ip_address = socket.gethostname()

    def get_redis_server_version(self) -> tuple[int, int, int]:
        """Return the lowest version that RQ requires. A worker's user has no right to read the true version."""
        return REDIS_VERSION

    @property
    def connection_timeout(self) -> int:
        """Seconds to wait for an answer of Redis, longer than any wait for a batch."""
        return POP_SECONDS + _ANSWER_SECONDS

    def _show(self, state: WorkerStatus) -> None:
        if self.get_state() != state:
            self.set_state(state)

    def _maintain(self) -> None:
        # A Redis that was emptied does not know this worker any more, and RQ registers a worker only once.
        worker_registration.register(self)
        self.connection.hset(self.key, mapping=self.serialize())
        self.last_cleaned_at = datetime.now(UTC)
        try:
            with connection.translate_errors(self.connection):
                self._drop_invalid_ids()
                self.clean_registries()
        except errors.StoreUnreachable:
            raise
        except Exception as error:
            # Another program wrote data into RQ's lists that RQ cannot read. Batches run all the same.
            log.warning(
                "RQ's registries cannot be cleaned: %s: %s", type(error).__name__, rq_record.shorten(str(error))
            )

    def _drop_invalid_ids(self) -> None:
        """Remove invalid ids from RQ's intermediate queue. RQ's own cleaning stops at the first invalid id."""
        [queue] = self.queues
        for job_id in self.connection.lrange(queue.intermediate_queue_key, 0, -1):
            if not rq_record.is_id(job_id.decode(errors="replace")):
                self.connection.lrem(queue.intermediate_queue_key, 1, job_id)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Extend the time for which RQ shows this worker to `timeout` seconds. RQ adds a minute."""
        super().heartbeat(timeout or self.worker_ttl, pipeline)

    def get_heartbeat_ttl(self, job: Any) -> int:
        """Return the seconds after which a batch counts as abandoned."""
        return int(job.timeout or 0) + WORKER_SECONDS

    def handle_exception(self, job: Any, *exc_info: Any) -> None:
        """Log an invalid job as one line, and an unforeseen error with a traceback. Raise an error of Redis, which ends
        `loop`."""
        try:
            with connection.translate_errors(self.connection):
                raise exc_info[1]
        except rq_job.InvalidBatch as error:
            log.warning("refused: RQ job %s: %s", job.id, error)
        except DeserializationError:
            log.warning("refused: RQ job %s: not the JSON of a job", job.id)
        except errors.QueueError:
            raise
        except BaseException:
            super().handle_exception(job, *exc_info)


def run_worker(
    where: str | Location,
    reconcile: Reconcile,
    *,
    threads: int = 16,
    settings: WorkSettings | None = None,
    drain_seconds: float = 20.0,
    expected: tuple[type[Exception], ...] = (),
    run_versions: Callable[[JobKey], RunVersions] = lambda _: RunVersions(),
    intake: Intake | None = None,
) -> int:
    """Run batches until SIGTERM or SIGINT, then wait for at most `drain_seconds` until the running keys finish.

    Returns how many keys still run after that. Call it in the main thread.

    While Redis is down, the worker waits for it without a limit. `expected` errors of a reconcile are logged as one
    line, others with a traceback. `run_versions` is called once after each run. `intake` shows other threads whether
    this process takes batches. Raises BadAddress for a URL that cannot be used.
    """
    settings, intake = settings or WorkSettings(), intake or Intake()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    stop, outage = Stop(), OutageLog(log)
    client = connection.connect(where, client_name=f"torchq-worker-{os.getpid()}")
    sink = RedisWork(client, settings)
    stop.listen()
    runner = TaskRunner(
        sink,
        reconcile,
        threads,
        outage=outage,
        expected=expected,
        run_versions=run_versions,
        longest=settings.longest_run,
    )
    runner.meter = connection.meter(client)
    intake.unfinished_seconds = runner.unfinished_seconds
    pause = settings.running_lease / 3
    renewer = LeaseRenewer(name, sink, runner, pause=pause, stop=stop, outage=outage, intake=intake)
    renewer.start()
    log.info("worker %s: %d threads, Redis at %s", name, threads, connection.address(client))
    with intake.turns.loop("batches") as turn:
        stopping = partial(_turn_unless_stopped, turn, stop)
        job_class = rq_job.bind(lambda leases: runner.run_batch(leases, stopping, settings.dispatched_lease))
        _serve(Sessions(where, name, job_class), runner, stop, stopping, outage, intake)
    intake.stop()
    return _drain(runner, renewer, drain_seconds)


def _turn_unless_stopped(turn: Turn, stop: Stop) -> bool:
    """Mark a turn of the loop for batches, and return whether the process is to end. The loop asks this whenever it
    comes around, also while a batch waits for a free thread."""
    turn.mark()
    return stop()


class Sessions:
    """A maker of RQ workers: one for each connection to Redis, since RQ needs a new name after each loss of Redis."""

    def __init__(self, where: str | Location, name: str, job_class: type[rq_job.BatchJob]) -> None:
        self._client = connection.connect(where, client_name=f"torchq-{name}")
        self._name = name
        self._job_class = job_class
        self._count = 0

    def open(self) -> BatchWorker:
        """Return a new RQ worker. Raises `queues.errors.QueueError` if Redis cannot be reached."""
        self._count += 1
        with connection.translate_errors(self._client):
            return BatchWorker(
                [rq_job.QUEUE],
                name=f"{self._name}-{self._count}",
                connection=self._client,
                job_class=self._job_class,
                serializer=JSONSerializer,
                worker_ttl=WORKER_SECONDS,
                maintenance_interval=MAINTENANCE_SECONDS,
                log_job_description=False,
            )


def _serve(
    sessions: Sessions,
    runner: TaskRunner,
    stop: Stop,
    stopping: Callable[[], bool],
    outage: OutageLog,
    intake: Intake,
) -> None:
    # RQ logs every batch, and every error of Redis with a traceback; the lines of `outage` are enough.
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    first, cap = _RETRY_SECONDS
    pause = first
    while not stopping():
        started = time.monotonic()
        try:
            sessions.open().loop(runner, stopping, intake)
        except errors.QueueError as error:
            outage.report_failure(error)
        except Exception:
            log.exception("RQ failed; starting over")
        if time.monotonic() - started > 10 * cap:
            pause = first
        stop.pause(pause)
        pause = min(cap, 2 * pause)


def _drain(runner: TaskRunner, renewer: LeaseRenewer, seconds: float) -> int:
    renewer.renew()
    log.info("stopping: waiting for %d keys, at most %.0f s", len(runner.leases()), seconds)
    remaining = runner.wait_for_end(seconds)
    renewer.end()
    if remaining:
        log.warning("stopped with %d keys still running; they are run again when their leases have ended", remaining)
    return remaining
