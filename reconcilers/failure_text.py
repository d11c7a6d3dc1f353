"""The texts of pods at their end, where the views of the pods do not contain the whole text: the cause of a failure,
the result, and the count of the files of a model.

One rule: the log of one pod is read from the API server, once its job is about to fail or to be restarted. A pod's
status keeps the last 2048 bytes of its log, which torchrun's final report fills if there are several processes.

A log that cannot be read explains nothing and blocks nothing: the account may lack the permission, or the node may be
unreachable.
"""

import logging
from dataclasses import replace

from crds.api_resources import PODS
from kube import errors
from kube.api import Cluster, Manifest
from reconcilers.values import Observation
from reconcilers.views import pod_result, pod_view
from reconcilers.views.pod_view import PodView

LINES = 2_000
"""The number of lines that are read from the end of the log."""
BYTES = 1_000_000
MOST = 4
"""The number of pods of one job that are examined in turn: the failure of one may only follow from another's."""

logger = logging.getLogger(__name__)


def explain_failure(cluster: Cluster, observation: Observation, pod: PodView) -> Observation:
    """Return the observation with everything that is known of a pod's end. Raises any ClusterError except for the
    log."""
    manifest = _read(cluster, pod)
    view = pod_view.explain(pod, manifest, _log(cluster, pod, manifest)) if manifest else mark_explained(pod)
    return replace_pod(observation, view)


def read_end(
    cluster: Cluster, observation: Observation, result_of: PodView | None, model_of: PodView | None
) -> Observation:
    """Return the observation with the result that a pod gave, as JSON, and the count of another pod, or of the same.
    What cannot be used is empty. Raises any ClusterError."""
    result = _read(cluster, result_of) if result_of is not None else None
    is_same = result_of is not None and model_of is not None and result_of.uid == model_of.uid
    model = result if is_same or model_of is None else _read(cluster, model_of)
    return replace(
        observation,
        result=pod_result.read(result) if result else "",
        model=pod_result.read_model(model) if model and model_of is not None else None,
    )


def _read(cluster: Cluster, pod: PodView) -> Manifest | None:
    """Return the manifest of a pod; None if the pod no longer exists."""
    try:
        manifest = cluster.get(PODS, pod.name, pod.namespace)
    except errors.NotFound:
        return None
    return manifest if manifest["metadata"]["uid"] == pod.uid else None


def give_up(observation: Observation) -> Observation:
    """Return the observation without any pod left to explain: no further log is read."""
    return replace(observation, pods=tuple(map(mark_explained, observation.pods)))


def mark_explained(pod: PodView) -> PodView:
    """Return a pod that is not examined further."""
    return replace(pod, unexplained=False) if pod.unexplained else pod


def replace_pod(observation: Observation, pod: PodView) -> Observation:
    """Return the observation with another view of one pod."""
    return replace(observation, pods=tuple(pod if other.uid == pod.uid else other for other in observation.pods))


def _log(cluster: Cluster, pod: PodView, manifest: Manifest) -> str:
    if not pod_view.needs_log(manifest):
        return ""
    container = pod_view.failing_container(manifest)
    try:
        return cluster.log_end(pod.name, pod.namespace, container, lines=LINES, most=BYTES, previous=not pod.finished)
    except errors.ClusterError as error:
        logger.info("the log of pod %s/%s does not say why it failed: %s", pod.namespace, pod.name, error)
        return ""
