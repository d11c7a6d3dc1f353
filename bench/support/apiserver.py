"""The rates of creates, status patches and reads that the embedded API server gives one client, and the lag of a watch.

One rule: all requests go over HTTP through `kube.client`, as those of every torchq process.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench import report
from bench.report import Figures
from bench.support import stack
from bench.support.processes import Bench, room
from coordinator.local import stack as local_stack
from crds.api_resources import PODS, TORCHJOBS
from kube import client
from kube.api import Cluster, Watch
from kube.settings import ConnectionSettings

NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    objects: int = 2_000
    """The number of requests of each kind."""
    threads: int = 8
    """The number of concurrent requests, all from one process."""


SHORT = Options(objects=200)


def run(options: Options) -> Figures:
    """Start a server with empty storage, then measure one kind of request after the other."""
    with room() as bench:
        cluster = _start(bench)
        local_stack.install(cluster)
        rate = _Rates(options)
        with Follower(cluster) as follower:
            alone = _one_by_one(follower, options.objects // 10)
            jobs = rate(lambda number: follower.create(_job(f"job-{number}")))
            patches = rate(lambda number: _patch_status(cluster, f"job-{number}"))
            bench.wait(lambda: follower.count >= options.objects + len(alone), "the watch")
            crowded = follower.lags()
        pods = rate(lambda number: cluster.create(PODS, _pod(f"pod-{number}"), NAMESPACE))
        reads = rate(lambda number: cluster.get(TORCHJOBS, f"job-{number}", NAMESPACE))
        cluster.close()
    return {
        "job_creates_per_s": jobs,
        "status_patches_per_s": patches,
        "pod_creates_per_s": pods,
        "gets_per_s": reads,
        "create_ms_alone": report.milliseconds([answered for answered, _ in alone]),
        "watch_lag_ms_alone": report.milliseconds([lag for _, lag in alone]),
        "watch_lag_ms_crowded": report.milliseconds(crowded),
    }


class Follower:
    """A client that creates jobs and watches them appear. The lag of a job is the time from sending the create to
    reading the event."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sent: dict[str, float] = {}
        self._event_times: dict[str, float] = {}
        self._thread = threading.Thread(target=self._read, name="follower", daemon=True)

    def __enter__(self) -> "Follower":
        version = self._cluster.list(TORCHJOBS).resource_version
        self._watch: Watch = self._cluster.watch(TORCHJOBS, resource_version=version)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()
        self._thread.join()

    @property
    def count(self) -> int:
        """The number of jobs whose event has arrived."""
        return len(self._event_times)

    def create(self, body: dict[str, Any]) -> str:
        """Create a job and return its name."""
        name: str = body["metadata"]["name"]
        self._sent[name] = time.perf_counter()
        self._cluster.create(TORCHJOBS, body, NAMESPACE)
        return name

    def has(self, name: str) -> bool:
        """Return whether the event of a job has arrived."""
        return name in self._event_times

    def lag(self, name: str) -> float:
        """Return the lag of a job in seconds."""
        return self._event_times[name] - self._sent[name]

    def lags(self) -> list[float]:
        """Return the lag of every job that was created together with others."""
        return [self.lag(name) for name in self._event_times if name.startswith("job-")]

    def _read(self) -> None:
        for event in self._watch:
            if event.kind == "ADDED":
                self._event_times[event.object["metadata"]["name"]] = time.perf_counter()


class _Rates:
    """A measure of an action's rate per second, with concurrent calls."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, action: Callable[[int], object]) -> float:
        with ThreadPoolExecutor(self._options.threads) as pool:
            started = time.perf_counter()
            for _ in pool.map(action, range(self._options.objects)):
                pass
            return self._options.objects / (time.perf_counter() - started)


def _start(bench: Bench) -> client.KubernetesCluster:
    return client.connect(ConnectionSettings(kubeconfig=stack.start_apiserver(bench)))


def _one_by_one(follower: Follower, count: int) -> list[tuple[float, float]]:
    """Create jobs one after the other. Return the seconds to the answer and to the event of each."""
    times = []
    for number in range(count):
        started = time.perf_counter()
        name = follower.create(_job(f"alone-{number}"))
        answered = time.perf_counter() - started
        while not follower.has(name):
            time.sleep(0.0002)
        times.append((answered, follower.lag(name)))
    return times


def _patch_status(cluster: Cluster, name: str) -> None:
    """Write the status that the coordinator writes for a waiting job."""
    queue = {"name": "team-a", "reason": "QuotaExceeded", "message": "the queue's quota has no room for this job"}
    cluster.patch(TORCHJOBS, name, {"status": {"phase": "Queued", "queue": queue}}, NAMESPACE, subresource="status")


def _job(name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [_CONTAINER]}}
    tasks = {"Master": {"template": template}, "Worker": {"numTasks": 3, "template": template}}
    spec = {"schedulingPolicy": {"queue": "team-a"}, "torchTaskSpecs": tasks}
    return {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": {"name": name}, "spec": spec}


def _pod(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [_CONTAINER]}}


_CONTAINER = {
    "name": "torch",
    "image": "pytorch/pytorch:2.13.0-cpu",
    "command": ["python", "train.py"],
    "env": [{"name": f"SETTING_{number}", "value": "x" * 16} for number in range(8)],
    "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
}
