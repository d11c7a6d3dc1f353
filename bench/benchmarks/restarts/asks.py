"""Measures the time from the failure of one pod of a large job until each other pod is asked to restart in place.

One rule: a watch of the benchmark's own sees each write. Before and after, the client alone writes the same annotation
on as many pods of the same server: other programs and the server set a limit that torchq cannot pass.
"""

import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from bench import report
from bench.errors import BenchError
from bench.report import Figures
from bench.support import api_counts, installation, stack
from bench.support.baseline_scenario import MISSING_SCHEDULER
from bench.support.installation import Installation, InstallationOptions
from bench.support.processes import Bench, room
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
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    pods: int = 5_000
    """The number of pods of the job."""
    workers: int = 1
    """The number of worker processes of torchq; one of them has the job at a time."""
    threads: int = 8
    """The most requests at the same time of the played kubelets."""
    restart_seconds: float = 3.0
    """The time that a kubelet takes to restart the containers of a pod."""
    seconds: float = 600.0
    """The time limit of each part."""


SHORT = Options(pods=100)


class Pod(NamedTuple):
    """What the watch shows of a pod."""

    name: str
    uid: str
    asked: str
    metadata: tuple[tuple[str, str], ...]
    """Labels and annotations: only torchq writes them."""
    runs: bool


def run(options: Options) -> Figures:
    """Run the job, let a pod fail, and wait until all pods run again. Raises BenchError if they do not."""
    is_real = ASSETS in os.environ
    installed = InstallationOptions(
        real=is_real,
        workers=options.workers,
        settings={"TORCHQ_POOL": "none", "TORCHQ_IN_PLACE": "kubernetes" if is_real else "local"},
    )
    with room(stack.STOP_SECONDS) as bench, installation.running(bench, installed) as torchq, Asks(torchq) as asks:
        _begin(bench, torchq, options, with_node=is_real)
        runner = Runner(bench, torchq, asks, options)
        runner.wait("the job", lambda: runner.phase == "Running" and asks.running == options.pods)
        driver = runner.driver
        alone = [runner.alone("before")]
        cpu = installation.cpu(bench)
        result = runner.fail()
        costs = installation.costs(bench, cpu)
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


def _begin(bench: Bench, torchq: Installation, options: Options, *, with_node: bool) -> None:
    """Start the kubelets, and submit the job. A node says what the driver of Kubernetes wants to know of all nodes."""
    if with_node:
        torchq.admin.create(NODES, {"apiVersion": "v1", "kind": NODES.kind, "metadata": {"name": "played"}})
        said = {"conditions": [{"type": "Ready", "status": "True"}], "declaredFeatures": [RESTARTS_ALL]}
        torchq.admin.patch(NODES, "played", {"status": said}, subresource="status")
    arguments = (torchq.server.kubeconfig, str(options.threads), str(options.restart_seconds))
    bench.start_python("kubelets", "bench.support.restarts.kubelet_player", *arguments, stage=2)
    bench.wait_said(["kubelets"], "ready")
    queue = f"{torchq.namespace}-0"
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": TENANT_QUEUES.kind, "metadata": {"name": queue}}
    torchq.admin.create(TENANT_QUEUES, body)
    torchq.admin.create(TORCHJOBS, _job(queue, options.pods), torchq.namespace)


def _job(queue: str, pods: int) -> Manifest:
    container = {"name": "torch", "image": "none", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"schedulerName": MISSING_SCHEDULER, "containers": [container]}}
    spec = {
        "schedulingPolicy": {"queue": queue, "gangScheduler": "none"},
        "torchTaskSpecs": {"Worker": {"numTasks": pods, "template": template}},
    }
    return {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": {"name": JOB}, "spec": spec}


class Asks:
    """When a watch showed that each pod was asked, by `time.monotonic`, and how often its metadata were written."""

    def __init__(self, torchq: Installation) -> None:
        self.times: dict[str, float] = {}
        self.writes: Counter[str] = Counter()
        """The writes on each pod until it was asked, that one included."""
        self.running = 0
        self._lock = threading.Lock()
        self._pods = Informer(
            torchq.admin,
            PODS,
            trim=_trim,
            namespace=torchq.namespace,
            label_selector=labels.JOB_UID,
            on_change=self._on_change,
        )

    def __enter__(self) -> "Asks":
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pods.stop()

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

    bench: Bench
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
        """What restarts pods in place."""
        chosen = torchjob.parse(self.torchq.admin.get(TORCHJOBS, JOB, self.torchq.namespace)).status.in_place
        return chosen.driver if chosen is not None else "local"

    def wait(self, what: str, condition: Any) -> None:
        """Wait for a condition. Raises BenchError if the time is over before that."""
        deadline, pause = time.monotonic() + self.options.seconds, threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                raise BenchError(
                    f"{what}: {self.asks.running} pods run, {len(self.asks.times)} were asked{self.bench.logs()}"
                )
            pause.wait(_POLL_SECONDS)

    def alone(self, value: str) -> float:
        """Write an annotation on all pods but one, as a worker does, and return the seconds."""
        names = [name for name in self._names() if name != self._victim]
        change = {"metadata": {"annotations": {_NOTE: value}, "managedFields": UNTRACKED}}
        with ThreadPoolExecutor(Settings().parallel_writes) as callers:
            began = time.monotonic()
            list(callers.map(lambda name: self.torchq.admin.patch(PODS, name, change, self.torchq.namespace), names))
            return time.monotonic() - began

    def fail(self) -> Figures:
        """End one pod with exit code 1, and return how the others were asked."""
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": timestamps.format_time(time.time())}
        container = {"name": "torch", "image": "none", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": "Failed", "containerStatuses": [{**container, "state": {"terminated": ended}}]}
        requests = self.torchq.requests()
        failed = time.monotonic()
        self.torchq.admin.patch(PODS, self._victim, {"status": status}, self.torchq.namespace, subresource="status")
        others = self.options.pods - 1
        self.wait("the asks", lambda: len(self.asks.times) >= others)
        times = [moment - failed for moment in self.asks.times.values()]
        writes = [self.asks.writes[name] for name in self.asks.times]
        requests = self.torchq.requests() - requests
        self.wait("the restart", lambda: self.asks.running == self.options.pods and self.phase == "Running")
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

    def _names(self) -> Sequence[str]:
        return [f"{JOB}-worker-{number}" for number in range(self.options.pods)]
