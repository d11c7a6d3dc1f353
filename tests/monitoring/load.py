"""Queues and jobs of three tenants: some jobs run long, most end at once, one fails, one is sent back, one is held.

One rule: only the main thread uses this module, and the load continues while a server is away.
"""

import contextlib
import time
from typing import Any

from crds.api_resources import TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.monitoring.installation import Installation
from tests.support.acceptance.jobs import job

TEAM_A, TEAM_B, TEAM_C, QUICK = "team-a", "team-b", "team-c", "quick"
PAUSE_SECONDS = 0.3
"""The time from one quick job to the next."""
MOST_QUICK = 40
"""The most quick jobs that exist at a time."""
LONG = ["sleep", "100000"]


class Load:
    """The jobs of a run."""

    def __init__(self, site: Installation) -> None:
        self._site = site
        self._made = 0
        self._due = 0.0
        self.is_quiet = False
        """Whether no new quick jobs come."""

    @property
    def api(self) -> KubernetesCluster:
        """A client that gives up soon."""
        return self._site.api(2.0)

    def create_queues(self) -> None:
        """Create the queues. Team a borrows from team b; team c has the largest weight."""
        create = ("queue", "create")
        limits = ("--cohort", "lab", "--quota")
        self._site.torchq(*create, TEAM_A, "--weight", "3", *limits, "cpu=3,jobs=20", "--borrowing-limit", "cpu=1")
        self._site.torchq(*create, TEAM_B, *limits, "cpu=2,memory=1Gi,jobs=20")
        self._site.torchq(*create, TEAM_C, "--weight", "8")
        self._site.torchq(*create, QUICK)

    def submit(self, name: str, queue: str, command: list[str], cpu: str = "1", **spec: Any) -> None:
        """Create a job."""
        self.api.create(TORCHJOBS, job(name, command, queue=queue, cpu=cpu, **spec), "default")

    def submit_unschedulable(self, name: str) -> None:
        """Create a job whose pod fits no node, so that it is admitted and sent back."""
        body = job(name, ["true"], queue=QUICK, cpu="50m")
        template = body["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]
        template["nodeSelector"] = {"example.com/nowhere": "true"}
        self.api.create(TORCHJOBS, body, "default")

    def delete(self, name: str) -> None:
        """Delete a job if the job exists."""
        with contextlib.suppress(errors.NotFound):
            self.api.delete(TORCHJOBS, name, "default")

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a job."""
        found: dict[str, Any] = self.api.get(TORCHJOBS, name, "default").get("status") or {}
        return found

    def tick(self) -> None:
        """Create the next quick job if it is due, and delete an old one."""
        if self.is_quiet or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + PAUSE_SECONDS
        with contextlib.suppress(errors.ClusterError):
            self.submit(f"quick-{self._made}", QUICK, ["true"], "50m")
            self._made += 1
            self.delete(f"quick-{self._made - MOST_QUICK}")

    def submit_many(self, count: int) -> None:
        """Create many quick jobs at once."""
        api = self.api
        body = job("many", ["true"], queue=QUICK, cpu="10m")
        for number in range(count):
            api.create(TORCHJOBS, body | {"metadata": {"name": f"many-{number}"}}, "default")

    def delete_many(self, count: int) -> None:
        """Delete these jobs."""
        for number in range(count):
            self.delete(f"many-{number}")
