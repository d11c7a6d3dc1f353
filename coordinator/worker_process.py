"""One worker process: a cache of our pods, a reconciler, and RQ to hand it keys.

One rule: wiring only; it decides nothing.
"""

import logging
import os
from typing import Any

from cluster import errors
from cluster.client import KubernetesCluster
from cluster.informer import Informer
from coordinator.settings import Settings
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


def reconcile_settings(settings: Settings) -> ReconcileSettings:
    """The reconciler's share of the settings."""
    return ReconcileSettings(
        master_address=settings.master_address,
        make_pods=settings.pods == "make",
        admission_timeout=settings.admission_timeout,
        admission_backoff=settings.admission_backoff,
        admission_tries=settings.admission_tries,
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
