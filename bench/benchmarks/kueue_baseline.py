"""Runs Kueue's own scalability test (`bench.support.baseline.scenario`) on the coordinator, store and workers of
production.

One rule: every figure is observed from outside: jobs by a watch, charges in Redis, requests by the API server's counts.
Only where held time goes (`bench.support.baseline.held_time`) is what torchq's processes log.

Without pods (`none`, as in Kueue's test), workers only write the admission. The benchmark writes that a job has
succeeded when its run time is over. With pods (`one`), each job has a pod, and the benchmark writes the pod's phases.
"""

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bench import report
from bench.options import KUBECONFIG, option
from bench.report import Figures
from bench.support import api_counts, installation, open_loop, panels, pod_player, stack
from bench.support.baseline import held_time
from bench.support.baseline.scenario import CLASSES, Scenario, ScenarioJob
from bench.support.installation import Installation
from bench.support.later import Later
from bench.support.ledger import HELD, JobLedger
from bench.support.open_loop import Sent
from bench.support.panels import PANELS, Panel
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from crds.torchjob.status import TorchJobStatus
from kube import client, errors
from kube.api import Manifest
from kube.informer import Informer
from kube.settings import ConnectionSettings
from queues.errors import QueueError
from queues.store import QueueStore
from reconcilers.plan import status

_SAMPLE_SECONDS = 0.2
_CONFLICT_SECONDS, _RETRY_SECONDS = 0.02, 0.2
_FINISHERS = 48
"""The most ends of jobs that are written at the same time. It is large, so that a slow server delays no other end."""
_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    pods: str = option("none", "pods of each job", choices=("none", "one"))
    jobs_factor: float = option(1.0, "the part of the 15,000 jobs", above=0, most=10)
    workers: int = option(2)
    clients: int = option(2, "processes")
    """The number of processes that create jobs."""
    threads: int = option(16, "of each client")
    seconds: float = option(3_600.0, "the time limit", least=1)
    kubeconfig: str = option("", "use the API server of this kubeconfig", path=KUBECONFIG)
    real: bool = option(False, "start kube-apiserver and etcd (KUBEBUILDER_ASSETS)")


SHORT = Options(jobs_factor=0.005)


def run(options: Options) -> Figures:
    """Start everything, submit the jobs on time, and wait until all have ended and nothing is charged.

    Raises BenchError if a job fails.
    """
    settings = {"TORCHQ_POOL": "none", "TORCHQ_ADMISSION_TIMEOUT": "0", "TORCHQ_LOG_LEVEL": "debug"}
    if options.pods == "none":
        settings["TORCHQ_PODS"] = "none"
    with installation.running(
        kubeconfig=options.kubeconfig, real=options.real, workers=options.workers, settings=settings
    ) as torchq:
        scenario = Scenario(torchq.namespace, options.jobs_factor)
        for queue in scenario.queues():
            torchq.admin.create(TENANT_QUEUES, queue)
        if options.pods == "one":
            torchq.play_pods(options.threads)
        with Play(torchq, scenario, options) as play:
            return {"server": torchq.server.name, **_measure(play, options)}


@dataclass(frozen=True, slots=True)
class Seen:
    """The fields of a job that the benchmark needs."""

    name: str
    phase: str
    version: str
    generation: int
    status: Mapping[str, Any]
    """The job's status; empty once the job has ended."""


class Play:
    """Watches the jobs. Without pods, it ends each job when its run time is over."""

    def __init__(self, torchq: Installation, scenario: Scenario, options: Options) -> None:
        self.torchq = torchq
        self.scenario = scenario
        self.jobs = scenario.jobs()
        self.ledger = JobLedger(self.jobs, scenario.cohort_quota)
        self.later = Later(_FINISHERS)
        self.finishes = 0
        """The number of the benchmark's requests that ended a job."""
        self.ends: dict[str, float] = {}
        """When the end of each job had been written, in seconds since 1970."""
        self._ends = options.pods == "none"
        # This client has a worker's name. The server records owners of fields by name, and several owners cost time.
        self._as_worker = client.connect(ConnectionSettings(kubeconfig=torchq.server.kubeconfig))
        self._informer = Informer(
            torchq.admin, TORCHJOBS, trim=_trim, namespace=torchq.namespace, on_change=self._on_change
        )

    def __enter__(self) -> "Play":
        self.later.__enter__()
        self._informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._informer.stop()
        self.later.__exit__()
        self._as_worker.close()

    def _on_change(self, before: Seen | None, after: Seen | None) -> None:
        if after is None:
            return
        now = time.monotonic()
        entered = self.ledger.record(after.name, before.phase if before else "", after.phase, now)
        if entered and self._ends:
            self.later.at(now + self.jobs[after.name].kind.run_s, lambda: self._end(after.name))

    def _end(self, name: str) -> None:
        """Write that a job has succeeded, unless its admission was revoked before."""
        job = self._informer.get(self.torchq.namespace, name)
        if job is None or job.phase not in HELD:
            return
        change = {"status": success_patch(job, datetime.now(UTC))}
        self.finishes += 1
        try:
            self._as_worker.patch(
                TORCHJOBS,
                name,
                change,
                self.torchq.namespace,
                subresource="status",
                resource_version=job.version,
            )
            self.ends[name] = time.time()
        except errors.Conflict:
            self.later.after(_CONFLICT_SECONDS, lambda: self._end(name))
        except errors.ClusterError:
            self.later.after(_RETRY_SECONDS, lambda: self._end(name))


