"""Measures how long a job waits for its admission and its pod when jobs arrive at a fixed rate and nothing is scarce.

One rule: the load is an open loop. The time of a job begins when the job was due, not when its request was sent. The
next job is sent on time even if the request before it was not answered. So a stall counts for every job that it delays.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench import report
from bench.options import KUBECONFIG, option
from bench.report import Figures
from bench.support import api_counts, installation, manifests, open_loop, panels, stack
from bench.support.installation import Installation
from bench.support.ledger import JobLedger
from bench.support.open_loop import Planned
from bench.support.panels import PANELS, Panel
from bench.support.pod_player import RUN_LABEL
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer

_SETTLE_SECONDS = 120.0
"""The time limit for the last pod after the last arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    rate: float = option(20.0, above=0)
    """Jobs per second."""
    seconds: float = option(600.0, least=1)
    arrivals: str = option("poisson", choices=("poisson", "even"))
    """`poisson`: the users are independent."""
    queues: int = option(10)
    run_ms: int = option(1_000, "the run time of pods", least=0)
    workers: int = option(2)
    threads: int = option(32, "threads that create jobs")
    seed: int = option(1, least=None)
    kubeconfig: str = option("", "use the API server of this kubeconfig", path=KUBECONFIG)
    real: bool = option(False, "start kube-apiserver and etcd (KUBEBUILDER_ASSETS)")


SHORT = Options(seconds=5.0)


def run(options: Options) -> Figures:
    """Start everything, submit the jobs, and wait until each has its pod and has ended. Raises BenchError if a job does
    not end."""
    with installation.running(
        kubeconfig=options.kubeconfig, real=options.real, workers=options.workers, settings={"TORCHQ_POOL": "none"}
    ) as torchq:
        for number in range(options.queues):
            torchq.admin.create(TENANT_QUEUES, manifests.queue(f"{torchq.namespace}-{number}"))
        torchq.play_pods(options.threads // 4 or 1)
        with JobTimes(torchq) as job_times:
            return {"server": torchq.server.name, **_measure(torchq, job_times, options)}


class JobTimes:
    """The times at which a watch showed each job's admission, pod and end, by `time.monotonic`."""

    def __init__(self, torchq: Installation) -> None:
        self.ledger = JobLedger()
        self.pods: dict[str, float] = {}
        admin, namespace = torchq.admin, torchq.namespace
        self._jobs = Informer(admin, TORCHJOBS, trim=_phase, namespace=namespace, on_change=self._on_job_change)
        of_jobs = labels.JOB_UID
        self._pods = Informer(
            admin, PODS, trim=_owner, namespace=namespace, label_selector=of_jobs, on_change=self._on_pod_change
        )

    def __enter__(self) -> "JobTimes":
        self._jobs.start()
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jobs.stop()
        self._pods.stop()

    def _on_job_change(self, before: tuple[str, str] | None, after: tuple[str, str] | None) -> None:
        if after is not None:
            self.ledger.record(after[0], before[1] if before else "", after[1], time.monotonic())

    def _on_pod_change(self, before: str | None, after: str | None) -> None:
        if before is None and after is not None:
            self.pods.setdefault(after, time.monotonic())


def _measure(torchq: Installation, job_times: JobTimes, options: Options) -> Figures:
    planned = list(plan(torchq.namespace, options))
    table = open_loop.prepare(torchq, torchq.namespace, planned, 1, options.threads)
    requests, cpu = torchq.requests(), torchq.cpu()
    table.open()
    ledger = job_times.ledger
    torchq.wait(lambda: ledger.has_ended(len(planned)), options.seconds + _SETTLE_SECONDS, ledger.text)
    torchq.bench.wait(table.over, "the submitter")
    sent = table.sent()
    costs = torchq.costs(cpu)
    counted = torchq.requests() - requests
    moments = {"admitted": ledger.admitted, "pod_created": job_times.pods}
    since = {stage: [at - sent[name].due for name, at in times.items()] for stage, times in moments.items()}
    times = {stage: report.milliseconds(seconds) for stage, seconds in since.items()}
    lines = {stage: panels.shares(1000 * each for each in seconds) for stage, seconds in since.items() if seconds}
    return {
        "jobs": len(planned),
        **{f"{name}_ms": times["pod_created"][name] for name in ("p50", "p95", "p99", "max")},
        **{f"{stage}_ms": times[stage] for stage in moments},
        **open_loop.lateness(sent.values()),
        **costs,
        "requests_per_job": api_counts.per_job(counted, len(planned)),
        "refused": api_counts.failures(counted),
        "log_troubles": stack.troubles(torchq.bench.folder),
        PANELS: [Panel("since the moment each job was to arrive", "at most, ms", "% of jobs", lines)],
    }


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
    return manifests.job(f"latency-{number}", queue, {"Master": manifests.task({RUN_LABEL: str(run_ms)})})


def _phase(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["name"], (manifest.get("status") or {}).get("phase", "")


def _owner(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"][labels.JOB_NAME])
