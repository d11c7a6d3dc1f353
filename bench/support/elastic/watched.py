"""The facts that `bench elastic` observes from outside, by watches: usage of quotas, and writes of statuses.

One rule: only pods and the queue's quota count as usage, not what torchq has stored about them; a pod counts from its
creation until it has ended or is gone. The fields of a status that the coordinator writes are ignored: the job's
place in its queue changes with the other jobs.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.resources.amounts import JOBS, Amounts, add
from crds.torchjob import demand
from kube.api import Cluster, Manifest
from kube.informer import Informer

_ENDED = ("Succeeded", "Failed")
_OF_THE_COORDINATOR = ("queue", "reason", "message")


@dataclass(frozen=True, slots=True)
class OccupyingPod:
    """The requests of one pod, and its job."""

    queue: str
    job: str
    demand: Amounts


def occupying_pod(manifest: Manifest) -> OccupyingPod | None:
    """Return the requests of a pod of a queue, or None if it has ended."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    if status.get("phase") in _ENDED:
        return None
    pod_labels = metadata["labels"]
    return OccupyingPod(pod_labels[labels.QUEUE], pod_labels[labels.JOB_UID], demand.pod_demand(manifest["spec"]))


def usage(pods: Iterable[OccupyingPod | None], queue: str) -> dict[str, int]:
    """Return the total requests of the pods of a queue, and the number of their jobs."""
    total: dict[str, int] = {}
    jobs = set()
    for pod in pods:
        if pod is not None and pod.queue == queue:
            total = add(total, pod.demand)
            jobs.add(pod.job)
    return {**total, JOBS: len(jobs)}


def most_over(used: Amounts, quota: Amounts) -> int:
    """Return by how much the resource that is most over the quota exceeds the quota; 0 if no resource does."""
    return max((used.get(name, 0) - limit for name, limit in quota.items()), default=0)


class QuotaWatch:
    """The largest usage of each resource of some queues, as a watch of the pods shows it."""

    def __init__(self, cluster: Cluster, quotas: Mapping[str, Amounts]) -> None:
        self.over = 0
        """The most that any queue was over its quota, in any resource's own unit."""
        self.peak_percent = 0.0
        """The most that any queue used, as a share of its quota."""
        self._quotas = quotas
        self.informer = Informer(
            cluster, PODS, trim=occupying_pod, label_selector=labels.QUEUE, on_change=self._on_change
        )

    def _on_change(self, _before: OccupyingPod | None, _after: OccupyingPod | None) -> None:
        pods = self.informer.values()
        for queue, quota in self._quotas.items():
            used = usage(pods, queue)
            self.over = max(self.over, most_over(used, quota))
            shares = (100 * used.get(name, 0) / limit for name, limit in quota.items() if limit)
            self.peak_percent = max(self.peak_percent, *shares)


@dataclass(frozen=True, slots=True)
class JobState:
    """The part of a job that a watch keeps."""

    status: str
    """The status as text, without the fields of the coordinator."""
    phase: str
    workers: int
    """The number of workers that the job was granted."""
    is_scaling: bool
    wanted: int
    message: str


def job_state(manifest: Manifest) -> JobState:
    """Return the compared fields of a job."""
    status = manifest.get("status") or {}
    wanted = manifest["spec"]["torchTaskSpecs"]["Worker"]["numTasks"]
    counted = {name: value for name, value in status.items() if name not in _OF_THE_COORDINATOR}
    return JobState(
        status=json.dumps(counted, sort_keys=True),
        phase=status.get("phase", ""),
        workers=(status.get("admission") or {}).get("workers", 0),
        is_scaling=bool(status.get("scaling")),
        wanted=wanted,
        message="; ".join(condition.get("message", "") for condition in status.get("conditions") or ()),
    )


class StatusWrites:
    """The state of one job, and how many writes have changed it."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.count = 0
        self.informer = Informer(cluster, TORCHJOBS, trim=job_state, namespace=namespace, on_change=self._on_change)
        self._namespace = namespace

    def state(self, name: str) -> JobState | None:
        """Return the state of a job, or None if there is no such job."""
        return self.informer.get(self._namespace, name)

    def _on_change(self, before: JobState | None, after: JobState | None) -> None:
        if before is not None and after is not None and before.status != after.status:
            self.count += 1
