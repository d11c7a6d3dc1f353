"""`torchq coordinator` and `torchq worker`: the processes that do the work.

One rule: a stop signal drains: what was begun is finished or given back, then the process ends with code 0.
"""

import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import click

from coordinator.cli.session import Session, pass_session, start_log
from coordinator.http import server
from coordinator.leader import gc_tuning
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.queue_status_writer import QueueStatusWriter
from coordinator.local import supervisor
from coordinator.query.queries import StoreReading
from coordinator.rbac import preflight
from coordinator.rbac.permissions import COORDINATOR, WORKER
from coordinator.settings import parse_pool
from coordinator.worker import process
from kube import threads
from kube.stop import Stop
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage import stats
from queues.storage.redis_store import RedisStore
from queues.store import StoreSettings

log = logging.getLogger(__name__)

PAUSE_SECONDS = 0.1
"""How soon a coordinator notices that a thread of its own has ended."""


@click.command()
@click.option(
    "--health-port",
    type=click.IntRange(-1, 65_535),
    help="port of /healthz, /readyz, /status and the read-only API on 127.0.0.1; -1: any free one",
)
@pass_session
def coordinator(session: Session, health_port: int | None) -> None:
    """Watch jobs, keep the queues, pick whose job goes next. Several may run; one leads."""
    session = session.introduced("torchq-coordinator").acting_as(COORDINATOR).with_flags(health_port=health_port)
    settings = session.settings
    start_log(settings.log_level)
    gc_tuning.look_seldom()
    threads.end_process_with_any()
    supervisor.end_with_parent()
    log.info("coordinator of %s (%s)", session.cluster_word, session.target.source)
    redis = connection.connect(settings.redis_url, client_name="torchq-coordinator")
    preflight.check(session.cluster, COORDINATOR, settings)
    kept = StoreSettings(ports=(settings.port_first, settings.port_last), counted=frozenset((settings.cost,)))
    store = RedisStore(redis, kept)
    work = RedisWork(redis, process.work_settings(settings))
    probe = connection.connect(
        settings.redis_url, client_name="torchq-probe", timeout=settings.renew_seconds, retries=0
    )
    desk = Coordinator(
        session.cluster,
        store,
        work,
        settings,
        leases=session.impatient,
        probe=RedisStore(probe),
        rebuilt=gc_tuning.settle,
    )
    with server.serving(desk, settings.health_port, _reading(desk)):
        _serve(desk, _status_writer(session, desk), session.cluster.close)


def _status_writer(session: Session, desk: Coordinator) -> QueueStatusWriter:
    pool = parse_pool(session.settings.pool)
    names = frozenset(pool) if isinstance(pool, dict) else frozenset()
    return QueueStatusWriter(session.cluster, desk.watches, session.settings.cost, names)


def _reading(desk: Coordinator) -> StoreReading:
    """What others ask about the queues is read beside the leader's own way, over a connection of its own."""
    redis = connection.connect(desk.settings.redis_url, client_name="torchq-reader")
    return StoreReading(
        RedisStore(redis), lambda: stats.read(redis), desk.settings.rules, lambda: server.policies(desk)
    )


def _serve(desk: Coordinator, writer: QueueStatusWriter, close: Callable[[], None]) -> None:
    """Run until a stop signal; `close` ends all waiting for the API server. The main thread only waits: a signal's
    handler may interrupt it anywhere, and must not meet a lock of those who work."""
    stop = Stop()
    stop.listen()
    with ThreadPoolExecutor(3, thread_name_prefix="desk") as pool:
        works = [
            pool.submit(desk.run),
            pool.submit(writer.run, desk.stop, lambda: desk.leadership.leading),
            pool.submit(desk.reasons.run, desk.stop, lambda: desk.leadership.leading),
        ]
        try:
            while not (stop() or any(each.done() for each in works)):
                stop.pause(PAUSE_SECONDS)
        finally:
            desk.stop.set()
            close()
    for each in works:
        each.result()  # a defect of ours ends the process with a traceback


@click.command()
@click.option("--processes", "count", type=click.IntRange(1, 256), help="worker processes")
@click.option("--single", is_flag=True, hidden=True, help="be one worker process, without a supervisor")
@pass_session
def worker(session: Session, count: int | None, single: bool) -> None:
    """Reconcile: observe each job, plan, apply."""
    session = session.introduced("torchq-worker").acting_as(WORKER).with_flags(processes=count)
    start_log(session.settings.log_level)
    if single:
        gc_tuning.look_seldom()
        threads.end_process_with_any()
        supervisor.end_with_parent()
        process.run(session.cluster, session.settings)
        return
    log.info("workers of %s (%s)", session.cluster_word, session.target.source)
    # What the workers could never start with is said once, here, and not by each of them for ever.
    connection.connect(session.settings.redis_url, client_name="torchq-worker").close()
    preflight.check(session.cluster, WORKER, session.settings)
    session.cluster.close()
    # The settings travel by environment, so that no secret is in a process list.
    command = [sys.executable, "-m", "coordinator.cli.main", "worker", "--single"]
    environment = {**os.environ, **session.environment()}
    names = [f"worker-{index}" for index in range(session.settings.processes)]
    commands = [supervisor.Command(name=name, arguments=command, environment=environment) for name in names]
    sys.exit(supervisor.supervise(commands, drain_seconds=session.settings.drain_seconds))
