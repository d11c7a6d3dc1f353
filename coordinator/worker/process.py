"""One worker process: its caches, a reconciler, and RQ to hand it keys.

One rule: wiring only; it decides nothing.
"""

import logging
import os
from collections.abc import Collection
from functools import partial

from coordinator.settings import Settings
from coordinator.worker.caches import Caches
from crds.api_resources import POD_GROUPS, RECREATE_REQUESTS, Resource
from kube import errors
from kube.client import KubernetesCluster
from queues.dispatch import rq_worker
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.work import WorkSettings
from reconcilers.errors import ReconcileError
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings

log = logging.getLogger(__name__)


EXPECTED = (errors.ClusterError, ReconcileError)
"""What a reconcile may end with on a bad day: one line in the log, and again after the backoff."""


def run(cluster: KubernetesCluster, settings: Settings) -> None:
    """Reconcile until a stop signal has been obeyed; then the connections are given back."""
    caches = Caches(cluster, settings)
    caches.start()
    try:
        caches.wait()
        # A connection of its own: the worker's is made when RQ begins, and asks for keys.
        store = RedisWork(connection.connect(settings.redis_url, client_name=f"torchq-charges-{os.getpid()}"))
        with _reconciler(cluster, settings, caches) as reconciler:
            caches.tell(lambda: reconciler.adopt(reconcile_settings(settings, caches.served)))
            left = rq_worker.run_worker(
                settings.redis_url,
                partial(reconciler, raise_charge=store.raise_charge),
                threads=settings.threads,
                settings=work_settings(settings),
                drain_seconds=settings.drain_seconds,
                expected=EXPECTED,
                run_versions=reconciler.left,
            )
            if left:
                os._exit(1)  # a thread that hangs would keep the process for ever
    finally:
        cluster.close()  # whoever waits for another attempt waits no longer
        caches.stop()


def _reconciler(cluster: KubernetesCluster, settings: Settings, caches: Caches) -> Reconciler:
    chosen = reconcile_settings(settings, caches.served)
    log.info("gangs are bound by %s, containers restarted by %s", chosen.gang_scheduler, chosen.in_place)
    return Reconciler(
        cluster,
        caches.pods,
        chosen,
        queues=caches.queues,
        nodes=caches.nodes,
        recreations=caches.recreations,
        groups=caches.groups,
    )


def reconcile_settings(settings: Settings, served: Collection[Resource] = ()) -> ReconcileSettings:
    """The reconciler's share of the settings; `served` are the kinds of others' that there are."""
    scheduler, driver = settings.gang_scheduler, settings.in_place
    return ReconcileSettings(
        master_address=settings.master_address,
        make_pods=settings.pods == "make",
        admission_timeout=settings.admission_timeout,
        admission_backoff=settings.admission_backoff,
        admission_tries=settings.admission_tries,
        gang_scheduler=("volcano" if POD_GROUPS in served else "none") if scheduler == "auto" else scheduler,
        pods_at_once=settings.pods_at_once,
        served=frozenset(served),
        in_place=("kruise" if RECREATE_REQUESTS in served else "recreate") if driver == "auto" else driver,
        in_place_timeout=settings.in_place_timeout,
        most_disruptions=settings.most_disruptions,
        restart_backoff=settings.restart_backoff,
        longest_restart_backoff=settings.longest_restart_backoff,
        node_failures=settings.node_failures,
        dead_node_grace=settings.dead_node_grace,
        longest_grace=settings.longest_grace,
        most_writes=settings.most_writes,
        parallel=settings.parallel_writes,
    )


def work_settings(settings: Settings) -> WorkSettings:
    """The work queue's share of the settings."""
    return WorkSettings(running_lease=settings.running_lease_seconds)
