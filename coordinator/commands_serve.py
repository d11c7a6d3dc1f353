"""`torchq coordinator` and `torchq worker`: the processes that do the work.

One rule: a stop signal drains: what was begun is finished or given back, then the process ends with code 0.
"""

import os
import signal
import sys
import threading

import click

from coordinator import health, processes, worker_process
from coordinator.queue_status import QueueStatusWriter
from coordinator.serve import Coordinator
from coordinator.session import Session, pass_session, start_log
from queues import connection
from queues.redis_store import RedisStore
from queues.redis_work import RedisWork
from queues.store import StoreSettings


@click.command()
@click.option(
    "--health-port", type=click.IntRange(0, 65_535), help="port of /healthz, /readyz and /status on 127.0.0.1"
)
@pass_session
def coordinator(session: Session, health_port: int | None) -> None:
    """Watch jobs, keep the queues, pick whose job goes next. Several may run; one leads."""
    session = session.with_flags(health_port=health_port)
    settings = session.settings
    start_log(settings.log_level)
    processes.end_with_parent()
    redis = connection.connect(settings.redis_url, client_name="torchq-coordinator")
    ports = (settings.port_first, settings.port_last) if settings.master_address == "loopback" else None
    store = RedisStore(redis, StoreSettings(ports=ports))
    desk = Coordinator(session.cluster, store, RedisWork(redis, worker_process.work_settings(settings)), settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: desk.stop.set())
    writer = QueueStatusWriter(session.cluster, desk.watches)
    thread = threading.Thread(target=writer.run, args=(desk.stop, lambda: desk.leadership.leading), name="queue-status")
    with health.serving(desk, settings.health_port):
        thread.start()
        try:
            desk.run()
        finally:
            desk.stop.set()
            thread.join()


@click.command()
@click.option("--processes", "count", type=click.IntRange(1, 256), help="worker processes")
@click.option("--single", is_flag=True, hidden=True, help="be one worker process, without a supervisor")
@pass_session
def worker(session: Session, count: int | None, single: bool) -> None:
    """Reconcile: observe each job, plan, apply."""
    session = session.with_flags(processes=count)
    start_log(session.settings.log_level)
    if single:
        processes.end_with_parent()
        worker_process.run(session.cluster, session.settings)
        return
    # The settings travel by environment, so that no secret is in a process list.
    command = [sys.executable, "-m", "coordinator.cli", "worker", "--single"]
    environment = {**os.environ, **session.environment()}
    names = [f"worker-{index}" for index in range(session.settings.processes)]
    commands = [processes.Command(name=name, arguments=command, environment=environment) for name in names]
    sys.exit(processes.supervise(commands, drain_seconds=session.settings.drain_seconds))
