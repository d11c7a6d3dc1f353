"""Measures pods created per second through coordinator and workers, and by the same client alone.

One rule: both create the same pods on the same API server in the same run, and the same watch counts them. The client
runs alone before and after each part, since other work of the machine changes with time.
"""

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, installation, stack
from bench.support.baseline_scenario import MISSING_SCHEDULER
from bench.support.installation import Installation, InstallationOptions
from bench.support.processes import Bench, room
from coordinator.settings import Settings
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer

PART = "bench/part"
"""The label that says in which part of the run a pod was created."""
_POLL_SECONDS = 0.02
_SENT = (
    *("containers", "restartPolicy", "schedulerName", "hostname", "subdomain"),
    *("clusterIP", "ports", "selector", "publishNotReadyAddresses"),
)
"""The fields of the spec of a pod or service that the client sends; the server adds others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    pods: int = 1_000
    """The number of pods in each part of the run."""
    jobs: int = 8
    """The number of jobs in the part with several jobs."""
    workers: int = 2
    rounds: int = 3
    """The number of times that each part is run."""
    kubeconfig: str = ""
    """Kubeconfig of an existing API server; if empty, the benchmark starts its own."""
    real: bool = False
    """Whether the benchmark's own API server is kube-apiserver instead of the embedded one."""
    seconds: float = 300.0
    """The time limit of each part."""


SHORT = Options(pods=160, jobs=8, rounds=1)


@dataclass(frozen=True, slots=True)
class Part:
    """The result of one part of the run."""

    rate: float
    """Pods per second."""
    cpu: float
    """CPU milliseconds per pod, of all processes except the benchmark itself."""


def run(options: Options) -> Figures:
    """Run one job, then several, between runs of the client alone. Raises BenchError if pods are missing."""
    settings = {"TORCHQ_POOL": "none"}
    installed = InstallationOptions(
        kubeconfig=options.kubeconfig, real=options.real, workers=options.workers, settings=settings
    )
    with room(stack.STOP_SECONDS) as bench, installation.running(bench, installed) as torchq, PodTimes(torchq) as times:
        runner = PartRunner(bench, torchq, times, options)
        for number in range(options.jobs):
            body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind}
            torchq.admin.create(TENANT_QUEUES, {**body, "metadata": {"name": f"{torchq.namespace}-{number}"}})
        runner.warm_up()
        requests, cpu = torchq.requests(), installation.cpu(bench)
        alone, one, many = [runner.alone("alone-0")], list[Part](), list[Part]()
        for number in range(options.rounds):
            one.append(runner.through(f"one-{number}", 1))
            many.append(runner.through(f"many-{number}", options.jobs))
            alone.append(runner.alone(f"alone-{number + 1}"))
        counted = torchq.requests() - requests
        costs = installation.costs(bench, cpu)
    return {"server": torchq.server.name, **figures(alone, one, many), **costs, "requests": api_counts.by_verb(counted),
            "refused": api_counts.failures(counted)}  # fmt: skip


def figures(alone: Sequence[Part], one: Sequence[Part], many: Sequence[Part]) -> Figures:
    """Return the median of each part's rounds, and torchq's rates as shares of the client's rates around each round."""
    around = [(before.rate + after.rate) / 2 for before, after in itertools.pairwise(alone)]
    results: Figures = {}
    for name, parts in (("alone", alone), ("one_job", one), ("many_jobs", many)):
        results[f"{name}_pods_per_s"] = round(statistics.median(part.rate for part in parts), 1)
        results[f"{name}_cpu_ms_per_pod"] = round(statistics.median(part.cpu for part in parts), 2)
    for name, parts in (("one_job", one), ("many_jobs", many)):
        shares = [part.rate / yardstick for part, yardstick in zip(parts, around, strict=True)]
        results[f"share_{name}"] = round(statistics.median(shares), 3)
        results[f"shares_{name}"] = [round(share, 3) for share in shares]
    return results


