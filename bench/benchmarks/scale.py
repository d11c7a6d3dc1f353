"""Runs many TorchJobs on a real API server, under the accounts of deploy/rbac, with simulated pods.

One rule: every job has to succeed, and no charge may remain. The API server counts the requests, by verb and code.
"""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, installation, stack
from bench.support.installation import Installation, InstallationOptions
from bench.support.processes import Bench, room
from bench.support.submission import crowd
from bench.support.submission.crowd import Crowd
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer

_FINAL = ("Succeeded", "Failed")
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    jobs: int = 15_000
    queues: int = 30
    workers: int = 2
    cpus: int = 200
    """The CPUs that the queues share; each job needs one."""
    clients: int = 1
    """The number of processes that create jobs."""
    threads: int = 8
    """The most requests at the same time in each of these processes, and in the process that simulates the pods."""
    seconds: float = 3_600.0
    """The time limit of the run."""


def run(options: Options) -> Figures:
    """Start everything, submit the jobs and wait until all have ended. Raises BenchError if they do not."""
    installed = InstallationOptions(real=True, workers=options.workers, settings={"TORCHQ_POOL": f"cpu={options.cpus}"})
    submitters = Crowd(clients=options.clients, threads=options.threads, jobs=options.jobs, queues=options.queues)
    with room(stack.STOP_SECONDS) as bench, installation.running(bench, installed) as torchq:
        _prepare(bench, torchq, options)
        tally = Tally()
        with Informer(torchq.admin, TORCHJOBS, trim=_phase, on_change=tally.on_change):
            requests, cpu = torchq.requests(), installation.cpu(bench)
            started = crowd.begin(bench, torchq.server.kubeconfig, submitters)
            _wait(bench, torchq, tally, options)
            wall = time.monotonic() - started
            requests = torchq.requests() - requests
        return {
            "server": torchq.server.name,
            "wall_s": round(wall, 1),
            "jobs_per_s": round(options.jobs / wall, 1),
            "phases": {phase: count for phase, count in tally.phases.items() if count},
            "attempts": dict(tally.admissions),
            **installation.costs(bench, cpu),
            "submit_troubles": crowd.troubles(bench, submitters),
            "log_troubles": stack.troubles(bench.folder),
            "requests_per_job": api_counts.per_job(requests, options.jobs),
            "refused": api_counts.failures(requests),
        }


class Tally:
    """The number of jobs in each phase, as a watch shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phases: Counter[str] = Counter()
        self.admissions: Counter[int] = Counter()
        """The number of jobs that ended in their first attempt, their second, ..."""

    def on_change(self, before: tuple[str, int] | None, after: tuple[str, int] | None) -> None:
        """Count the change of one job."""
        with self._lock:
            if before:
                self.phases[before[0]] -= 1
            if after:
                self.phases[after[0]] += 1
                if after[0] in _FINAL and (before is None or before[0] != after[0]):
                    self.admissions[after[1]] += 1

    @property
    def ended(self) -> int:
        """The number of jobs that have ended."""
        return sum(self.phases[phase] for phase in _FINAL)

    def text(self) -> str:
        """Return the number of jobs in each phase as text."""
        return " ".join(f"{phase or 'New'}={count}" for phase, count in sorted(self.phases.items()) if count)


def _prepare(bench: Bench, torchq: Installation, options: Options) -> None:
    """Start the process that simulates the pods, and create the queues."""
    bench.start_python(
        "pod-player", "bench.support.pod_player", torchq.server.kubeconfig, str(options.threads), stage=2
    )
    for number in range(options.queues):
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind}
        torchq.admin.create(TENANT_QUEUES, {**body, "metadata": {"name": f"team-{number}"}, "spec": {"weight": 1}})


def _wait(bench: Bench, torchq: Installation, tally: Tally, options: Options) -> None:
    """Wait until all jobs have ended and nothing is charged."""
    deadline = time.monotonic() + options.seconds
    pause = threading.Event()
    store = torchq.store()
    while tally.ended < options.jobs or store.all_reservations():
        if time.monotonic() > deadline:
            raise BenchError(f"not all jobs ended in {options.seconds:.0f} s: {tally.text()}{bench.logs()}")
        pause.wait(_POLL_SECONDS)


def _phase(manifest: Manifest) -> tuple[str, int]:
    status: dict[str, Any] = manifest.get("status") or {}
    return str(status.get("phase") or ""), int(status.get("attempt") or 0)
