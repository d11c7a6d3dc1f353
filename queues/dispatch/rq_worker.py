"""A worker process: takes batches of keys from RQ, runs them on its threads.

One rule: RQ pops, counts and shows; what must not be lost lives in leases. So a worker may be killed at any moment,
and one that cannot reach Redis waits for it and goes on.
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
from typing import Any

from rq import SimpleWorker, worker_registration
from rq.exceptions import DequeueTimeout, DeserializationError, NoSuchJobError
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended
from rq.timeouts import BaseDeathPenalty
from rq.worker import WorkerStatus

from crds.keys import JobKey
from kube.stop import Stop
from queues import errors
from queues.dispatch import rq_job
from queues.dispatch.lease_renewer import Keeper
from queues.dispatch.redis_work import RedisWork
from queues.dispatch.task_runner import Reconcile, Runs
from queues.inspection import rq_record
from queues.redis import connection
from queues.redis.log_throttle import Outage
from queues.work import Left, WorkSettings

log = logging.getLogger(__name__)

WORKER_SECONDS = 30
"""How long RQ shows a worker that says nothing any more."""
MAINTENANCE_SECONDS = 30
"""How often RQ's registries are cleared of what dead workers left."""
REDIS_VERSION = (6, 2, 0)
"""The oldest Redis that can hand a batch over without losing it."""
POP_SECONDS = 1
"""How long one wait for a batch lasts: how soon an idle worker notices that it should stop."""
SHOWN_SECONDS = 5.0
"""How often RQ is told that a worker that runs batches is alive."""
_RETRY_SECONDS = (0.1, 2.0)
_ANSWER_SECONDS = 5


class _NoAlarm(BaseDeathPenalty):  # type: ignore[misc]
    """RQ's alarm would break into our code anywhere; a batch bounds its own time."""

    def setup_death_penalty(self) -> None:
        """Nothing to start."""

    def cancel_death_penalty(self) -> None:
        """Nothing to end."""