class PodTimes:
    """The times at which a watch showed each pod of each part of the run, by `time.monotonic`."""

    def __init__(self, torchq: Installation) -> None:
        self.moments: dict[str, list[float]] = {}
        self._pods = Informer(
            torchq.admin, PODS, trim=_part, namespace=torchq.namespace, label_selector=PART, on_change=self._on_change
        )

    def __enter__(self) -> "PodTimes":
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pods.stop()

    def count(self, part: str) -> int:
        """Return how many pods of a part have been created."""
        return len(self.moments.get(part, ()))

    def rate(self, part: str) -> float:
        """Return the pods per second of a part, from the first pod to the last."""
        moments = self.moments[part]
        return (len(moments) - 1) / (max(moments) - min(moments))

    def _on_change(self, before: str | None, after: str | None) -> None:
        if before is None and after is not None:
            self.moments.setdefault(after, []).append(time.monotonic())


@dataclass(frozen=True, slots=True)
class PartRunner:
    """The parts of the run."""

    bench: Bench
    torchq: Installation
    times: PodTimes
    options: Options

    def warm_up(self) -> None:
        """Run one job. The pod of its worker, without its references to the job, is what the client creates later."""
        self._submit("warm", 2, 0)
        self._wait("warm", 2)
        pod = self.torchq.admin.get(PODS, "warm-0-worker-0", self.torchq.namespace)
        self._body().write_bytes(orjson.dumps(bare(pod)))

    def alone(self, part: str) -> Part:
        """Run the client alone: one process per worker, each with as many parallel requests as a worker."""
        admin, count = self.torchq.server, -(-self.options.pods // self.options.workers)
        body = orjson.loads(self._body().read_bytes())
        body["metadata"]["labels"] = {**body["metadata"].get("labels", {}), PART: part}
        gate, file = self.bench.folder / f"gate-{part}", self.bench.folder / f"{part}.json"
        file.write_bytes(orjson.dumps(body))
        names = [f"maker-{part}-{number}" for number in range(self.options.workers)]
        for name in names:
            arguments = (admin.accounts[1], str(gate), self.torchq.namespace, str(file), name)
            threads = str(Settings().parallel_writes)
            self.bench.start_python(name, "bench.support.pod_maker", *arguments, str(count), threads, stage=2)
        self.bench.wait_said(names, "ready")
        return self._measure(part, gate.touch, count * self.options.workers)

    def through(self, part: str, jobs: int) -> Part:
        """Run a number of jobs that are submitted together."""
        pods_per_job = self.options.pods // jobs

        def submit() -> None:
            for number in range(jobs):
                self._submit(part, pods_per_job, number)

        return self._measure(part, submit, pods_per_job * jobs)

    def _measure(self, part: str, begin: Callable[[], None], count: int) -> Part:
        before = sum(installation.cpu(self.bench).values())
        begin()
        self._wait(part, count)
        used = sum(installation.cpu(self.bench).values()) - before
        return Part(self.times.rate(part), used / count * 1_000)

    def _submit(self, part: str, pods: int, number: int) -> None:
        queue = f"{self.torchq.namespace}-{number}"
        self.torchq.admin.create(TORCHJOBS, job(f"{part}-{number}", queue, part, pods), self.torchq.namespace)

    def _wait(self, part: str, count: int) -> None:
        deadline, pause = time.monotonic() + self.options.seconds, threading.Event()
        while self.times.count(part) < count:
            if time.monotonic() > deadline:
                raise BenchError(f"{part}: {self.times.count(part)} of {count} pods came{self.bench.logs()}")
            pause.wait(_POLL_SECONDS)

    def _body(self) -> Path:
        return self.bench.folder / "pod.json"


def job(name: str, queue: str, part: str, pods: int) -> Manifest:
    """Return a job whose pods are all created at once and that no scheduler binds."""
    container = {"name": "torch", "image": "none", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": MISSING_SCHEDULER, "containers": [container]}
    task = {"template": {"metadata": {"labels": {PART: part}}, "spec": spec}}
    tasks = {"Master": task, "Worker": {"numTasks": pods - 1, "dependsOn": [], **task}}
    policy = {"queue": queue, "gangScheduler": "none"}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, "torchTaskSpecs": tasks},
    }


def _part(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"][PART])


def bare(body: Manifest, kind: str = "Pod") -> Manifest:
    """Return a pod or service as a worker sends it, but without a job, so that torchq neither counts nor deletes it."""
    metadata = {name: body["metadata"][name] for name in ("annotations",) if name in body["metadata"]}
    spec = {name: body["spec"][name] for name in _SENT if name in body["spec"]}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}


def with_name(body: Manifest, name: str) -> Manifest:
    """Return the same object with another name."""
    return {**body, "metadata": {**body["metadata"], "name": name}}
