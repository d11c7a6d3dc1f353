"""One worker process: a cache of our pods, a reconciler, and RQ to hand it keys.

One rule: wiring only; it decides nothing.
"""

import logging
import os
from collections.abc import Collection
from typing import Any

from cluster import errors
from cluster.client import KubernetesCluster
from cluster.informer import Informer
from coordinator.settings import Settings
from crds.resources import POD_GROUPS, RECREATE_REQUESTS, Resource
from queues import rq_worker
from queues.work import WorkSettings
from reconcilers import observe, queue_view
from reconcilers.errors import ReconcileError
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings

log = logging.getLogger(__name__)


EXPECTED = (errors.ClusterError, ReconcileError)
"""What a reconcile may end with on a bad day: one line in the log, and again after the backoff."""


def run(cluster: KubernetesCluster, settings: Settings) -> None:
    """Reconcile until a stop signal has been obeyed; then the connections are given back."""
    pods, queues = observe.pods_informer(cluster), queue_view.queues_informer(cluster)
    pods.start()
    queues.start()
    try:
        _wait_for(pods)
        _wait_for(queues)
        with Reconciler(cluster, pods, reconcile_settings(settings), queues=queues) as reconciler:
            left = rq_worker.run_worker(
                settings.redis_url,
                reconciler,
                threads=settings.threads,
                settings=work_settings(settings),
                drain_seconds=settings.drain_seconds,
                expected=EXPECTED,
                made=reconciler.made,
            )
            if left:
                os._exit(1)  # a thread that hangs would keep the process for ever
    finally:
        cluster.close()  # whoever waits for another attempt waits no longer
        pods.stop()
        queues.stop()


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
        node_failures=settings.node_failures,
        dead_node_grace=settings.dead_node_grace,
        most_writes=settings.most_writes,
        parallel=settings.parallel_writes,
    )


def work_settings(settings: Settings) -> WorkSettings:
    """The work queue's share of the settings."""
    return WorkSettings(running_lease=settings.running_lease_seconds)


def _wait_for(informer: Informer[Any]) -> None:
    """A reconcile without the pods would create them again, one without the queues fill those that drain."""
    told = ""
    while not informer.wait_synced(1.0):
        if informer.failing != told:
            log.warning("waiting for the %s: %s", informer.resource.plural, informer.failing)
        told = informer.failing