class BatchWorker(SimpleWorker):  # type: ignore[misc]
    """An RQ worker in this process, with a loop of its own: RQ's ends with the first error of Redis, starts a thread
    that takes commands from anybody, and raises exceptions out of signal handlers."""

    death_penalty_class = _NoAlarm
    _asked, _paused = -math.inf, False

    def loop(self, runs: Runs, stop: Callable[[], bool]) -> None:
        """Pop and run batches until told to stop. Raises `queues.errors.QueueError` when Redis fails."""
        with connection.translated(self.connection):
            self.register_birth()
            while not stop():
                self._turn(runs)
            self.register_death()  # one that Redis has failed is forgotten by itself

    def _turn(self, runs: Runs) -> None:
        if self.should_run_maintenance_tasks:
            self._maintain()
        if self._suspended():
            self._show(WorkerStatus.SUSPENDED)
            time.sleep(POP_SECONDS)
            return
        self._show(WorkerStatus.IDLE)
        # A busy process leaves the batch to another one.
        if runs.wait_for_room(POP_SECONDS):
            self.run_next(POP_SECONDS)

    def _suspended(self) -> bool:
        """Whether somebody has had RQ's workers pause. Asked once a second, however many batches there are."""
        now = time.monotonic()
        if now - self._asked >= POP_SECONDS:
            self._asked, self._paused = now, bool(is_suspended(self.connection, self))
        return self._paused

    def run_next(self, seconds: int | None) -> bool:
        """Run one batch, waiting for it (None: only if there is one now); whether there was a job at all."""
        [queue] = self.queues
        try:
            found = self.queue_class.lmove(self.connection, queue.key, seconds)
        except DequeueTimeout:
            return False
        if found is None:
            return False
        job = self._fetched(found[1])
        if job is None:
            self.connection.lrem(queue.intermediate_queue_key, 1, found[1])
        else:
            job.redis_server_version = self.get_redis_server_version()
            self.execute_job(job, queue)
        return True

    def _fetched(self, job_id: bytes) -> rq_job.BatchJob | None:
        """The job of an id, whatever bytes somebody wrote there; None if there is none to run."""
        try:
            return self.job_class.fetch(  # type: ignore[no-any-return]
                job_id.decode(errors="replace"), connection=self.connection, serializer=self.serializer
            )
        except NoSuchJobError:
            return None

    def execute_job(self, job: rq_job.BatchJob, queue: Any) -> None:
        """Begin on a batch at the price of one call of Redis for RQ's books. RQ's own fifteen keep results, dependents
        and what was abandoned, and a batch has none: its keys live in leases. They come first: until they are begun,
        the death of this process costs them the long lease of a batch that waits.

        What is no batch goes RQ's way, which records the refusal.
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
        """The batch has begun: nothing of it stays but this worker's counts."""
        with self.connection.pipeline(transaction=False) as pipeline:
            pipeline.delete(job.key)
            pipeline.lrem(queue.intermediate_queue_key, 1, job.id)
            self.increment_successful_job_count(pipeline=pipeline)
            self.increment_total_working_time(datetime.now(UTC) - job.started_at, pipeline)
            shown = self.last_heartbeat
            if shown is None or (datetime.now(UTC) - shown).total_seconds() >= SHOWN_SECONDS:
                self.heartbeat(pipeline=pipeline)
            pipeline.execute()

    def _set_ip_address(self, _connection: Any) -> None:
        """RQ asks Redis for a list of all its clients, which is more than a worker's account needs to see."""
        self.ip_address = socket.gethostname()

    def get_redis_server_version(self) -> tuple[int, int, int]:
        """What RQ needs at least; the true one is an admin's to ask for."""
        return REDIS_VERSION

    @property
    def connection_timeout(self) -> int:
        """Seconds to wait for Redis: longer than any wait for a batch."""
        return POP_SECONDS + _ANSWER_SECONDS

    def _show(self, state: WorkerStatus) -> None:
        if self.get_state() != state:
            self.set_state(state)

    def _maintain(self) -> None:
        # A Redis that was emptied has forgotten this worker; RQ itself registers only once.
        worker_registration.register(self)
        self.connection.hset(self.key, mapping=self.serialize())
        self.last_cleaned_at = datetime.now(UTC)
        try:
            with connection.translated(self.connection):
                self._drop_what_is_no_id()
                self.clean_registries()
        except errors.StoreUnreachable:
            raise
        except Exception as error:  # somebody wrote into RQ's lists what RQ cannot read: batches are run all the same
            log.warning("RQ's registries cannot be cleaned: %s: %s", type(error).__name__, rq_record.short(str(error)))

    def _drop_what_is_no_id(self) -> None:
        """RQ's own cleaning ends at the first id that is none."""
        [queue] = self.queues
        for job_id in self.connection.lrange(queue.intermediate_queue_key, 0, -1):
            if not rq_record.is_id(job_id.decode(errors="replace")):
                self.connection.lrem(queue.intermediate_queue_key, 1, job_id)

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Be shown for `timeout` seconds more. RQ adds a minute to it."""
        super().heartbeat(timeout or self.worker_ttl, pipeline)

    def get_heartbeat_ttl(self, job: Any) -> int:
        """Seconds after which a batch counts as abandoned."""
        return int(job.timeout or 0) + WORKER_SECONDS

    def handle_exception(self, job: Any, *exc_info: Any) -> None:
        """A job that is refused is one line, a defect of ours a traceback. Redis going away ends `loop`."""
        try:
            with connection.translated(self.connection):
                raise exc_info[1]
        except rq_job.Refused as refusal:
            log.warning("refused: RQ job %s: %s", job.id, refusal)
        except DeserializationError:
            log.warning("refused: RQ job %s: not the JSON of a job", job.id)
        except errors.QueueError:
            raise
        except BaseException:
            super().handle_exception(job, *exc_info)


def run_worker(
    url: str,
    reconcile: Reconcile,
    *,
    threads: int = 16,
    settings: WorkSettings | None = None,
    drain_seconds: float = 20.0,
    expected: tuple[type[Exception], ...] = (),
    left: Callable[[JobKey], Left] = lambda _: Left(),
) -> int:
    """Be a worker process until SIGTERM or SIGINT; then let what runs finish, for at most `drain_seconds`.

    Returns how many keys run even then.

    Call it in the main thread. A Redis that is down is waited for, however long. `expected` errors of a reconcile are
    logged as one line, others with a traceback. Raises BadAddress for a URL that cannot be used.
    """
    settings = settings or WorkSettings()
    name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
    stop, outage = Stop(), Outage(log)
    client = connection.connect(url, client_name=f"torchq-worker-{os.getpid()}")
    sink = RedisWork(client, settings)
    stop.listen()
    runs = Runs(sink, reconcile, threads, outage=outage, expected=expected, left=left, longest=settings.longest_run)
    keeper = Keeper(name, sink, runs, pause=settings.running_lease / 3, stop=stop, outage=outage)
    keeper.start()
    log.info("worker %s: %d threads, Redis at %s", name, threads, connection.address(client))
    job_class = rq_job.bound(lambda leases: runs.take(leases, stop, settings.dispatched_lease))
    _serve(Sessions(url, name, job_class), runs, stop, outage)
    return _drain(runs, keeper, drain_seconds)


class Sessions:
    """Makes an RQ worker for each time that Redis is reached anew; RQ wants a new name then."""

    def __init__(self, url: str, name: str, job_class: type[rq_job.BatchJob]) -> None:
        self._client = connection.connect(url, client_name=f"torchq-{name}")
        self._name = name
        self._job_class = job_class
        self._count = 0

    def open(self) -> BatchWorker:
        """Raises `queues.errors.QueueError` if Redis cannot be reached."""
        self._count += 1
        with connection.translated(self._client):
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


def _serve(sessions: Sessions, runs: Runs, stop: Stop, outage: Outage) -> None:
    # RQ tells about every batch, and about every error of Redis with a traceback; `outage` says what people need.
    logging.getLogger("rq.worker").setLevel(logging.WARNING)
    first, cap = _RETRY_SECONDS
    pause = first
    while not stop():
        started = time.monotonic()
        try:
            sessions.open().loop(runs, stop)
        except errors.QueueError as error:
            outage.met(error)
        except Exception:
            log.exception("RQ failed; starting over")
        if time.monotonic() - started > 10 * cap:
            pause = first
        stop.pause(pause)
        pause = min(cap, 2 * pause)


def _drain(runs: Runs, keeper: Keeper, seconds: float) -> int:
    keeper.keep()
    log.info("stopping: waiting for %d keys, at most %.0f s", len(runs.leases()), seconds)
    left = runs.wait_for_end(seconds)
    keeper.end()
    if left:
        log.warning("stopped with %d keys still running; they are run again when their leases have ended", left)
    return left
