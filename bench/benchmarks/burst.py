"""Many TorchJobs created at once on a private embedded stack, with pods that end at once, until all have ended.

One rule: what is told is what a watch has shown: a stage's time is when its event came to us.
"""

import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import report
from bench.benchmarks import crowd
from bench.benchmarks.crowd import Crowd
from bench.errors import BenchError
from bench.report import Figures
from bench.support import stack
from bench.support.processes import room
from bench.support.stack import Size, Stack
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
    """What to measure."""

    jobs: int = 10_000
    pods: int = 1
    """Of each job."""
    queues: int = 4
    clients: int = 2
    """Processes that create jobs."""
    threads: int = 4
    """Requests under way at the same time in each of them."""
    cpus: int = 64
    """Of the node; each pod asks for one."""
    workers: int = 2
    seconds: float = 3_600.0
    """When to give up."""


SHORT = Options(jobs=100)


def run(options: Options) -> Figures:
    """Start, burst, wait, tell. BenchError if a job failed, or not all ended in time."""
    submitters = Crowd(
        clients=options.clients,
        threads=options.threads,
        jobs=options.jobs,
        pods=options.pods,
        queues=options.queues,
    )
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, Size(cpus=options.cpus, workers=options.workers))
        with Observer(running, options.jobs * options.pods) as observer:
            before = _counts(running)
            started = crowd.begin(bench, running.kubeconfig, submitters)
            bench.wait(lambda: observer.over(options.jobs), "all jobs to end", options.seconds, observer.progress)
            wall = time.monotonic() - started
            return {
                "wall_s": round(wall, 2),
                "jobs_per_s": round(options.jobs / wall, 1),
                **observer.figures(started),
                **_costs(running, before, options.jobs),
                "submit_troubles": crowd.troubles(bench, submitters),
            }


class Observer:
    """Watches jobs and pods, and samples what only Redis knows."""

    def __init__(self, running: Stack, pods: int) -> None:
        self._running = running
        self._pods_wanted = pods
        self._lock = threading.Lock()
        self._moments: dict[str, dict[str, float]] = {stage: {} for stage in STAGES}
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

    def over(self, jobs: int) -> bool:
        """Whether all have ended and nothing is charged any more. BenchError if one has failed."""
        if self._failed:
            raise BenchError(f"a job failed: {self._failed[0]}")
        return len(self._ended) == jobs and not self._held()

    def progress(self) -> str:
        """How far it is."""
        return " ".join(f"{stage}={len(self._moments[stage])}" for stage in STAGES if stage != "queued")

    def figures(self, started: float) -> Figures:
        """Rates and times by stage."""
        moments = {name: list(each.values()) for name, each in self._moments.items() if each}
        moments["queued"] = [moment for moment, _ in self._queued]
        stages = {name: _stage(moments[name], started) for name in STAGES if name != "queued"}
        stages["queued"] = _queued(self._queued, started)
        created, ended = self._moments["created"], self._moments["succeeded"]
        admitted = self._moments["admitted"]
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
            self._moments["created"].setdefault(name, now)
            if phase in ("Admitted", "Running", *_FINAL):
                self._moments["admitted"].setdefault(name, now)
            if phase in _FINAL:
                self._moments["succeeded"].setdefault(name, now)
                self._ended.add(name)
            if phase == "Failed":
                self._failed.append(f"{name}: {message}")

    def _pod_changed(self, before: str | None, after: str | None) -> None:
        if before is None and after is not None:
            self._moments["pods_created"].setdefault(after, time.monotonic())

    def _sample(self) -> None:
        """The store gives a version to every entry: so many jobs have been put into queues."""
        while not self._stopping.wait(_SAMPLE_SECONDS):
            with connection.translate_errors(self._running.redis):
                self._queued.append((time.monotonic(), int(self._running.redis.get("torchq:version") or 0)))

    def _held(self) -> int:
        with connection.translate_errors(self._running.redis):
            return int(self._running.redis.hlen("torchq:reservations"))


@dataclass(frozen=True, slots=True)
class _Counts:
    """What was asked and spent so far."""

    usage: Mapping[str, Mapping[str, float]]
    requests: Mapping[str, Counter[str]]
    commands: Counter[str]


def _counts(running: Stack) -> _Counts:
    return _Counts(running.usage(), running.requests(), running.commands())


def _costs(running: Stack, before: _Counts, jobs: int) -> Figures:
    """What the burst took: CPU and memory by process, requests by client, Redis commands, troubles."""
    after = _counts(running)
    cpu = {name: round(_cpu(now) - _cpu(before.usage.get(name, {})), 2) for name, now in sorted(after.usage.items())}
    children = [each["node"]["children_cpu_s"] for each in (before.usage, after.usage)]
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


def _queued(samples: list[tuple[float, int]], started: float) -> dict[str, float]:
    """When the store had got the first and the last job, as near as the samples tell."""
    highest = samples[-1][1]
    first = next((moment for moment, version in samples if version), started) - started
    last = next(moment for moment, version in samples if version >= highest) - started
    return {"first_s": round(first, 2), "last_s": round(last, 2), "per_s": round(highest / max(last, 0.001), 1)}


def _job(manifest: Manifest) -> tuple[str, str, str]:
    status = manifest.get("status") or {}
    conditions = status.get("conditions") or [{}]
    message = "; ".join(str(each.get("message", "")) for each in conditions) if status.get("phase") == "Failed" else ""
    return manifest["metadata"]["name"], status.get("phase", ""), message


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
