"""Jobs that come and go on an embedded stack: does anything grow with their number?

One rule: memory and every count that can be taken from outside are sampled against finished jobs; the pods are played
through the API, so that nothing but torchq and the embedded cluster is measured.

A job is created, admitted, its pod made; we say that the pod has succeeded, and the job goes by its own
ttlSecondsAfterFinished. `--pods real` has the node run them as processes (`true`) instead.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
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
_NOBODY = "bench-plays-the-node"
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure."""

    jobs: int = 100_000
    alive: int = 200
    """Jobs in the cluster at the same time at most."""
    queues: int = 4
    threads: int = 4
    samples: int = 20
    pods: str = "played"
    """`played` by us, or `real` processes."""
    ttl: int = 1
    """Seconds a finished job stays."""
    workers: int = 2
    seconds: float = 7_200.0
    """When to give up."""
    log: str = ""
    """A file that each sample is added to when it is taken, as a line of JSON."""


SHORT = Options(jobs=100, alive=50, samples=3)


def run(options: Options) -> Figures:
    """Keep so many jobs alive until all have come and gone; samples on the way. BenchError if one fails."""
    with room(stack.STOP_SECONDS) as bench:
        running = stack.start(bench, Size(workers=options.workers))
        with Crowd(running, options) as crowd:
            started, samples = time.monotonic(), [_note(options, _sample(running, 0))]
            for number in range(1, options.samples + 1):
                due = options.jobs * number // options.samples
                bench.wait(lambda due=due: crowd.gone(due), f"{due} jobs to be gone", options.seconds, crowd.told)  # type: ignore[misc]
                samples.append(_note(options, _sample(running, due)))
            wall = time.monotonic() - started
        bench.wait(lambda: running.held().get("pods", 0) == 0, "the last pods to go", 120)
        return {
            "wall_s": round(wall, 1),
            "jobs_per_s": round(options.jobs / wall, 1),
            "growth": growth(samples),
            "samples": samples,
            "log_troubles": running.troubles(),
        }


class Crowd:
    """Makes jobs as others go, and plays their pods."""

    def __init__(self, running: Stack, options: Options) -> None:
        self._running = running
        self._options = options
        self._made = self._gone = 0
        self._failed = ""
        self._todo: deque[str] = deque()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._jobs = Informer(running.cluster, TORCHJOBS, trim=_phase, on_change=self._job_changed)
        self._pods = Informer(
            running.cluster, PODS, trim=_name, label_selector=labels.JOB_UID, on_change=self._pod_changed
        )
        self._threads = [threading.Thread(target=self._work, name=f"crowd-{each}") for each in range(options.threads)]

    def __enter__(self) -> "Crowd":
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

    def gone(self, count: int) -> bool:
        """Whether so many have come and gone. BenchError if one failed."""
        if self._failed:
            raise BenchError(f"a job failed: {self._failed}")
        return self._gone >= count

    def told(self) -> str:
        """How far it is."""
        return f"(made {self._made}, gone {self._gone})"

    def _job_changed(self, _: Any, after: tuple[str, str] | None) -> None:
        with self._lock:
            self._gone += after is None
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
        """The number of the next job; 0 if it is not time."""
        with self._lock:
            if self._made >= self._options.jobs or self._made - self._gone >= self._options.alive:
                return 0
            self._made += 1
            return self._made

    def _play(self) -> None:
        try:
            name = self._todo.popleft()
            status = {"status": {"phase": "Succeeded"}}
            self._running.cluster.patch(PODS, name, status, NAMESPACE, subresource="status")
        except (IndexError, errors.NotFound):
            return


def job(number: int, options: Options) -> Manifest:
    """A job of one pod."""
    container = {"name": "torch", "image": "none", "command": ["true"]}
    pod = {"containers": [container], **({"schedulerName": _NOBODY} if options.pods == "played" else {})}
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
    """What each number grew by from the end of the first quarter to the end, per 1,000 jobs."""
    first, last = samples[max(1, len(samples) // 4)], samples[-1]
    thousands = max(1, last["jobs"] - first["jobs"]) / 1_000
    return {name: round((last[name] - first[name]) / thousands, 3) for name in last if name != "jobs"}


def _sample(running: Stack, jobs: int) -> Figures:
    """Everything that can be counted from outside."""
    found: Figures = {"jobs": jobs}
    found |= {f"{name}_rss_mib": each["rss_mib"] for name, each in running.usage().items() if name != "supervisor"}
    held = running.held()
    found |= {f"api_{name}": held.get(name, 0) for name in ("watch_history", "watches", "events", "services")}
    with connection.translate_errors(running.redis):
        memory: Any = running.redis.info("memory")
        found |= {"redis_keys": int(running.redis.dbsize()), "redis_memory_kib": memory["used_memory"] // 1024}
    found |= {"database_kib": _size(running.data.glob("objects.sqlite*"))}
    found |= {"log_kib": _size((running.data / "logs").glob("*")), "pod_folders": _entries(running.data / "pods")}
    found |= {"redis_file_kib": _size((running.data.parent / "appendonlydir").glob("*"))}
    return found


def _note(options: Options, sample: Figures) -> Figures:
    """So that a long run tells something before its end."""
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
