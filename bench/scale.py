"""Many TorchJobs on a real API server, under the accounts of deploy/rbac, with pods whose phases are played.

One rule: every job has to succeed and nothing to stay charged; what the API server counted is told, by verb and code.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench import real_server, redis_server, stack
from bench.errors import BenchError
from bench.processes import Bench, room
from bench.real_server import RealServer
from bench.report import Figures
from cluster.api import Manifest
from cluster.informer import Informer
from coordinator.permissions import COORDINATOR, WORKER
from crds.resources import TENANT_QUEUES, TORCHJOBS
from queues import connection

_FINAL = ("Succeeded", "Failed")
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    jobs: int = 15_000
    queues: int = 30
    workers: int = 2
    cpus: int = 200
    """What the queues share; each job asks for one."""
    clients: int = 1
    """Processes that create jobs."""
    threads: int = 8
    """Requests under way at the same time in each of them, and in the process that plays the pods."""
    seconds: float = 3_600.0
    """When to give up."""


def run(options: Options) -> Figures:
    """Start everything, submit, wait for the end, tell. BenchError if it does not come, or not well."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or ".")
    with room(stack.STOP_SECONDS) as bench:
        server = real_server.start(bench, assets)
        redis = _start(bench, server, options)
        tally = Tally()
        jobs = Informer(server.admin, TORCHJOBS, trim=_phase, on_change=tally.changed)
        with jobs:
            before = server.requests()
            started = _submit(bench, server, options)
            samples = _wait(bench, redis, tally, options)
            wall = time.monotonic() - started
            requests = server.requests() - before
        figures = _figures(bench, tally, samples, options)
        return {
            "wall_s": round(wall, 1),
            "jobs_per_s": round(options.jobs / wall, 1),
            **figures,
            **_asked(requests, options),
        }


class Tally:
    """How many jobs are in which phase, as a watch shows it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.phases: Counter[str] = Counter()
        self.admissions: Counter[int] = Counter()
        """How many jobs ended in their first attempt, their second, ..."""

    def changed(self, before: tuple[str, int] | None, after: tuple[str, int] | None) -> None:
        """One job changed."""
        with self._lock:
            if before:
                self.phases[before[0]] -= 1
            if after:
                self.phases[after[0]] += 1
                if after[0] in _FINAL and (before is None or before[0] != after[0]):
                    self.admissions[after[1]] += 1

    @property
    def ended(self) -> int:
        """Jobs that have ended."""
        return sum(self.phases[each] for each in _FINAL)

    def text(self) -> str:
        """For people who wait."""
        return " ".join(f"{phase or 'New'}={count}" for phase, count in sorted(self.phases.items()) if count)


def _start(bench: Bench, server: RealServer, options: Options) -> connection.Connection:
    """Redis, coordinator, workers, and who plays the pods."""
    url = redis_server.start(bench)
    shared = {"TORCHQ_REDIS_URL": url, "TORCHQ_POOL": f"cpu={options.cpus}"}
    desk = {"TORCHQ_KUBECONFIG": str(server.kubeconfig(COORDINATOR)), **shared}
    bench.start_python("coordinator", "coordinator.cli", "coordinator", stage=3, environment=desk)
    hands = {"TORCHQ_KUBECONFIG": str(server.kubeconfig(WORKER)), **shared}
    for number in range(options.workers):
        bench.start_python(f"worker-{number}", "coordinator.cli", "worker", "--single", stage=3, environment=hands)
    admin = str(server.folder / "admin.kubeconfig")
    bench.start_python("pod-player", "bench.pod_player", admin, str(options.threads), stage=2)
    for number in range(options.queues):
        body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind}
        server.admin.create(TENANT_QUEUES, {**body, "metadata": {"name": f"team-{number}"}, "spec": {"weight": 1}})
    log = bench.folder / "coordinator.log"
    bench.wait(lambda: "leading as" in log.read_text(), "the coordinator", real_server.START_SECONDS)
    return connection.connect(url, client_name="torchq-bench")


def _submit(bench: Bench, server: RealServer, options: Options) -> float:
    """Let all clients begin at once; when that was."""
    gate, share = bench.folder / "gate", -(-options.jobs // options.clients)
    for number in range(options.clients):
        first = number * share
        numbers = (first, min(share, options.jobs - first), options.threads, 1, options.queues)
        arguments = (str(server.folder / "admin.kubeconfig"), str(gate), *map(str, numbers))
        bench.start_python(f"submitter-{number}", "bench.submitter", *arguments, stage=2)
    logs = [bench.folder / f"submitter-{number}.log" for number in range(options.clients)]
    bench.wait(lambda: all(log.exists() and "ready" in log.read_text() for log in logs), "the clients")
    gate.touch()
    return time.monotonic()


def _wait(
    bench: Bench, redis: connection.Connection, tally: Tally, options: Options
) -> Mapping[str, Mapping[str, float]]:
    """Until all have ended and nothing is charged; what each process cost by then."""
    deadline = time.monotonic() + options.seconds
    pause = threading.Event()
    while tally.ended < options.jobs or _charged(redis):
        if time.monotonic() > deadline:
            raise BenchError(f"not all jobs ended in {options.seconds:.0f} s: {tally.text()}{bench.logs()}")
        pause.wait(_POLL_SECONDS)
    return {name: stack.usage(pid) for name, pid in bench.pids().items()}


def _charged(redis: connection.Connection) -> int:
    with connection.translated(redis):
        return int(redis.hlen("torchq:reservations"))


def _figures(bench: Bench, tally: Tally, samples: Mapping[str, Mapping[str, float]], options: Options) -> Figures:
    last = [
        (bench.folder / f"submitter-{number}.log").read_text().splitlines()[-1] for number in range(options.clients)
    ]
    return {
        "phases": {phase: count for phase, count in tally.phases.items() if count},
        "attempts": {str(number): jobs for number, jobs in sorted(tally.admissions.items())},
        "cpu_s": {name: used["cpu_s"] for name, used in samples.items()},
        "max_rss_mib": {name: used["max_rss_mib"] for name, used in samples.items()},
        "submit_troubles": [orjson.loads(line)["troubles"] for line in last],
        "log_troubles": stack.troubles(bench.folder),
    }


def _asked(requests: Counter[str], options: Options) -> Figures:
    """Requests by verb, and those that were refused."""
    by_verb: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for what, count in requests.items():
        verb, _, code = what.rpartition(" ")
        by_verb[verb] += count
        if not code.startswith(("2", "0")):
            refused[what] += count
    per_job = {
        what: round(count / options.jobs, 3) for what, count in by_verb.most_common() if count * 100 > options.jobs
    }
    return {"requests_per_job": per_job, "refused": dict(refused.most_common())}


def _phase(manifest: Manifest) -> tuple[str, int]:
    status: dict[str, Any] = manifest.get("status") or {}
    return str(status.get("phase") or ""), int(status.get("attempt") or 0)
