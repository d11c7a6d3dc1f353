"""`torchq dashboard serve`: the process that shows the dashboard of a cluster to whoever logs in.

One rule: this module only connects the parts. The tokens of visitors are in this process alone, and in no file that
the system makes of a process that fails.
"""

import asyncio
import logging
import resource
import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import click

from coordinator.access import key_files
from coordinator.access.readers import HEADER
from coordinator.access.shown_tokens import ShownTokens
from coordinator.cli import api_client
from coordinator.cli.dashboard.by_hand import until_signal
from coordinator.cli.session import REVIEW_SECONDS, Session, pass_session, start_log
from coordinator.dashboard import server
from coordinator.dashboard.access.logins import Logins
from coordinator.dashboard.access.visits import SeenNames, Visits
from coordinator.dashboard.readings import Readings
from coordinator.dashboard.server import Frame
from coordinator.errors import CoordinatorError, SettingsError
from coordinator.follow.job_feed import JobFeeds
from coordinator.http import life_port, listening_ports
from coordinator.life.health_checks import Check
from coordinator.life.process_checks import ProcessLife
from coordinator.local import supervisor
from coordinator.local.target import IN_CLUSTER
from coordinator.metrics import dashboard_metrics, process_page
from coordinator.port_settings import ANY_PORT, ServiceName
from coordinator.query.questions import Queries
from coordinator.query.remote_queries import Fetch, NoRecorder, RemoteQueries
from coordinator.rbac import preflight
from coordinator.rbac.permissions import DASHBOARD, USER
from coordinator.settings import Settings
from kube import client
from kube.process import gc_tuning, threads
from kube.process.turns import Turns
from kube.settings import RetrySettings

ATTEMPTS = 2
"""How often a question of a visitor to the API server is sent: a person waits."""
log = logging.getLogger(__name__)


@click.command(hidden=True)
@pass_session
def serve(session: Session) -> None:
    """Show the dashboard of a cluster to people who log in with tokens. The chart runs this process."""
    figures = process_page.new(session.settings.metrics_queues)
    session = session.with_user_agent("torchq-dashboard").with_role(DASHBOARD)
    session = session.with_meter(figures.registry).with_all_namespaces()
    settings = session.settings
    start_log(settings)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc_tuning.reduce_collections()
    threads.exit_on_thread_failure()
    supervisor.end_with_parent()
    log.info("dashboard of %s (%s)", session.cluster_name, session.target.source)
    quick = replace(
        session.connection,
        read_timeout=REVIEW_SECONDS,
        retries=RetrySettings(attempts=ATTEMPTS),
        permission_hint=USER.remedy,
    )
    queries, turns, clock = partial(_queries, session), Turns(), session.cluster.server_time.now
    with JobFeeds(session.cluster) as feeds, Readings(partial(feeds.of, ""), queries, clock) as readings:
        visits = Visits(SeenNames(readings), queries, partial(_history, settings), settings.dashboard_actions)
        sessions = Logins(client.connect_others(quick, figures.registry), visits.make)
        figures.registry.add_source(
            lambda: dashboard_metrics.samples(logins=len(sessions), away=len(readings.present.problems))
        )
        frame = Frame(
            _name(session),
            settings.dashboard_address,
            sessions,
            readings,
            settings.host_names,
            settings.drain_seconds,
            turns.loop("event loop"),
            clock,
        )
        opened = threading.Event()
        life = ProcessLife(turns, partial(_lacks, readings, opened))
        with life_port.alive(settings, life, figures):
            preflight.check(session.cluster, DASHBOARD, settings)
            _run(frame, settings, opened)
    session.cluster.close()


def _lacks(readings: Readings, opened: threading.Event) -> list[Check]:
    """Return whether pages are answered. Servers that are away are a note."""
    away = "; ".join(f"{part}: {text}" for part, text in readings.present.problems.items())
    return [Check("pages", "" if opened.is_set() else "not answered yet"), Check("cluster", note=away)]


def _run(frame: Frame, settings: Settings, opened: threading.Event) -> None:
    address, port = settings.dashboard_address, settings.dashboard_port

    def ready(bound: int) -> None:
        opened.set()
        log.info("the pages are at %s", listening_ports.url(address, bound))

    try:
        asyncio.run(server.serve(frame, 0 if port == ANY_PORT else port, ready, until_signal))
    except OSError as error:
        raise CoordinatorError(
            f"dashboard_port {address}:{port}: {error.strerror or error}; choose another dashboard_port"
        ) from error


def _name(session: Session) -> str:
    """Return the name of the cluster for people: a pod knows no other than the one by which they come."""
    if session.cluster_name != IN_CLUSTER:
        return session.cluster_name
    return min(session.settings.host_names, default="this cluster")


def _queries(session: Session) -> Queries:
    """Return access to a coordinator with the dashboard's own token."""
    settings = session.settings
    if not settings.coordinator:
        return RemoteQueries(api_client.coordinator(session))
    headers = partial(_own_token, settings.dashboard_token_file) if settings.dashboard_token_file else None
    shown = partial(session.shown_tokens.headers, settings.service_name.namespace)
    return RemoteQueries(api_client.via_url(settings.coordinator, headers=headers or shown))


def _own_token(path: str, _namespace: str) -> Mapping[str, str]:
    """Return the header with the token in a file, which the kubelet renews."""
    token = key_files.read("dashboard_token_file", path)
    if token is None:
        raise SettingsError(f"setting dashboard_token_file: {path}: there is no such file")
    return {HEADER: token.decode("ascii", "replace")}


def _history(settings: Settings, tokens: ShownTokens) -> Fetch:
    """Return access to the recorder with the tokens of a visitor. Raises NoRecorder."""
    if not settings.dashboard_recorder:
        raise NoRecorder(
            "no recorder keeps the history of this cluster: an admin starts one with the value recorder.enabled of the "
            "chart (docs/history.md)"
        )
    home = ServiceName.parse(settings.recorder_service).namespace
    return api_client.via_url(settings.dashboard_recorder, "", partial(tokens.headers, home), kind=api_client.RECORDER)
