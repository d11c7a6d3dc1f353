"""Measures how long a job waits for its admission and its pod when jobs arrive at a fixed rate and nothing is scarce.

One rule: the load is an open loop. The time of a job begins when the job was due, not when its request was sent. The
next job is sent on time even if the request before it was not answered. So a stall counts for every job that it delays.
"""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import report
from bench.benchmarks import open_loop
from bench.benchmarks.open_loop import Planned, Sent
from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, installation, panels, stack
from bench.support.baseline_scenario import MISSING_SCHEDULER
from bench.support.installation import Installation, InstallationOptions
from bench.support.ledger import FINAL, HELD
from bench.support.panels import PANELS, Panel
from bench.support.pod_player import RUN_LABEL
from bench.support.processes import Bench, room
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer

_POLL_SECONDS = 0.1
_SETTLE_SECONDS = 120.0
"""The time limit for the last pod after the last arrival."""
STAGES = ("admitted", "pod_created")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    rate: float = 20.0
    """Jobs per second."""
    seconds: float = 600.0
    arrivals: str = "poisson"
    """`poisson` (independent users) or `even`."""
    queues: int = 10
    run_ms: int = 1_000
    """The simulated run time of each pod."""
    kubeconfig: str = ""
    """Kubeconfig of an existing API server; if empty, the benchmark starts its own."""
    real: bool = False
    """Whether the benchmark's own API server is kube-apiserver instead of the embedded one."""
    workers: int = 2
    threads: int = 32
    """The most create requests at the same time."""
    seed: int = 1


SHORT = Options(seconds=5.0)


def run(options: Options) -> Figures:
    """Start everything, submit the jobs, and wait until each has its pod and has ended. Raises BenchError if a job does
    not end."""
    settings = {"TORCHQ_POOL": "none"}
    installed = InstallationOptions(
        kubeconfig=options.kubeconfig, real=options.real, workers=options.workers, settings=settings
    )
    with room(stack.STOP_SECONDS) as bench, installation.running(bench, installed) as torchq:
        for number in range(options.queues):
            body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind}
            torchq.admin.create(TENANT_QUEUES, {**body, "metadata": {"name": f"{torchq.namespace}-{number}"}})
        arguments = (torchq.server.kubeconfig, str(options.threads // 4 or 1))
        bench.start_python("pod-player", "bench.support.pod_player", *arguments, stage=2)
        with JobTimes(torchq) as job_times:
            return {"server": torchq.server.name, **_measure(bench, torchq, job_times, options)}


class JobTimes:
    """The times at which a watch showed each job's admission, pod and end, by `time.monotonic`."""

    def __init__(self, torchq: Installation) -> None:
        self.moments: Mapping[str, dict[str, float]] = {stage: {} for stage in STAGES}
        self.ended: set[str] = set()
        self.failed = ""
        namespace = torchq.namespace
        self._jobs = Informer(torchq.admin, TORCHJOBS, trim=_phase, namespace=namespace, on_change=self._on_job_change)
        self._pods = Informer(
            torchq.admin,
            PODS,
            trim=_owner,
            namespace=namespace,
            label_selector=labels.JOB_UID,
            on_change=self._on_pod_change,
        )

    def __enter__(self) -> "JobTimes":
        for informer in (self._jobs, self._pods):
            informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        for informer in (self._jobs, self._pods):
            informer.stop()

    def _on_job_change(self, _: tuple[str, str] | None, after: tuple[str, str] | None) -> None:
        name, phase = after or ("", "")
        if phase in HELD or phase in FINAL:
            self.moments["admitted"].setdefault(name, time.monotonic())
        if phase in FINAL:
            self.ended.add(name)
        if phase == "Failed":
            self.failed = name

    def _on_pod_change(self, before: str | None, after: str | None) -> None:
        if before is None and after is not None:
            self.moments["pod_created"].setdefault(after, time.monotonic())


def _measure(bench: Bench, torchq: Installation, job_times: JobTimes, options: Options) -> Figures:
    planned = list(plan(torchq.namespace, options))
    table = open_loop.prepare(bench, torchq.server.kubeconfig, torchq.namespace, planned, 1, options.threads)
    requests, cpu = torchq.requests(), installation.cpu(bench)
    table.open()
    _wait(bench, job_times, len(planned), options.seconds + _SETTLE_SECONDS)
    bench.wait(table.over, "the submitter")
    sent = table.sent()
    costs = installation.costs(bench, cpu)
    counted = torchq.requests() - requests
    since = {stage: _since(job_times.moments[stage], sent) for stage in STAGES}
    times = {stage: report.milliseconds(since[stage]) for stage in STAGES}
    lines = {stage: panels.shares(1000 * seconds for seconds in since[stage]) for stage in STAGES if since[stage]}
    return {
        "jobs": len(planned),
        **{f"{name}_ms": times["pod_created"][name] for name in ("p50", "p95", "p99", "max")},
        **{f"{stage}_ms": times[stage] for stage in STAGES},
        **open_loop.lateness(sent.values()),
        **costs,
        "requests_per_job": api_counts.per_job(counted, len(planned)),
        "refused": api_counts.failures(counted),
        "log_troubles": stack.troubles(bench.folder),
        PANELS: [Panel("since the moment each job was to arrive", "at most, ms", "% of jobs", lines)],
    }


def _wait(bench: Bench, job_times: JobTimes, jobs: int, seconds: float) -> None:
    """Wait until all jobs have ended. Processes that die are started again."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while len(job_times.ended) < jobs:
        if job_times.failed:
            raise BenchError(f"job {job_times.failed} failed{bench.logs()}")
        if time.monotonic() > deadline:
            raise BenchError(f"{len(job_times.ended)} of {jobs} jobs ended in {seconds:.0f} s{bench.logs()}")
        bench.keep_alive()
        pause.wait(_POLL_SECONDS)


def plan(prefix: str, options: Options) -> Iterator[Planned]:
    """Yield the jobs with their arrival times, each in a random queue. The same seed gives the same jobs."""
    chance = random.Random(options.seed)
    due, number = 0.0, 0
    while due < options.seconds:
        yield Planned(due, job(number, f"{prefix}-{chance.randrange(options.queues)}", options.run_ms))
        number += 1
        due = due + chance.expovariate(options.rate) if options.arrivals == "poisson" else number / options.rate


def job(number: int, queue: str, run_ms: int) -> Manifest:
    """Return a job of one pod that no scheduler binds."""
    container = {"name": "torch", "image": "none", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": MISSING_SCHEDULER, "containers": [container]}
    template = {"metadata": {"labels": {RUN_LABEL: str(run_ms)}}, "spec": spec}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": f"latency-{number}"},
        "spec": {"schedulingPolicy": {"queue": queue}, "torchTaskSpecs": {"Master": {"template": template}}},
    }


def _since(moments: Mapping[str, float], sent: Mapping[str, Sent]) -> list[float]:
    """Return the seconds since each job was due."""
    return [moment - sent[name].due for name, moment in moments.items()]


def _phase(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["name"], (manifest.get("status") or {}).get("phase", "")


def _owner(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"][labels.JOB_NAME])
