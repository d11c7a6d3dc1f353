"""Counts from outside what the pods of a tenant queue request, at every change of a pod.

One rule: only pods and the queue's quota count, not what torchq has stored about them. A pod counts from its creation
until it has ended or is gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds import labels
from crds.api_resources import PODS
from crds.resources.amounts import JOBS, Amounts, add
from crds.torchjob import demand
from kube.api import Cluster, Manifest
from kube.informer import Informer

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class OccupyingPod:
    """What one pod requests, and for which job."""

    queue: str
    job: str
    demand: Amounts


def occupying_pod(manifest: Manifest) -> OccupyingPod | None:
    """Return what a pod of a queue requests, or None if it has ended."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    if status.get("phase") in _ENDED:
        return None
    pod_labels = metadata["labels"]
    return OccupyingPod(pod_labels[labels.QUEUE], pod_labels[labels.JOB_UID], demand.pod_demand(manifest["spec"]))


def usage(pods: Iterable[OccupyingPod | None], queue: str) -> dict[str, int]:
    """Return what the pods of a queue request together, and the number of their jobs."""
    total: dict[str, int] = {}
    jobs = set()
    for pod in pods:
        if pod is not None and pod.queue == queue:
            total = add(total, pod.demand)
            jobs.add(pod.job)
    return {**total, JOBS: len(jobs)}


def most_over(used: Amounts, quota: Amounts) -> int:
    """Return by how much the resource that is most over the quota is over it; 0 if none is."""
    return max((used.get(name, 0) - limit for name, limit in quota.items()), default=0)


class QuotaWatch:
    """The largest usage of each resource of some queues, as a watch of the pods shows it."""

    def __init__(self, cluster: Cluster, quotas: Mapping[str, Amounts]) -> None:
        self.over = 0
        """The most that any queue was over its quota, in any resource's own unit."""
        self.peak_percent = 0.0
        """The most that any queue used, as a share of its quota."""
        self._quotas = quotas
        self._pods = Informer(cluster, PODS, trim=occupying_pod, label_selector=labels.QUEUE, on_change=self._on_change)

    def __enter__(self) -> "QuotaWatch":
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pods.stop()

    def _on_change(self, _before: OccupyingPod | None, _after: OccupyingPod | None) -> None:
        pods = self._pods.values()
        for queue, quota in self._quotas.items():
            used = usage(pods, queue)
            self.over = max(self.over, most_over(used, quota))
            shares = (100 * used.get(name, 0) / limit for name, limit in quota.items() if limit)
            self.peak_percent = max(self.peak_percent, *shares)
