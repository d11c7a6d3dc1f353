"""A small job on a cluster, whose ranks say when they begin, and what `bench restarts --real` does to it.

One rule: only the API, as users have it. What a rank says is read from the log of its pod, so that no shared folder is
needed; the clocks of the nodes are taken to agree.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.support.restarts import rank
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.torchjob import torchjob
from kube import errors, streams
from kube.api import Manifest
from kube.client import KubernetesCluster

ASK = "bench/exit"
"""The annotation that asks a rank to end."""
CONTAINER = "torch"
_LINES = 5
_MOST = 1_000


class Said(NamedTuple):
    """A line of a rank."""

    word: str
    time: float
    world: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedJob:
    """One job and its queue, which has its name."""

    cluster: KubernetesCluster
    name: str
    namespace: str
    image: str
    python: str
    ignores_term: bool = False
    elastic: bool = False
    """Whether the number of workers changes in place; a job that is not elastic has a master as well."""

    @contextmanager
    def submitted(self) -> Iterator[None]:
        """Create queue and job, and delete both at the end."""
        queue = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": {"name": self.name}}
        self.cluster.create(TENANT_QUEUES, queue)
        try:
            self.cluster.create(TORCHJOBS, self.manifest(), self.namespace)
            try:
                yield
            finally:
                self.cluster.delete(TORCHJOBS, self.name, self.namespace)
        finally:
            self.cluster.delete(TENANT_QUEUES, self.name)

    def manifest(self) -> Manifest:
        """Return the job: three ranks, or two if their number changes."""
        worker = {"numTasks": 2, "restartPolicy": "OnFailure", "template": {"spec": self._pod()}}
        spec: dict[str, Any] = {"schedulingPolicy": {"queue": self.name}, "torchTaskSpecs": {"Worker": worker}}
        if self.elastic:
            spec["schedulingPolicy"]["checkpointSeconds"] = 60
            spec["torchElasticPolicy"] = {"numMinReplicas": 2, "numMaxReplicas": 4, "mode": "InPlaceRestart"}
        else:
            spec["torchTaskSpecs"]["Master"] = {**worker, "numTasks": 1}
        metadata = {"name": self.name}
        return {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": metadata, "spec": spec}

    def _pod(self) -> dict[str, Any]:
        field = {"fieldPath": f"metadata.annotations['{ASK}']"}
        container = {
            "name": CONTAINER,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": [self.python, "-u", "-c", Path(rank.__file__).read_text()],
            "env": [
                {"name": "TORCHQ_VOLUME_ASK", "value": "/ask"},
                {"name": "ON_TERM", "value": "ignores" if self.ignores_term else "ends"},
            ],
            "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
            "volumeMounts": [{"name": "ask", "mountPath": "/ask"}],
        }
        volume = {"name": "ask", "downwardAPI": {"items": [{"path": "exit", "fieldRef": field}]}}
        return {"terminationGracePeriodSeconds": 5, "containers": [container], "volumes": [volume]}

    def read(self) -> torchjob.TorchJob:
        """Return the job."""
        return torchjob.parse(self.cluster.get(TORCHJOBS, self.name, self.namespace))

    def pods(self) -> dict[str, str]:
        """Return the uids of the pods that are not being deleted, by name."""
        listed = self.cluster.list(PODS, self.namespace, label_selector=f"{labels.JOB_NAME}={self.name}").items
        present = (pod["metadata"] for pod in listed if "deletionTimestamp" not in pod["metadata"])
        return {metadata["name"]: metadata["uid"] for metadata in present}

    def boots(self) -> dict[str, Said]:
        """Return the begin of the present run of each rank whose pod has one."""
        said = {name: self._last(name) for name in self.pods()}
        return {name: line for name, line in said.items() if line is not None and line.word == "boot"}

    def _last(self, pod: str) -> Said | None:
        try:
            text = self.cluster.log_end(pod, self.namespace, CONTAINER, lines=_LINES, most=_MOST)
        except errors.ClusterError:
            return None  # the container is being made
        found = [line for line in map(parse, text.splitlines()) if line is not None]
        return found[-1] if found else None

    def end(self, pod: str, number: int, seconds: float) -> float | None:
        """Have a rank end with exit code 1, and return the time of its end; None if it does not end in time."""
        with self.cluster.logs(pod, self.namespace, CONTAINER, follow=True) as pieces:
            timer = threading.Timer(seconds, pieces.close)
            timer.start()
            try:
                note = {"metadata": {"annotations": {ASK: str(number)}}}
                self.cluster.patch(PODS, pod, note, self.namespace)
                said = (parse(line.decode(errors="replace")) for line in streams.lines(pieces))
                return next((line.time for line in said if line is not None and line.word == "exit"), None)
            finally:
                timer.cancel()

    def resize(self, workers: int) -> None:
        """Ask for a number of workers, as `kubectl scale` does."""
        self.cluster.patch(TORCHJOBS, self.name, {"spec": {"replicas": workers}}, self.namespace, subresource="scale")

    def save(self) -> None:
        """Answer a request to save, as training code does."""
        job = self.read()
        number = str(job.save_request)
        if job.save_request and job.metadata.annotations.get(labels.CHECKPOINT_COMPLETED) != number:
            note = {"metadata": {"annotations": {labels.CHECKPOINT_COMPLETED: number}}}
            self.cluster.patch(TORCHJOBS, self.name, note, self.namespace)


def parse(line: str) -> Said | None:
    """Return what a line of a rank says; None for any other line."""
    match line.split():
        case [("boot" | "exit") as word, moment, world]:
            return Said(word, float(moment), int(world))
    return None
