"""Measures the time from the failure of one pod of a large job until each other pod is asked to restart in place.

One rule: a watch of the benchmark's own sees each write. Before and after, the client alone writes the same annotation
on the same number of pods of the same server: other programs and the server set a limit that torchq cannot pass.
"""

import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from bench import report
from bench.options import option
from bench.report import Figures
from bench.support import api_counts, installation, manifests
from bench.support.installation import Installation
from coordinator.settings import Settings
from crds import labels, timestamps
from crds.api_resources import NODES, PODS, TENANT_QUEUES, TORCHJOBS
from crds.torchjob import torchjob
from kube.api import Manifest
from kube.informer import Informer
from reconcilers.apply.apply import UNTRACKED
from reconcilers.views.node_view import RESTARTS_ALL

JOB = "large"
ASSETS = "KUBEBUILDER_ASSETS"
_NOTE = "bench/asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    pods: int = option(5_000, "of the one job")
    workers: int = option(1, "worker processes")
    """One of them has the job at a time."""
    threads: int = 8
    """The most requests at the same time of the played kubelets."""
    restart_seconds: float = option(3.0, "of a pod", least=0)
    seconds: float = 600.0
    """The time limit of each part."""


SHORT = Options(pods=100)


class Pod(NamedTuple):
    """The part of a pod that the watch keeps."""

    name: str
    uid: str
    asked: str
    metadata: tuple[tuple[str, str], ...]
    """Labels and annotations: only torchq writes them."""
    runs: bool


def run(options: Options) -> Figures:
    """Run the job, let a pod fail, and wait until all pods run again. Raises BenchError if the pods do not."""
    is_real = ASSETS in os.environ
    settings = {"TORCHQ_POOL": "none", "TORCHQ_IN_PLACE": "kubernetes" if is_real else "local"}
    running = installation.running(real=is_real, workers=options.workers, settings=settings)
    with running as torchq, (asks := Asks(torchq)).informer:
        _begin(torchq, options, with_node=is_real)
        runner = Runner(torchq, asks, options)
        runner.wait(lambda: runner.phase == "Running" and asks.running == options.pods)
        driver = runner.driver
        alone = [runner.alone("before")]
        cpu = torchq.cpu()
        result = runner.fail()
        costs = torchq.costs(cpu)
        alone.append(runner.alone("after"))
    seconds = statistics.mean(alone)
    return {
        "server": torchq.server.name,
        "driver": driver,
        **result,
        "alone_s": round(seconds, 2),
        "times_alone": round(result["last_ask_s"] / seconds, 2),
        **costs,
    }


def _begin(torchq: Installation, options: Options, *, with_node: bool) -> None:
    """Start the kubelets, and submit the job. A node declares the features that the driver of Kubernetes needs on all
    nodes.
    """
    if with_node:
        torchq.admin.create(NODES, {"apiVersion": "v1", "kind": NODES.kind, "metadata": {"name": "played"}})
        said = {"conditions": [{"type": "Ready", "status": "True"}], "declaredFeatures": [RESTARTS_ALL]}
        torchq.admin.patch(NODES, "played", {"status": said}, subresource="status")
    arguments = (torchq.server.kubeconfig, str(options.threads), str(options.restart_seconds))
    torchq.bench.start_python("kubelets", "bench.support.kubelet_player", *arguments, stage=2)
    torchq.bench.wait_said(["kubelets"], "ready")
    queue = f"{torchq.namespace}-0"
    torchq.admin.create(TENANT_QUEUES, manifests.queue(queue))
    tasks = {"Worker": manifests.task(numTasks=options.pods)}
    job = manifests.job(JOB, queue, tasks, schedulingPolicy={"gangScheduler": "none"})
    torchq.admin.create(TORCHJOBS, job, torchq.namespace)


class Asks:
    """When a watch showed that each pod was asked, by `time.monotonic`, and how often its metadata were written."""

    def __init__(self, torchq: Installation) -> None:
        self.times: dict[str, float] = {}
        self.writes: Counter[str] = Counter()
        """The writes on each pod until it was asked, that one included."""
        self.running = 0
        self._lock = threading.Lock()
        self.informer = Informer(
            torchq.admin,
            PODS,
            trim=_trim,
            namespace=torchq.namespace,
            label_selector=labels.JOB_UID,
            on_change=self._on_change,
        )

    def _on_change(self, before: Pod | None, after: Pod | None) -> None:
        with self._lock:
            self.running += (after is not None and after.runs) - (before is not None and before.runs)
            if before is None or after is None or before.uid != after.uid or before.metadata == after.metadata:
                return
            if after.name not in self.times:
                self.writes[after.name] += 1
            if after.asked and after.asked != before.asked:
                self.times[after.name] = time.monotonic()


def _trim(manifest: Manifest) -> Pod:
    metadata = manifest["metadata"]
    notes: dict[str, str] = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != _NOTE}
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        asked=notes.get(labels.RESTART_CONTAINERS, ""),
        metadata=tuple(sorted({**notes, **metadata["labels"]}.items())),
        runs=(manifest.get("status") or {}).get("phase") == "Running",
    )


@dataclass(frozen=True, slots=True)
class Runner:
    """The parts of the run."""

    torchq: Installation
    asks: Asks
    options: Options

    @property
    def phase(self) -> str:
        """The phase of the job."""
        job = self.torchq.admin.get(TORCHJOBS, JOB, self.torchq.namespace)
        return str((job.get("status") or {}).get("phase"))

    @property
    def driver(self) -> str:
        """The driver that restarts pods in place."""
        chosen = torchjob.parse(self.torchq.admin.get(TORCHJOBS, JOB, self.torchq.namespace)).status.in_place
        return chosen.driver if chosen is not None else "local"

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises BenchError if the time is over before this state."""
        asks = self.asks
        self.torchq.wait(
            condition, self.options.seconds, lambda: f"{asks.running} pods run, {len(asks.times)} were asked"
        )

    def alone(self, value: str) -> float:
        """Write an annotation on all pods but one, as a worker does, and return the seconds."""
        names = [f"{JOB}-worker-{number}" for number in range(self.options.pods)]
        names.remove(self._victim)
        change = {"metadata": {"annotations": {_NOTE: value}, "managedFields": UNTRACKED}}
        with ThreadPoolExecutor(Settings().parallel_writes) as callers:
            began = time.monotonic()
            list(callers.map(lambda name: self.torchq.admin.patch(PODS, name, change, self.torchq.namespace), names))
            return time.monotonic() - began

    def fail(self) -> Figures:
        """End one pod with exit code 1, and return the figures of the requests to the other pods."""
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": timestamps.format_time(time.time())}
        container = {"name": "torch", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
        requests = self.torchq.requests()
        failed = time.monotonic()
        self.torchq.admin.patch(PODS, self._victim, {"status": status}, self.torchq.namespace, subresource="status")
        others = self.options.pods - 1
        self.wait(lambda: len(self.asks.times) >= others)
        times = [moment - failed for moment in self.asks.times.values()]
        writes = [self.asks.writes[name] for name in self.asks.times]
        requests = self.torchq.requests() - requests
        self.wait(lambda: self.asks.running == self.options.pods and self.phase == "Running")
        return {
            "first_ask_s": round(min(times), 2),
            "last_ask_s": round(max(times), 2),
            "ask_ms": report.milliseconds(times),
            "most_writes_per_pod": max(writes),
            "requests_until_then": api_counts.by_verb(requests),
            "all_run_again_s": round(time.monotonic() - failed, 2),
        }

    @property
    def _victim(self) -> str:
        return f"{JOB}-worker-{self.options.pods // 2}"
