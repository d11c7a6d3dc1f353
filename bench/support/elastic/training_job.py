"""The job of `bench elastic`: that of `examples/elastic`, in one of its modes.

One rule: pure, apart from reading the example.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.support.machine import ROOT
from crds.resources.amounts import JOBS, Amounts, add, scale
from crds.torchjob import demand
from kube.api import Manifest

EXAMPLE = ROOT / "examples" / "elastic"
LARGEST = 4
"""The largest number of workers."""
STORE_DEMAND: Amounts = {"cpu": 50, "memory": 320 * 2**20, "pods": 1}
"""What the pod of the rendezvous store requests."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One elastic job, which has a queue of its own whose quota is what its largest size needs."""

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
        """Return the example's job in this mode. It trains until it is deleted."""
        body: Manifest = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
        body["metadata"]["name"] = self.name
        body["spec"]["schedulingPolicy"]["queue"] = self.name
        body["spec"]["torchElasticPolicy"] |= {"mode": self.mode, "numMaxReplicas": LARGEST}
        container = _container(body)
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
        """Return what the job needs with its largest number of workers."""
        worker = demand.pod_demand(self.manifest()["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"])
        workers = scale(worker, LARGEST)
        return {**(add(workers, STORE_DEMAND) if self.has_store else workers), JOBS: 1}

    def pod(self, index: int) -> str:
        """Return the name of a worker's pod."""
        return f"{self.name}-worker-{index}"


def _container(body: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = body["spec"]["torchTaskSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return container
