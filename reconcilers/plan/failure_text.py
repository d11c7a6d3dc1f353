"""What ended the pod that is to blame, where its status does not say all of it.

One rule: asked of the API server for that one pod, once its job is about to fail or to be restarted. A pod's status
keeps the last 2048 bytes of its log; what torchrun prints at its end fills them where it has several processes.

A log that cannot be read explains nothing and hinders nothing: an account may lack the permission, the node be away.
"""

import logging
from dataclasses import replace

from crds.api_resources import PODS
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.values import Observation
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView

LINES = 2_000
"""Lines of the log, from its end, that are looked at."""
BYTES = 1_000_000
MOST = 4
"""Pods of one job that are asked about in turn: the end of one may only follow from that of another."""

logger = logging.getLogger(__name__)


def explained(cluster: Cluster, observation: Observation, pod: PodView) -> Observation:
    """The observation with all that is known of a pod's end. Any ClusterError but of the log."""
    try:
        manifest = cluster.get(PODS, pod.name, pod.namespace)
    except errors.NotFound:
        manifest = None
    same = manifest is not None and manifest["metadata"]["uid"] == pod.uid
    found = pod_view.explain(pod, manifest, _log(cluster, pod, manifest)) if manifest and same else settled(pod)
    return replaced(observation, found)


def given_up(observation: Observation) -> Observation:
    """The observation as it stands: nobody is asked any more."""
    return replace(observation, pods=tuple(map(settled, observation.pods)))


def settled(pod: PodView) -> PodView:
    """A pod of which no more is asked."""
    return replace(pod, unexplained=False) if pod.unexplained else pod


def replaced(observation: Observation, pod: PodView) -> Observation:
    """The observation with another view of one pod."""
    return replace(observation, pods=tuple(pod if each.uid == pod.uid else each for each in observation.pods))


def _log(cluster: Cluster, pod: PodView, manifest: Manifest) -> str:
    if not pod_view.wants_log(manifest):
        return ""
    container = pod_view.speaker(manifest)
    try:
        return cluster.log_end(pod.name, pod.namespace, container, lines=LINES, most=BYTES, previous=not pod.finished)
    except errors.ClusterError as error:
        logger.info("the log of pod %s/%s does not say why it failed: %s", pod.namespace, pod.name, error)
        return ""
