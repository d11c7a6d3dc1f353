"""The job of `bench elastic`, that of `examples/elastic` in one of its modes, and the changes of this job and of its
pods.

One rule: the job is changed only through the API and by signals to processes, as by users, clusters and faults.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.errors import BenchError
from bench.support import manifests
from bench.support.processes import ROOT
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS, VERSION, Resource
from crds.labels import GROUP
from crds.resources.amounts import JOBS, Amounts, add, scale
from crds.torchjob import demand
from kube.api import Cluster, Manifest

EXAMPLE = ROOT / "examples" / "elastic"
LARGEST = 4
"""The largest number of workers."""
STORE_DEMAND: Amounts = {"cpu": 50, "memory": 320 * 2**20, "pods": 1}
"""What the pod of the rendezvous store requests."""
NAMESPACE = "default"
SCALE_INS = Resource(GROUP, VERSION, "scaleins", "ScaleIn")
STORE = "rendezvous"
"""The task of the rendezvous store, as in the names of its pods."""
ROOM_TAKER = "takes-room"
_MARK = "TORCHQ_CONTAINER"
"""The variable of all processes of a container on the embedded node. It begins with the pod's uid."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One elastic job, which has a queue of its own whose quota is enough for its largest size."""

    folder: Path
    mode: str
    step_seconds: float
    save_every: int

    @property
    def name(self) -> str:
        """The name of the job and of its queue."""
        return f"elastic-{self.mode.lower()}"

    @property
    def record(self) -> Path:
        """The file with the lines of all training processes."""
        return self.folder / f"{self.name}.record"

    @property
    def has_store(self) -> bool:
        """Whether the workers meet at a rendezvous store."""
        return self.mode == "Rendezvous"

    def manifest(self) -> Manifest:
        """Return the example's job in this mode. The job trains until the job is deleted."""
        body: Manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        body["metadata"]["name"] = self.name
        body["spec"]["schedulingPolicy"]["queue"] = self.name
        body["spec"]["torchElasticPolicy"] |= {"mode": self.mode, "numMaxReplicas": LARGEST}
        container = body["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        options: dict[str, object] = {
            "steps": 10**9,
            "step-seconds": self.step_seconds,
            "save-every": self.save_every,
            "folder": self.folder / f"{self.name}-saves",
            "record": self.record,
        }
        container["args"] = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        container["workingDir"] = str(EXAMPLE)
        return body

    def quota(self) -> dict[str, int]:
        """Return the resources that the job needs with its largest number of workers."""
        worker = demand.pod_demand(self.manifest()["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"])
        workers = scale(worker, LARGEST)
        return {**(add(workers, STORE_DEMAND) if self.has_store else workers), JOBS: 1}

    def pod(self, index: int) -> str:
        """Return the name of a worker's pod."""
        return f"{self.name}-worker-{index}"


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The job on a cluster."""

    cluster: Cluster
    job: TrainingJob

    def submit(self) -> None:
        """Create the queue and the job."""
        quota = self.job.quota()
        limits = {**quota, "cpu": f"{quota['cpu']}m"}
        self.cluster.create(TENANT_QUEUES, manifests.queue(self.job.name, quota=limits))
        self.cluster.create(TORCHJOBS, self.job.manifest(), NAMESPACE)

    def delete(self) -> None:
        """Delete the job."""
        self.cluster.delete(TORCHJOBS, self.job.name, NAMESPACE)

    def scale(self, workers: int) -> None:
        """Ask for a number of workers, as `kubectl scale` does."""
        self.cluster.patch(TORCHJOBS, self.job.name, {"spec": {"replicas": workers}}, NAMESPACE, subresource="scale")

    def scale_in(self, index: int) -> None:
        """Ask for one worker less, by the name of its pod."""
        spec = {"selector": {"name": self.job.name}, "toDelete": {"podNames": [self.job.pod(index)]}}
        body = {"apiVersion": SCALE_INS.api_version, "kind": SCALE_INS.kind, "spec": spec}
        self.cluster.create(SCALE_INS, {**body, "metadata": {"name": f"{self.job.name}-{index}"}}, NAMESPACE)

    def pods(self) -> list[Manifest]:
        """Return the pods of the job that exist."""
        return self.cluster.list(PODS, NAMESPACE, label_selector=f"{labels.JOB_NAME}={self.job.name}").items

    def kill_worker(self, index: int) -> None:
        """Kill all processes of a worker's container."""
        self._kill(self.job.pod(index))

    def kill_store(self) -> None:
        """Kill the process of the rendezvous store."""
        self._kill(f"{self.job.name}-{STORE}-0")

    def has_store(self) -> bool:
        """Return whether a pod of the job is a rendezvous store."""
        return f"{self.job.name}-{STORE}-0" in {pod["metadata"]["name"] for pod in self.pods()}

    def _kill(self, name: str) -> None:
        pod = next((pod for pod in self.pods() if pod["metadata"]["name"] == name), None)
        found = list(_processes(pod["metadata"]["uid"])) if pod else []
        if not found:
            raise BenchError(f"{self.job.name}: there is no process of {name}")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # it has ended together with another one
                os.kill(pid, signal.SIGKILL)

    def take_room(self, millicpus: int) -> None:
        """Create a pod of another user, which takes room of the node."""
        requests = {"cpu": f"{millicpus}m"}
        container = {
            "name": "sleep",
            "image": "none",
            "command": ["sleep", "3600"],
            "resources": {"requests": requests},
        }
        spec: dict[str, Any] = {"containers": [container], "restartPolicy": "Never"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ROOM_TAKER}, "spec": spec}
        self.cluster.create(PODS, body, NAMESPACE)

    def leave_room(self) -> None:
        """Delete that pod at once."""
        self.cluster.delete(PODS, ROOM_TAKER, NAMESPACE, grace_period_seconds=0)

    def are_together(self, workers: int) -> bool:
        """Return whether exactly the given number of workers have running pods."""
        running = [pod for pod in self.pods() if _is_running(pod)]
        return len(running) == len(self.pods()) == workers + self.job.has_store

    def room_is_taken(self) -> bool:
        """Return whether the pod of the other user runs."""
        return _is_running(self.cluster.get(PODS, ROOM_TAKER, NAMESPACE))


def _is_running(pod: Manifest) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _processes(uid: str) -> Iterator[int]:
    """Yield the pids of the processes of a pod."""
    mark = f"{_MARK}={uid}/".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if any(entry.startswith(mark) for entry in path.read_bytes().split(b"\0")):
                yield int(path.parent.name)
