"""One worker process: its caches, a reconciler, and RQ, which hands it keys.

One rule: this module only connects the parts, and decides nothing.
"""

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from functools import partial

from coordinator import release
from coordinator.cache import own_installation
from coordinator.reports import tokens
from coordinator.reports.report_store import RedisReports
from coordinator.settings import Settings
from coordinator.worker.caches import WorkerCaches
from coordinator.worker.recording import RecordingReader
from coordinator.worker.worker_life import WorkerLife
from crds.api_resources import POD_GROUPS, Resource
from crds.keys import JobKey
from crds.torchjob.status import InPlace
from kube import errors
from kube.client import KubernetesCluster
from kube.process.meter import NO_METER, Meter
from queues.dispatch import rq_worker
from queues.dispatch.intake import HostClock, Intake
from queues.dispatch.redis_work import RedisWork
from queues.errors import QueueError
from queues.redis import connection
from queues.work import WorkSettings
from reconcilers.apply.events import LifeEventWriter
from reconcilers.errors import ReconcileError
from reconcilers.plan.in_place import choice
from reconcilers.reconcile import Reconciler, Tell
from reconcilers.settings import ReconcileSettings, ReportAccess
from reconcilers.views import node_view

log = logging.getLogger(__name__)


EXPECTED = (errors.ClusterError, ReconcileError)
"""The expected errors of a reconcile. Each is one line in the log, and the key is reconciled again after a back-off."""


def run(cluster: KubernetesCluster, settings: Settings, life: WorkerLife, meter: Meter = NO_METER) -> None:
    """Reconcile until a stop signal was handled; then close the connections. `life` shows the activity of the process,
    `meter` counts the events of jobs."""
    life.caches = caches = WorkerCaches(cluster, settings)
    caches.start(life.turns)
    life_events = LifeEventWriter(cluster)
    try:
        caches.wait()
        # Charges use a separate connection, because RQ opens the worker's connection later and uses it to fetch keys.
        store = RedisWork(connection.connect(settings.redis, client_name=f"torchq-charges-{os.getpid()}"))
        with _reconciler(cluster, settings, caches, meter, life_events.tell) as reconciler:
            caches.set_on_found(lambda: reconciler.adopt(reconcile_settings(settings, caches.served)))
            owner = _owner(cluster, settings)
            host_clock = HostClock(cluster.server_time.ahead)
            life.intake = intake = Intake(release.version(), owner, turns=life.turns, host_clock=host_clock)
            hanging = rq_worker.run_worker(
                settings.redis,
                partial(reconciler, raise_charge=store.raise_charge),
                threads=settings.threads,
                settings=work_settings(settings),
                drain_seconds=settings.drain_seconds,
                expected=EXPECTED,
                run_versions=reconciler.run_versions,
                intake=intake,
            )
            if hanging:
                os._exit(1)  # a thread that hangs would keep the process from ending
    finally:
        life_events.close()
        cluster.close()  # ends the pauses between attempts of requests
        caches.stop()


def _owner(cluster: KubernetesCluster, settings: Settings) -> str:
    """Return the installation of this worker; empty if its account may not read it, as with the account of an older
    version.
    """
    try:
        return own_installation.read(cluster, settings.lease_namespace).encode()
    except errors.ClusterError as error:
        log.warning("it is not checked whether Redis belongs to this cluster: %s", error)
        return ""


def _reconciler(
    cluster: KubernetesCluster, settings: Settings, caches: WorkerCaches, meter: Meter, tell: Tell
) -> Reconciler:
    selected = reconcile_settings(settings, caches.served)
    log.info("gangs are bound by %s, %s", selected.gang_scheduler, _describe_restarts(selected, caches))
    return Reconciler(
        cluster,
        caches.pods,
        selected,
        caches=replace(
            caches.reconcile_caches,
            reported_saves=_reported_saves(settings, selected),
            recording=RecordingReader(cluster, settings.lease_namespace, cluster.server_time.ahead),
        ),
        meter=meter,
        tell=tell,
    )


def _describe_restarts(settings: ReconcileSettings, caches: WorkerCaches) -> str:
    """Describe the driver that restarts the containers of pods in place, as far as nodes show it; each job's status has
    the details.
    """
    obstacle = node_view.restart_obstacle(caches.nodes.values()) if settings.make_pods else ""
    chosen = choice.preferred(settings, obstacle) or InPlace(driver=settings.in_place)
    return f"containers are restarted by {chosen.driver}" + (f" ({chosen.message})" if chosen.message else "")


def reconcile_settings(settings: Settings, served: Collection[Resource] = ()) -> ReconcileSettings:
    """Return the reconciler's part of the settings; `served` are the installed kinds of other projects.

    A value that a reconcile uses as the admin has set it has the same name in both settings, and is copied by this
    name. Only values that depend on more than one setting, or on the API server, are named here.
    """
    same = {
        each.name: getattr(settings, each.name) for each in fields(ReconcileSettings) if hasattr(settings, each.name)
    }
    scheduler = settings.gang_scheduler
    return replace(
        ReconcileSettings(**same),
        make_pods=settings.pods == "make",
        gang_scheduler=("volcano" if POD_GROUPS in served else "none") if scheduler == "auto" else scheduler,
        served=frozenset(served),
        reports=_report_access(settings),
    )


def _reported_saves(settings: Settings, selected: ReconcileSettings) -> Callable[[JobKey], int] | None:
    """Return the function that reads which request to save the reports of a job answer; None if pods do not report."""
    if selected.reports is None:
        return None
    store = RedisReports(connection.connect(settings.redis, client_name=f"torchq-reports-{os.getpid()}"))

    def read(key: JobKey) -> int:
        try:
            found = store.read([key]).get(key)
        except QueueError as error:  # the removal waits no longer than without reports
            log.warning("the reports of %s cannot be read: %s", key, error)
            return 0
        return found.checkpoint if found is not None else 0

    return read


def _report_access(settings: Settings) -> ReportAccess | None:
    key = tokens.read(settings.report_key_file) if settings.report_url else None
    return None if key is None else ReportAccess(settings.report_url.rstrip("/"), key.token, settings.kubeflow_progress)


def work_settings(settings: Settings) -> WorkSettings:
    """Return the work queue's part of the settings."""
    return WorkSettings(running_lease=settings.running_lease_seconds)
