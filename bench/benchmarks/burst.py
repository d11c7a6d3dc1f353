"""Many TorchJobs created at once on a private embedded stack, with pods that end at once, until all have ended.

One rule: a stage's time is the time at which the benchmark received its watch event.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import report
from bench.errors import BenchError
from bench.report import Figures
from bench.support import stack
from bench.support.processes import room
from bench.support.stack import Size, Stack
from bench.support.submission import crowd
from bench.support.submission.crowd import Crowd
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer
from queues.redis import connection

STAGES = ("created", "queued", "admitted", "pods_created", "succeeded")
_FINAL = ("Succeeded", "Failed")
_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    jobs: int = 10_000
    pods: int = 1
    """The number of pods of each job."""
    queues: int = 4
    clients: int = 2
    """The number of processes that create jobs."""
    threads: int = 4
    """The number of concurrent requests of each process."""
    cpus: int = 64
    """The cpus of the node; each pod requests one."""
    workers: int = 2
    seconds: float = 3_600.0
    """The time limit."""


SHORT = Options(jobs=100)


def run(options: Options) -> Figures:
    """Start a stack, create all jobs, wait until they end, and return the figures. Raises BenchError if a job failed or
    did not end in time."""
    submitters = Crowd(
        clients=options.clients,
        threads=options.threads,
        jobs=options.jobs,
        pods=options.pods,
        queues=options.queues,
    )
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, Size(cpus=options.cpus, workers=options.workers))
        running.create_queues(options.queues)
        with Observer(running, options.jobs * options.pods) as observer:
            before = _counts(running)
            started = crowd.begin(bench, running.kubeconfig, submitters)
            bench.wait(lambda: observer.is_over(options.jobs), "all jobs to end", options.seconds, observer.progress)
            wall = time.monotonic() - started
            return {
                "wall_s": round(wall, 2),
                "jobs_per_s": round(options.jobs / wall, 1),
                **observer.figures(started),
                **_costs(running, before, options.jobs),
                "submit_troubles": crowd.troubles(bench, submitters),
            }


class Observer:
    """An observer of jobs and pods by watches, and of the store by samples from Redis."""

    def __init__(self, running: Stack, pods: int) -> None:
        self._running = running
        self._pod_count = pods
        self._lock = threading.Lock()
        self._times: dict[str, dict[str, float]] = {stage: {} for stage in STAGES}
        self._queued: list[tuple[float, int]] = []
        self._failed: list[str] = []
        self._ended: set[str] = set()
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="sampler")
        self._jobs = Informer(running.cluster, TORCHJOBS, trim=_job, on_change=self._job_changed)
        self._pods = Informer(
            running.cluster, PODS, trim=_name, label_selector=labels.JOB_UID, on_change=self._pod_changed
        )

    def __enter__(self) -> "Observer":
        for informer in (self._jobs, self._pods):
            informer.start()
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._sampler.join()
        for informer in (self._jobs, self._pods):
            informer.stop()

    def is_over(self, jobs: int) -> bool:
        """Return whether all jobs have ended and hold no reservation. Raises BenchError if a job has failed."""
        if self._failed:
            raise BenchError(f"a job failed: {self._failed[0]}")
        return len(self._ended) == jobs and not self._reservation_count()

    def progress(self) -> str:
        """Return the number of jobs in each stage."""
        return " ".join(f"{stage}={len(self._times[stage])}" for stage in STAGES if stage != "queued")

    def figures(self, started: float) -> Figures:
        """Return the rates and times by stage."""
        moments = {name: list(times.values()) for name, times in self._times.items() if times}
        moments["queued"] = [moment for moment, _ in self._queued]
        stages = {name: _stage(moments[name], started) for name in STAGES if name != "queued"}
        stages["queued"] = _queued_stage(self._queued, started)
        created, ended = self._times["created"], self._times["succeeded"]
        admitted = self._times["admitted"]
        return {
            "stages": {name: stages[name] for name in STAGES},
            "created_to_succeeded_ms": report.milliseconds([ended[name] - created[name] for name in ended]),
            "admitted_to_succeeded_ms": report.milliseconds([ended[name] - admitted[name] for name in ended]),
        }

    def _job_changed(self, _: Any, after: Any) -> None:
        now = time.monotonic()
        if after is None:
            return
        name, phase, message = after
        with self._lock:
            self._times["created"].setdefault(name, now)
            if phase in ("Admitted", "Running", *_FINAL):
                self._times["admitted"].setdefault(name, now)
            if phase in _FINAL:
                self._times["succeeded"].setdefault(name, now)
                self._ended.add(name)
            if phase == "Failed":
                self._failed.append(f"{name}: {message}")

    def _pod_changed(self, before: str | None, after: str | None) -> None:
        if before is None and after is not None:
            self._times["pods_created"].setdefault(after, time.monotonic())

    def _sample(self) -> None:
        """Sample the last version of the store. Every entry has a version of its own, so this is the number of queued
        jobs."""
        while not self._stopping.wait(_SAMPLE_SECONDS):
            with connection.translate_errors(self._running.redis):
                self._queued.append((time.monotonic(), int(self._running.redis.get("torchq:version") or 0)))

    def _reservation_count(self) -> int:
        with connection.translate_errors(self._running.redis):
            return int(self._running.redis.hlen("torchq:reservations"))


@dataclass(frozen=True, slots=True)
class _Counts:
    """The requests and the resource usage up to one moment."""

    usage: Mapping[str, Mapping[str, float]]
    requests: Mapping[str, Counter[str]]
    commands: Counter[str]


def _counts(running: Stack) -> _Counts:
    return _Counts(running.usage(), running.requests(), running.commands())


def _costs(running: Stack, before: _Counts, jobs: int) -> Figures:
    """Return the costs of the burst: CPU and memory by process, requests by client, Redis commands, troubles."""
    after = _counts(running)
    cpu = {name: round(_cpu(now) - _cpu(before.usage.get(name, {})), 2) for name, now in sorted(after.usage.items())}
    children = [usage["node"]["children_cpu_s"] for usage in (before.usage, after.usage)]
    cpu["pods"] = round(children[1] - children[0], 2)
    requests = {
        name: dict((counts - before.requests.get(name, Counter())).most_common())
        for name, counts in sorted(after.requests.items())
    }
    commands = after.commands - before.commands
    return {
        "cpu_s": cpu,
        "max_rss_mib": {name: now["max_rss_mib"] for name, now in sorted(after.usage.items())},
        "requests": requests,
        "requests_per_job": {name: round(sum(counts.values()) / jobs, 2) for name, counts in requests.items()},
        "redis_commands": dict(commands.most_common(12)),
        "database_mib": round((running.data / "objects.sqlite").stat().st_size / 2**20, 1),
        "refused": running.refused(),
        "log_troubles": running.troubles(),
    }


def _cpu(used: Mapping[str, float]) -> float:
    return used.get("cpu_s", 0.0)


def _stage(moments: list[float], started: float) -> dict[str, float]:
    first, last = min(moments) - started, max(moments) - started
    return {"first_s": round(first, 2), "last_s": round(last, 2), "per_s": round(len(moments) / max(last, 0.001), 1)}


def _queued_stage(samples: list[tuple[float, int]], started: float) -> dict[str, float]:
    """Return when the store got the first and the last job, as exactly as the samples allow."""
    highest = samples[-1][1]
    first = next((moment for moment, version in samples if version), started) - started
    last = next(moment for moment, version in samples if version >= highest) - started
    return {"first_s": round(first, 2), "last_s": round(last, 2), "per_s": round(highest / max(last, 0.001), 1)}


def _job(manifest: Manifest) -> tuple[str, str, str]:
    status = manifest.get("status") or {}
    conditions = status.get("conditions") or [{}]
    message = (
        "; ".join(str(condition.get("message", "")) for condition in conditions)
        if status.get("phase") == "Failed"
        else ""
    )
    return manifest["metadata"]["name"], status.get("phase", ""), message


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
