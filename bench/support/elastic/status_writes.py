"""Counts the writes of a job's status that change it, as a watch shows them.

One rule: the fields that the coordinator writes do not count: the job's place in its queue changes with the other jobs.
"""

import json
from dataclasses import dataclass

from crds.api_resources import TORCHJOBS
from kube.api import Cluster, Manifest
from kube.informer import Informer

_OF_THE_COORDINATOR = ("queue", "reason", "message")


@dataclass(frozen=True, slots=True)
class JobState:
    """What a watch shows of a job."""

    status: str
    """The status as text, without the fields of the coordinator."""
    phase: str
    workers: int
    """The number of workers that the job was granted."""
    is_scaling: bool
    wanted: int
    message: str


def job_state(manifest: Manifest) -> JobState:
    """Return what counts of a job."""
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
        self._jobs = Informer(cluster, TORCHJOBS, trim=job_state, namespace=namespace, on_change=self._on_change)
        self._namespace = namespace

    def __enter__(self) -> "StatusWrites":
        self._jobs.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.stop()

    def state(self, name: str) -> JobState | None:
        """Return the state of a job, or None if there is none."""
        return self._jobs.get(self._namespace, name)

    def _on_change(self, before: JobState | None, after: JobState | None) -> None:
        if before is not None and after is not None and before.status != after.status:
            self.count += 1
