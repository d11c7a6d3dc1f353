"""`torchq coordinator` and `torchq worker`: the processes that do the work.

One rule: a stop signal drains. The process finishes or returns the work it has begun, then ends with code 0.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import click

from coordinator import release
from coordinator.access.token_reviews import TokenReviews
from coordinator.cache import own_installation
from coordinator.cli.session import Session, pass_session, start_log
from coordinator.health.completions import Completions
from coordinator.health.hang_watch import HangWatch
from coordinator.http import coordinator_server, life_port, report_port
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.node_places import NodePlaces
from coordinator.leader.queue_statuses import QueueStatuses
from coordinator.leader.trouble_logs import ClockLog, WorkerLog
from coordinator.life.children import Children, SupervisorLife
from coordinator.local import supervisor
from coordinator.metrics import process_page
from coordinator.metrics.process_page import ProcessMetrics
from coordinator.metrics.queue_names import QueueNames
from coordinator.query.queries import StoreQueries
from coordinator.rbac import preflight
from coordinator.rbac.permissions import COORDINATOR, WORKER, Role
from coordinator.reports import tokens
from coordinator.reports.report_store import RedisReports
from coordinator.reports.tokens import ReportKey
from coordinator.settings import Settings, parse_pool
from coordinator.worker import process
from coordinator.worker.worker_life import WorkerLife, WorkerSource
from kube.client import KubernetesCluster
from kube.errors import ClusterError
from kube.process import gc_tuning, threads
from kube.process.turns import Turns
from kube.stop import Stop, drain
from queues import rules
from queues.dispatch.redis_work import RedisWork
from queues.placement.places import Places
from queues.redis import connection, fitness
from queues.storage import stats
from queues.storage.redis_store import RedisStore
from queues.storage.stats import QueueStats
from queues.store import StoreSettings

log = logging.getLogger(__name__)

START_SECONDS = 2.0
"""The longest wait for an answer of Redis at the start of workers, which go on without one."""


class _Loop(Protocol):
    """What works in a thread of its own."""

    def run(self, stop: threading.Event, leading: Callable[[], bool], turns: Turns) -> None:
        """Work while this process leads, until stopped."""


@click.command()
@click.option(
    "--health-port",
    type=click.IntRange(-1, 65_535),
    help="port of /healthz, /readyz, /status and the read-only API on 127.0.0.1; -1: any free one",
)
@pass_session
def coordinator(session: Session, health_port: int | None) -> None:
    """Watch jobs and admit them from the queues. Several coordinators may run; one of them leads."""
    session = session.with_user_agent("torchq-coordinator").with_role(COORDINATOR).with_flags(health_port=health_port)
    figures = process_page.new(session.settings.metrics_queues)
    session = session.with_meter(figures.registry)
    settings = session.settings
    start_log(settings)
    gc_tuning.reduce_collections()
    threads.exit_on_thread_failure()
    supervisor.end_with_parent()
    log.info("coordinator of %s (%s)", session.cluster_name, session.target.source)
    for name, source in session.resolved_settings.retired.items():
        log.warning("the setting %s (%s) has no effect any more: remove it", name, source)
    redis = connection.connect(settings.redis, client_name="torchq-coordinator", pinned=True)
    ports = settings.port_first, settings.port_last
    store_settings = StoreSettings(ports=ports, counted=rules.counted(settings.cost))
    store = RedisStore(redis, store_settings)
    work = RedisWork(redis, process.work_settings(settings))
    probe = connection.connect(settings.redis, client_name="torchq-probe", timeout=settings.renew_seconds, retries=0)
    coordinator = Coordinator(
        session.cluster,
        store,
        work,
        settings,
        leases=session.lease_cluster,
        once=session.status_cluster,
        probe=RedisStore(probe),
        reports=RedisReports(redis),
        meter=figures.registry,
        rebuilt=gc_tuning.freeze_objects,
    )
    queries = _queries(coordinator)
    reports = connection.connect(settings.redis, client_name="torchq-reports")
    watches, lane = coordinator.watches, coordinator.statuses.jobs
    hangs = HangWatch(lane, watches, RedisStore(reports), RedisReports(reports))
    key, reviews = _report_key(settings), TokenReviews(session.review_cluster)
    with (
        life_port.alive(session.settings, coordinator_server.life(coordinator), figures),
        _checked(session, COORDINATOR),
        coordinator_server.serving(coordinator, settings.health_port, queries, reviews, key),
        report_port.serving(coordinator, key, RedisReports(reports)) as port,
    ):
        hangs.is_open = lambda: port != 0
        queues = QueueStatuses(coordinator.statuses.queues, watches, settings.cost, parse_pool(settings.pool))
        completions = Completions(session.cluster, lane, watches)
        loops: list[_Loop] = [coordinator.statuses, queues, coordinator.reasons, hangs, completions]
        loops += [WorkerLog(lambda: stats.read(reports)), ClockLog(session.cluster.server_time.problem)]
        loops += _metrics(coordinator, figures, queries, lambda: stats.read(reports))
        _serve(coordinator, loops, [session.cluster, session.status_cluster, session.review_cluster])


@contextmanager
def _checked(session: Session, role: Role) -> Iterator[None]:
    """Check the permissions of the account once probes are answered: an API server that hangs answers late."""
    preflight.check(session.cluster, role, session.settings)
    yield


def _report_key(settings: Settings) -> ReportKey | None:
    """Return the key of the tokens of reports; None if there is none. Raises SettingsError."""
    key = tokens.read(settings.report_key_file)
    if key is None and settings.report_key_file:
        log.warning("there is no file %s (report_key_file): pods do not report", settings.report_key_file)
    return key


def _metrics(
    coordinator: Coordinator, figures: ProcessMetrics, queries: StoreQueries, read: Callable[[], QueueStats]
) -> list[_Loop]:
    """Let the coordinator's page show what its parts know. Return what reads the queues for it."""
    figures.registry.add_source(lambda: coordinator_server.samples(coordinator))
    if not coordinator.settings.metrics_port:
        return []
    reader = coordinator_server.queue_gauge_reader(
        coordinator, queries, read, QueueNames(coordinator.settings.metrics_queues)
    )
    figures.registry.add_source(reader.samples)
    return [reader]


