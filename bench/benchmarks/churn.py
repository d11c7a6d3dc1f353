"""Jobs that come and go on an embedded stack, to find resources whose use grows with the number of jobs.

One rule: memory and every count that is visible from outside are sampled against finished jobs. The benchmark sets the
status of the pods itself, so that only torchq and the embedded cluster are measured.

Each job is created and admitted, and its pod is created. The benchmark sets the pod to Succeeded, and the job is
deleted after its ttlSecondsAfterFinished. With `--pods real` the node runs the pods as processes (`true`) instead.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from bench.errors import BenchError
from bench.report import Figures
from bench.support import stack
from bench.support.processes import room
from bench.support.stack import Size, Stack
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube import errors
from kube.api import Manifest
from kube.informer import Informer
from queues.redis import connection

NAMESPACE = "default"
_MISSING_SCHEDULER = "bench-plays-the-node"
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    jobs: int = 100_000
    alive: int = 200
    """The most jobs in the cluster at the same time."""
    queues: int = 4
    threads: int = 4
    samples: int = 20
    pods: str = "played"
    """`played`: the benchmark sets the status of the pods. `real`: the pods are processes."""
    ttl: int = 1
    """The seconds for which a finished job stays."""
    workers: int = 2
    seconds: float = 7_200.0
    """The time limit."""
    log: str = ""
    """A file to which each sample is appended at once, as a line of JSON."""


SHORT = Options(jobs=100, alive=50, samples=3)


def run(options: Options) -> Figures:
    """Keep `alive` jobs in the cluster until all jobs have been created and deleted, and take samples meanwhile. Raises
    BenchError if a job fails."""
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, Size(workers=options.workers))
        running.create_queues(options.queues)
        with Churn(running, options) as churn:
            started, samples = time.monotonic(), [_note(options, _sample(running, 0))]
            for number in range(1, options.samples + 1):
                due = options.jobs * number // options.samples
                subject = f"{due} jobs to be deleted"
                bench.wait(partial(churn.is_done, due), subject, options.seconds, churn.progress)
                samples.append(_note(options, _sample(running, due)))
            wall = time.monotonic() - started
        bench.wait(lambda: running.held().get("pods", 0) == 0, "the last pods to be deleted", 120)
        return {
            "wall_s": round(wall, 1),
            "jobs_per_s": round(options.jobs / wall, 1),
            "growth": growth(samples),
            "samples": samples,
            "log_troubles": running.troubles(),
        }


class Churn:
    """The threads that create jobs as others are deleted, and set the status of their pods."""

    def __init__(self, running: Stack, options: Options) -> None:
        self._running = running
        self._options = options
        self._created = self._deleted = 0
        self._failed = ""
        self._todo: deque[str] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._jobs = Informer(running.cluster, TORCHJOBS, trim=_phase, on_change=self._job_changed)
        self._pods = Informer(
            running.cluster, PODS, trim=_name, label_selector=labels.JOB_UID, on_change=self._pod_changed
        )
        self._threads = [
            threading.Thread(target=self._work, name=f"churn-{number}") for number in range(options.threads)
        ]

    def __enter__(self) -> "Churn":
        for informer in (self._jobs, self._pods):
            informer.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        for informer in (self._jobs, self._pods):
            informer.stop()

    def is_done(self, count: int) -> bool:
        """Return whether `count` jobs have been deleted. Raises BenchError if a job has failed."""
        if self._failed:
            raise BenchError(f"a job failed: {self._failed}")
        return self._deleted >= count

    def progress(self) -> str:
        """Return the number of jobs that were created and deleted."""
        return f"(created {self._created}, deleted {self._deleted})"

    def _job_changed(self, _: Any, after: tuple[str, str] | None) -> None:
        with self._lock:
            self._deleted += after is None
        if after is not None and after[1] == "Failed":
            self._failed = after[0]

    def _pod_changed(self, before: str | None, after: str | None) -> None:
        if self._options.pods == "played" and before is None and after is not None:
            self._todo.append(after)

    def _work(self) -> None:
        while not self._stopping.is_set():
            if self._todo:
                self._play()
            elif number := self._next():
                self._running.cluster.create(TORCHJOBS, job(number, self._options), NAMESPACE)
            else:
                self._stopping.wait(_POLL_SECONDS)

    def _next(self) -> int:
        """Return the number of the next job; 0 if no job may be created now."""
        with self._lock:
            if self._created >= self._options.jobs or self._created - self._deleted >= self._options.alive:
                return 0
            self._created += 1
            return self._created

    def _play(self) -> None:
        try:
            name = self._todo.popleft()
            status = {"status": {"phase": "Succeeded"}}
            self._running.cluster.patch(PODS, name, status, NAMESPACE, subresource="status")
        except (IndexError, errors.NotFound):
            return


def job(number: int, options: Options) -> Manifest:
    """Return a job of one pod."""
    container = {"name": "torch", "image": "none", "command": ["true"]}
    pod = {"containers": [container], **({"schedulerName": _MISSING_SCHEDULER} if options.pods == "played" else {})}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": f"churn-{number}"},
        "spec": {
            "schedulingPolicy": {"queue": f"team-{number % options.queues}"},
            "ttlSecondsAfterFinished": options.ttl,
            "torchTaskSpecs": {"Master": {"template": {"spec": pod}}},
        },
    }


def growth(samples: list[Figures]) -> Figures:
    """Return the growth of each number from the end of the first quarter to the end, per 1,000 jobs."""
    first, last = samples[max(1, len(samples) // 4)], samples[-1]
    thousands = max(1, last["jobs"] - first["jobs"]) / 1_000
    return {name: round((last[name] - first[name]) / thousands, 3) for name in last if name != "jobs"}


def _sample(running: Stack, jobs: int) -> Figures:
    """Return all counts that are visible from outside."""
    figures: Figures = {"jobs": jobs}
    figures |= {f"{name}_rss_mib": usage["rss_mib"] for name, usage in running.usage().items() if name != "supervisor"}
    objects = running.held()
    figures |= {f"api_{name}": objects.get(name, 0) for name in ("watch_history", "watches", "events", "services")}
    with connection.translate_errors(running.redis):
        memory: Any = running.redis.info("memory")
        figures |= {"redis_keys": int(running.redis.dbsize()), "redis_memory_kib": memory["used_memory"] // 1024}
    figures |= {"database_kib": _size(running.data.glob("objects.sqlite*"))}
    figures |= {"log_kib": _size((running.data / "logs").glob("*")), "pod_folders": _entries(running.data / "pods")}
    figures |= {"redis_file_kib": _size((running.data.parent / "appendonlydir").glob("*"))}
    return figures


def _note(options: Options, sample: Figures) -> Figures:
    """Append a sample to the log file, so that a long run has results before its end."""
    if options.log:
        with open(options.log, "ab") as file:
            file.write(orjson.dumps(sample) + b"\n")
    return sample


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths) // 1024


def _entries(folder: Path) -> int:
    return len(list(folder.iterdir())) if folder.exists() else 0


def _phase(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["name"], (manifest.get("status") or {}).get("phase", "")


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
