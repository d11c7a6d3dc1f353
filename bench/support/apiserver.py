"""What the embedded API server gives one client: creates, status patches, reads, and how late a watch is.

One rule: over HTTP through `kube.client`, as every torchq process meets it.
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
    """What to measure."""

    objects: int = 2_000
    """Writes and reads of each kind."""
    threads: int = 8
    """Requests under way at the same time, all from one process."""


SHORT = Options(objects=200)


def run(options: Options) -> Figures:
    """Start a server with empty storage, then one kind of request after the other."""
    with room() as bench:
        cluster = _start(bench)
        local_stack.install(cluster)
        rate = _Rates(options)
        with Follower(cluster) as follower:
            alone = _one_by_one(follower, options.objects // 10)
            jobs = rate(lambda number: follower.create(_job(f"job-{number}")))
            patches = rate(lambda number: _patch_status(cluster, f"job-{number}"))
            bench.wait(lambda: follower.seen >= options.objects + len(alone), "the watch")
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
        "watch_lag_ms_alone": report.milliseconds([seen for _, seen in alone]),
        "watch_lag_ms_crowded": report.milliseconds(crowded),
    }


class Follower:
    """Makes jobs and watches them appear. A lag is from sending the create to having read the event."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sent: dict[str, float] = {}
        self._seen: dict[str, float] = {}
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
    def seen(self) -> int:
        """How many jobs the watch has shown."""
        return len(self._seen)

    def create(self, body: dict[str, Any]) -> str:
        """Make a job; its name."""
        name: str = body["metadata"]["name"]
        self._sent[name] = time.perf_counter()
        self._cluster.create(TORCHJOBS, body, NAMESPACE)
        return name

    def has(self, name: str) -> bool:
        """Whether the watch has shown it."""
        return name in self._seen

    def lag(self, name: str) -> float:
        """Seconds from sending to seeing."""
        return self._seen[name] - self._sent[name]

    def lags(self) -> list[float]:
        """The lag of every job made while others were, too."""
        return [self.lag(name) for name in self._seen if name.startswith("job-")]

    def _read(self) -> None:
        for event in self._watch:
            if event.kind == "ADDED":
                self._seen[event.object["metadata"]["name"]] = time.perf_counter()


class _Rates:
    """Requests per second of an action, many at a time."""

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
    """Seconds to the answer and to the event of creates with nothing else going on."""
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
    """What the coordinator writes about a job that waits."""
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