def _queries(coordinator: Coordinator) -> StoreQueries:
    """Return the queries for the queue API. They use a connection to Redis of their own, apart from the leader's."""
    redis = connection.connect(coordinator.settings.redis, client_name="torchq-reader")

    def numbers() -> QueueStats:
        """Return the numbers of the queues. The coordinator's attempts to write may know more of the server."""
        found = stats.read(redis, coordinator.installation)
        return replace(found, problem=found.problem or coordinator.redis.unfit)

    store = RedisStore(redis)
    own = NodePlaces(coordinator.watches, store.reservations, time.monotonic, coordinator.node_places.counts)

    def places() -> Places | None:
        """Return the places of jobs on nodes: those of the leader, else those that this process sees itself."""
        return coordinator.node_places.copy() or own.look()

    return StoreQueries(
        store,
        numbers,
        coordinator.settings.rules,
        lambda: coordinator_server.stop_policies(coordinator),
        idle_usage=lambda: coordinator_server.idle_usage(coordinator),
        is_deleted=lambda queue: coordinator_server.is_deleted(coordinator, queue),
        report_reader=RedisReports(redis),
        pods=lambda key: {pod.name for pod in coordinator.watches.job_pods(key)},
        check_owner=lambda: fitness.check_owner(redis, coordinator.installation),
        node_places=places,
    )


def _serve(coordinator: Coordinator, loops: Sequence[_Loop], clients: Sequence[KubernetesCluster]) -> None:
    """Run until a stop signal, and then until all threads have ended. Closing the `clients` ends all waits for the API
    server. The main thread only waits: a signal handler may interrupt it anywhere, and must not block on a lock of a
    working thread."""
    stop = Stop()
    stop.listen()
    with ThreadPoolExecutor(1 + len(loops), thread_name_prefix="desk") as pool:
        ending, turns = coordinator.stop, coordinator.turns
        futures = [pool.submit(coordinator.run)]
        futures += [pool.submit(each.run, ending, lambda: coordinator.leadership.leading, turns) for each in loops]
        for future in futures:
            future.add_done_callback(lambda _: stop.request())
        stop.wait()
        coordinator.stop.set()
        for client in clients:
            client.close()
        drain(futures, coordinator.settings.drain_seconds)
    for future in futures:
        future.result()  # a defect in torchq ends the process with a traceback


@click.command()
@click.option("--processes", "count", type=click.IntRange(1, 256), help="worker processes")
@click.option("--single", is_flag=True, hidden=True, help="run one worker process without a supervisor")
@pass_session
def worker(session: Session, count: int | None, single: bool) -> None:
    """Run workers that reconcile jobs. A worker observes a job, plans, and applies the plan."""
    session = session.with_user_agent("torchq-worker").with_role(WORKER).with_flags(processes=count)
    start_log(session.settings)
    if single:
        _run_worker(session)
        return
    log.info("workers of %s (%s)", session.cluster_name, session.target.source)
    # An error that would stop every worker is reported once here, instead of repeatedly by each worker.
    redis = connection.connect(session.settings.redis, client_name="torchq-worker", timeout=START_SECONDS, retries=0)
    figures, turns = process_page.new(session.settings.metrics_queues), Turns()
    children = Children(listener=figures.hear)
    figures.show(children)
    probes = SupervisorLife(children, turns)
    with life_port.serving(session.settings, probes, figures.page), _checked(session, WORKER):
        _warn_of_redis(session, redis)
        session.cluster.close()
        seconds = session.settings.drain_seconds
        code = supervisor.supervise(_workers(session), drain_seconds=seconds, children=children, turns=turns)
    sys.exit(code)


def _workers(session: Session) -> list[supervisor.Command]:
    """Return the commands of the worker processes. The supervisor has the one port for probes of all of them."""
    # A process list shows arguments, so secrets travel in the environment.
    command = [*release.MODULE, "coordinator.cli.main", "worker", "--single"]
    environment = {**os.environ, **session.environment(), "TORCHQ_METRICS_PORT": "0"}
    names = [f"worker-{index}" for index in range(session.settings.processes)]
    return [supervisor.Command(name=name, arguments=command, environment=environment, tells=True) for name in names]


def _run_worker(session: Session) -> None:
    """Run one worker process, which tells its supervisor of itself."""
    gc_tuning.reduce_collections()
    threads.exit_on_thread_failure()
    supervisor.end_with_parent()
    figures = process_page.new(session.settings.metrics_queues)
    session, life = session.with_meter(figures.registry), WorkerLife()
    source = WorkerSource(life, session.settings.implicit_queues)
    figures.registry.add_source(source.samples)
    figures.registry.queues.exists = source.exists
    with life_port.alive(session.settings, life, figures, source.names):
        process.run(session.cluster, session.settings, life, figures.registry)


def _warn_of_redis(session: Session, redis: connection.Connection) -> None:
    """Log once why no coordinator can lead on this Redis. The workers wait for its end."""
    try:
        own = own_installation.read(session.cluster, session.settings.lease_namespace)
    except ClusterError as error:
        log.debug("it is not known whose queues Redis holds: %s", error)
        own = None
    if problem := fitness.problem(redis, own):
        log.warning("%s", problem)
    redis.close()