class Charges:
    """Integrates over time the CPU that all queues are charged in the store."""

    def __init__(self, store: QueueStore) -> None:
        self.cpu_seconds = 0.0
        self._store = store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="charges")

    def __enter__(self) -> "Charges":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(_SAMPLE_SECONDS):
            now = time.monotonic()
            self.cpu_seconds += self._cpu() * (now - last)
            last = now

    def _cpu(self) -> float:
        """Return the charged CPU; 0 while the store does not answer."""
        try:
            return sum(queue.usage.get("cpu", 0) for queue in self._store.snapshot(1).queues) / _MILLI
        except QueueError:
            return 0.0


def _measure(play: Play, options: Options) -> Figures:
    torchq, jobs = play.torchq, len(play.jobs)
    table = open_loop.prepare(torchq, torchq.namespace, play.scenario.plan(), options.clients, options.threads)
    requests, cpu = torchq.requests(), torchq.cpu()
    with Charges(torchq.store()) as charges:
        start = table.open()
        torchq.wait(
            lambda: play.ledger.has_ended(jobs) and not _has_charges(torchq.store()), options.seconds, play.ledger.text
        )
    wall = max(play.ledger.ended.values()) - start
    torchq.bench.wait(table.over, "the submitters")
    sent = table.sent()
    costs = torchq.costs(cpu)
    counted = torchq.requests() - requests
    quota = play.scenario.quota
    return {
        "jobs": jobs,
        "wall_s": round(wall, 2),
        "capacity_bound_s": round(play.scenario.work / quota, 2),
        "admitted_per_s": round(jobs / (max(play.ledger.admitted.values()) - start), 1),
        "usage_percent": round(100 * charges.cpu_seconds / (quota * wall), 1),
        "useful_percent": round(100 * play.scenario.work / (quota * wall), 1),
        **_waits(play.jobs, play.ledger.admitted, sent),
        **_held_time(play, charges.cpu_seconds),
        "api_writes_per_job": _writes(counted, play.finishes, jobs),
        "peak_rss_mb": round(
            sum(peak for name, peak in costs["peak_rss_mb_by_process"].items() if name.startswith(installation.OURS)), 1
        ),
        **costs,
        "sent_back": play.ledger.sent_back,
        "over_quota_cpu": play.ledger.over,
        **open_loop.lateness(sent.values()),
        **({"finish_late_ms": report.milliseconds(play.later.late)} if play.later.late else {}),
        "requests_per_job": api_counts.per_job(counted, jobs),
        "refused": api_counts.failures(counted),
        "log_troubles": stack.troubles(torchq.bench.folder),
        PANELS: list(_panels(play, sent, start)),
    }


def _held_time(play: Play, charged: float) -> Figures:
    bench = play.torchq.bench
    ends = play.ends or pod_player.ends(bench.log("pod-player").read_text())
    workers = "".join(log.read_text(errors="replace") for log in sorted(bench.folder.glob("worker-*.log")))
    found = held_time.moments(workers, bench.log("coordinator").read_text(errors="replace"), ends)
    return held_time.figures(found, {name: job.kind.cpu for name, job in play.jobs.items()}, charged)


def _has_charges(store: QueueStore) -> bool:
    try:
        return bool(store.all_reservations())
    except QueueError:
        return True


def success_patch(job: Seen, now: datetime) -> dict[str, Any]:
    """Return the patch of a job's status with which a worker ends the job."""
    before = TorchJobStatus.model_validate(job.status)
    after = status.enter_status(before, job.generation, "Succeeded", "Succeeded", "its run time is over", now)
    return status.patch_from(before, after.model_copy(update={"completion_time": now}))


def _by_class(
    jobs: Mapping[str, ScenarioJob], admitted: Mapping[str, float], sent: Mapping[str, Sent]
) -> Mapping[str, list[float]]:
    """Return the seconds from the create request to the observed admission, by class of jobs."""
    waits: dict[str, list[float]] = {job_class.name: [] for job_class in CLASSES}
    for name, moment in admitted.items():
        waits[jobs[name].kind.name].append(moment - sent[name].sent)
    return waits


def _panels(play: Play, sent: Mapping[str, Sent], start: float) -> Iterator[Panel]:
    waits = _by_class(play.jobs, play.ledger.admitted, sent)
    lines = {name: panels.shares(values) for name, values in waits.items() if values}
    yield Panel("waits, by class", "waited at most, s", "% of jobs", lines)
    moments = {"created": (creation.sent for creation in sent.values()), "admitted": play.ledger.admitted.values()}
    counted = {**moments, "ended": play.ledger.ended.values()}
    drawn = {name: panels.shares(moment - start for moment in times) for name, times in counted.items()}
    yield Panel("how far", "seconds since the first job", "% of jobs", drawn)


def _waits(jobs: Mapping[str, ScenarioJob], admitted: Mapping[str, float], sent: Mapping[str, Sent]) -> Figures:
    by_class = _by_class(jobs, admitted, sent)
    return {
        "wait_s": {name: round(statistics.fmean(waits), 3) for name, waits in by_class.items()},
        "wait_s_p99": {name: round(sorted(waits)[len(waits) * 99 // 100], 3) for name, waits in by_class.items()},
        "wait_s_max": {name: round(max(waits), 3) for name, waits in by_class.items()},
    }


def _writes(requests: Counter[str], finishes: int, jobs: int) -> float | None:
    """Return torchq's writes per job: all writes except the benchmark's. None if the server publishes no counts."""
    verbs = api_counts.by_verb(requests)
    benchmark_writes = verbs["POST torchjobs"] + verbs["PATCH pods/status"] + finishes
    return round((api_counts.writes(requests) - benchmark_writes) / jobs, 3) if requests else None


def _trim(manifest: Manifest) -> Seen:
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    phase = status.get("phase", "")
    generation = metadata.get("generation", 0)
    return Seen(metadata["name"], phase, metadata["resourceVersion"], generation, status if phase in HELD else {})
