"""Measures the number of jobs per second that pass from a line of a watch to an entry in Redis.

One rule: the benchmark uses the coordinator's own path: bytes, event, informer, view, route, put. Only the API server
is missing; its lines are prepared beforehand.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import redis_server
from bench.support.processes import room
from coordinator.cache import views
from coordinator.cache.watches import Watches
from coordinator.leader.control_loop import ControlLoop
from coordinator.settings import Settings
from crds.api_resources import TORCHJOBS, Resource
from kube import streams
from kube.api import Listing, WatchEvent
from queues import redis_keys
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.storage.redis_store import RedisStore

PIECE = 65_536
"""The number of bytes that a read from the socket returns."""
LONGEST_SECONDS = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    jobs: int = option(20_000)
    queues: int = option(100)


SHORT = Options(jobs=2_000, queues=20)


class Lines:
    """The part of a cluster that informers use: an empty list, and a watch that returns lines as fast as it is read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        """Serve a watch of TorchJobs; `pieces` are its bytes as they come from the socket."""
        self._pieces = pieces
        self.ended = threading.Event()

    def pages(self, _resource: Resource, _namespace: str = "", *, label_selector: str = "") -> Iterator[Listing]:  # noqa: ARG002
        yield Listing([], "1")

    def serves(self, _resource: Resource) -> bool:
        return False

    def watch(self, resource: Resource, _namespace: str = "", **_: Any) -> "Feed":
        return Feed(self._pieces if resource == TORCHJOBS else (), self.ended)


class Feed:
    """A watch that returns all of its events and then blocks until it is closed."""

    def __init__(self, pieces: Iterable[bytes], ended: threading.Event) -> None:
        self._events = streams.events(pieces, "watch")
        self._ended = ended

    def __iter__(self) -> "Feed":
        return self

    def __next__(self) -> WatchEvent:
        event = next(self._events, None)
        if event is None:
            self._ended.wait()
            raise StopIteration
        return event

    def close(self) -> None:
        self._ended.set()


def run(options: Options) -> Figures:
    """Feed the lines to a leader until every job waits in Redis. Raises LocalError without a Redis server."""
    lines = [line(number, options.queues) for number in range(options.jobs)]
    with room() as bench:
        client = connection.connect(redis_server.start(bench), client_name="torchq-bench")
        worked = time.process_time()
        seconds = _ingest(Lines(_pieces(b"".join(lines))), client, options.jobs)
        worked = time.process_time() - worked
        stored = int(client.hlen(redis_keys.ENTRIES))
        machine = redis_server.operations_per_second(bench.folder)
    if stored != options.jobs:
        raise BenchError(f"{stored} of {options.jobs} jobs are in Redis")
    read, view_seconds = _reading(lines)
    return {
        "ingest_per_s": options.jobs / seconds,
        **machine,
        "bytes_per_line": sum(map(len, lines)) / len(lines),
        "read_cpu_us_per_line": 1e6 * read / len(lines),
        "view_cpu_us_per_line": 1e6 * view_seconds / len(lines),
        "all_us_per_line": 1e6 * seconds / len(lines),
        "cpu_us_per_line": 1e6 * worked / len(lines),
    }


def _ingest(lines: Any, client: connection.Connection, jobs: int) -> float:
    """Return the seconds until the parts of a leader, without its process, have routed this number of jobs."""
    watches = Watches(lines, nodes=False)
    term = ControlLoop(watches, RedisStore(client), RedisWork(client), Settings(pool="none", implicit_queues=True))
    term.rebuild(1)
    begun = time.perf_counter()
    for informer in watches.informers:
        informer.start()
    try:
        while term.counts.routed < jobs:
            watches.wake.clear()
            if not term.flush():
                watches.wake.wait(0.01)
            if time.perf_counter() - begun > LONGEST_SECONDS:
                raise BenchError(f"{term.counts.routed} of {jobs} jobs after {LONGEST_SECONDS:.0f} s")
        return time.perf_counter() - begun
    finally:
        lines.ended.set()
        for informer in watches.informers:
            informer.stop()


def _pieces(text: bytes) -> Iterator[bytes]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _reading(lines: list[bytes]) -> tuple[float, float]:
    """Return the CPU seconds to decode the lines into events, and to make views of the events."""
    view_seconds = 0.0
    begun = time.thread_time()
    for event in streams.events(lines, "watch"):
        read = time.thread_time()
        views.job_view(event.object)
        view_seconds += time.thread_time() - read
    return time.thread_time() - begun - view_seconds, view_seconds


def line(number: int, queues: int) -> bytes:
    """Return a watch's line about a new job as an API server writes it: two task types, defaults, managed fields."""
    name, namespace = f"train-{number:06}", f"team-{number % queues:03}"
    spec = {
        "backoffLimit": 3,
        "cleanPodPolicy": "Running",
        "restartScope": "Task",
        "suspend": False,
        "schedulingPolicy": {"queue": namespace, "priority": number % 3, "hold": False},
        "minMembers": {"Master": 1, "Worker": 3},
        "torchTaskSpecs": {"Master": _task(1, []), "Worker": _task(3, [{"taskType": "Master", "phase": "Running"}])},
    }
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"00000000-0000-4000-8000-{number:012}",
        "resourceVersion": str(number + 2),
        "generation": 1,
        "creationTimestamp": f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z",
        "labels": {"app.kubernetes.io/part-of": "training"},
        "managedFields": [
            {
                "manager": "kubectl-create",
                "operation": "Update",
                "apiVersion": TORCHJOBS.api_version,
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {".": {}, **{f"f:{field}": {} for field in spec}}},
            }
        ],
    }
    body = {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": metadata, "spec": spec}
    return orjson.dumps({"type": "ADDED", "object": body}) + b"\n"


def _task(tasks: int, after: list[dict[str, str]]) -> dict[str, Any]:
    container = {
        "name": "torch",
        "image": "registry.example/train:1.4",
        "command": ["python", "-m", "train", "--epochs", "10"],
        "env": [{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "DATA", "value": "/data"}],
        "resources": {
            "requests": {"cpu": "4", "memory": "16Gi"},
            "limits": {"nvidia.com/gpu": "1", "memory": "16Gi"},
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    }
    template = {"metadata": {"labels": {"tier": "train"}}, "spec": pod}
    return {"numTasks": tasks, "restartPolicy": "OnFailure", "template": template, "dependsOn": after}
