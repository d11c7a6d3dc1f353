"""`torchq recorder`: the process that keeps the history of jobs.

One rule: this module only connects the parts. It imports no part of a coordinator or a worker, whose modules would take
most of the memory of the process.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click

from coordinator.access.token_reviews import TokenReviews
from coordinator.cache import own_installation
from coordinator.cli import api_client
from coordinator.cli.session import Session, pass_session, start_log
from coordinator.http import history_api, life_port
from coordinator.leader.election import process_identity
from coordinator.life.health_checks import Check
from coordinator.life.process_checks import ProcessLife, cache_check
from coordinator.local import supervisor
from coordinator.metrics import process_page, recorder_metrics
from coordinator.rbac import preflight
from coordinator.rbac.permissions import RECORDER
from coordinator.recorder.database import DatabaseAccess
from coordinator.recorder.pending_rows import PendingRows
from coordinator.recorder.recorder import PoolReader, Recorder
from coordinator.recorder.recorder_lease import RecorderLease
from coordinator.recorder.sights import Sights
from coordinator.recorder.sql_store import SqlStores, named_url
from crds.resources import quantities
from crds.resources.amounts import Amounts
from kube.process import threads
from kube.process.turns import Turns
from kube.stop import Stop, drain

log = logging.getLogger(__name__)
_Loop = Callable[[threading.Event, Turns], None]


@click.command()
@pass_session
def recorder(session: Session) -> None:
    """Keep the history of jobs and of usage.

    The setting history_url names the database. Jobs do not need this process: it may be down for a while, or run twice.
    """
    session = session.with_user_agent("torchq-recorder").with_role(RECORDER)
    figures = process_page.new(session.settings.metrics_queues)
    session = session.with_meter(figures.registry)
    settings = session.settings
    start_log(settings)
    threads.exit_on_thread_failure()
    supervisor.end_with_parent()
    named_url(settings)
    log.info("recorder of %s (%s)", session.cluster_name, session.target.source)
    cluster, turns = session.cluster, Turns()
    stores = SqlStores(settings, own_installation.read(cluster, settings.lease_namespace).cluster)

    def now() -> float:
        """Return the time of the API server."""
        return time.time() - cluster.server_time.ahead()

    pending, database = PendingRows(), DatabaseAccess(stores.open)
    sights = Sights(cluster, pending, now)
    reviews = TokenReviews(session.review_cluster)
    with life_port.alive(settings, ProcessLife(turns, partial(_lacks, sights, database)), figures):
        preflight.check(cluster, RECORDER, settings)
        with history_api.serving(stores.shared, reviews, settings, now) as notes:
            lease = _lease(session, notes)
            found = Recorder(
                sights, pending, database, lease, now=now, days=settings.history_days, meter=figures.registry
            )
            figures.registry.add_source(
                lambda: recorder_metrics.samples(behind=found.behind, is_up=not database.problem)
            )
            figures.registry.add_source(lambda: process_page.restarts(sights.informers))
            pool = PoolReader(partial(_pool, session), found.note_pool)
            sights.start(turns)
            _run(session, turns, [found.run, pool.run])
            stores.close()


def _lacks(sights: Sights, database: DatabaseAccess) -> list[Check]:
    """Return whether the caches are read. A database that is away is a note."""
    return [*map(cache_check, sights.informers), Check("database", note=database.problem)]


def _lease(session: Session, notes: Mapping[str, str]) -> RecorderLease:
    return RecorderLease(session.lease_cluster, process_identity(), session.settings.lease_namespace, notes)


def _pool(session: Session) -> Amounts:
    """Return what the pool has, as a coordinator says; nothing if it has no limits."""
    if session.is_embedded:
        fetch = api_client.coordinator(session)
    else:
        service = api_client.announced_service(session) or session.settings.service_name
        fetch = api_client.via_api_server(session.cluster, service)
    capacity = fetch("/v1/next?n=1")["pool"]["capacity"] or {}
    return {name: quantities.parse(name, quantity) for name, quantity in capacity.items()}


def _run(session: Session, turns: Turns, loops: Sequence[_Loop]) -> None:
    """Run until a stop signal, or until a loop has ended. The first loop ends before the connections are closed."""
    stop, ending = Stop(), threading.Event()
    stop.listen()
    with ThreadPoolExecutor(len(loops), thread_name_prefix="recorder") as pool:
        futures = [pool.submit(loop, ending, turns) for loop in loops]
        for future in futures:
            future.add_done_callback(lambda _: stop.request())
        stop.wait()
        ending.set()
        drain(futures[:1], session.settings.drain_seconds)
        for cluster in (session.cluster, session.lease_cluster, session.review_cluster):
            cluster.close()
        drain(futures, session.settings.drain_seconds)
    for future in futures:
        future.result()  # a database that is not this cluster's ends the process with its message
