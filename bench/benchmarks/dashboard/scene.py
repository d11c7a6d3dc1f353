"""A made-up cluster of any size, as the dashboard reads it, of which some jobs and queues change at each reading."""

import random
from collections.abc import Callable, Collection
from typing import Any, cast

from coordinator.access.readers import EVERYWHERE
from coordinator.dashboard.readings import Reading, queue_wait
from coordinator.dashboard.visitors import Visitor
from coordinator.errors import CoordinatorError
from coordinator.query.bounds import Bounds
from coordinator.query.questions import Document
from crds import timestamps
from crds.api_resources import TORCHJOBS
from kube.api import Manifest

_BEGIN = 1_760_000_000
_GPU = "nvidia.com/gpu"
_ALIVE: Document = {
    "leader": "leader-1",
    "epoch": 1,
    "failing": "",
    "redis": "",
    "workers": {"worker-1": 16},
    "jobs": {"waiting": 1, "admitted": 1},
    "work": {"ready": 0},
}


class Scene:
    """A cluster: what `newest` returns is its reading now. `Readings` is what pages know it as."""

    def __init__(self, jobs: int, queues: int, changes: int) -> None:
        self._changes = changes
        self._chance = random.Random(7)
        self._jobs = [_job(number, queues) for number in range(jobs)]
        self._queues = [_queue(number, jobs // queues) for number in range(queues)]
        self._waits = {queue_wait(item["metadata"]["name"]): float(_BEGIN) for item in self._queues}
        self._number = 0
        self.on_reading: Callable[[], object] = lambda: None
        self.present = self._reading()

    def newest(self) -> Reading:
        """Return the reading of now."""
        return self.present

    def step(self) -> None:
        """Change some jobs, and as many queues as there are such jobs in all, and read everything."""
        now = _time(self._number)
        for _ in range(self._changes):
            at = self._chance.randrange(len(self._jobs))
            job = self._jobs[at]
            status = {
                "phase": self._chance.choice(("Queued", "Running", "Succeeded")),
                "startTime": now,
            }
            version = {"resourceVersion": str(self._number + 2)}
            self._jobs[at] = {**job, "metadata": {**job["metadata"], **version}, "status": status}
            place = int(job["spec"]["schedulingPolicy"]["queue"].removeprefix("queue-"))
            self._queues[place] = _later(self._queues[place], self._chance.choice((-1, 1)))
        self.present = self._reading()
        self.on_reading()

    def lists(self) -> tuple[list[Manifest], list[Document]]:
        """Return all jobs and all queues."""
        return self._jobs, self._queues

    def _reading(self) -> Reading:
        self._number += 1
        at = float(_BEGIN + 100_000 + self._number)
        picks = [_pick(number, job) for number, job in enumerate(self._jobs[:10], 1)]
        pool = {"capacity": {_GPU: "8000", "cpu": "64000", "memory": "512Ti"}, "used": {_GPU: "5000", "cpu": "1000"}}
        return Reading(
            number=self._number,
            at=at,
            jobs=tuple(self._jobs),
            jobs_version=self._number,
            queues=tuple(self._queues),
            upcoming={"items": picks[:3], "pool": pool, "waiting": len(self._jobs) // 2},
            in_order={"items": picks},
            status=_ALIVE,
            figures_at=at,
            began=self._waits,
        )


def visitor() -> Visitor:
    """Return a visitor who may see everything, and asks no server."""
    everything = Bounds(EVERYWHERE, lambda _: True, lambda _: True)

    def bounds(_namespaces: Collection[str]) -> Bounds:
        return everything

    def nothing() -> Any:
        raise CoordinatorError("no recorder keeps the history")

    return Visitor(
        "bench",
        cast(Any, None),
        nothing,
        nothing,
        bounds,
        may_act=False,
        may=lambda _: False,
        known_bounds=lambda: everything,
    )


def _time(seconds: float) -> str:
    return timestamps.format_time(_BEGIN + seconds)


def _job(number: int, queues: int) -> Manifest:
    container = {"resources": {"requests": {"cpu": "8", _GPU: "1"}}}
    tasks = {"Worker": {"numTasks": 4, "template": {"spec": {"containers": [container]}}}}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {
            "namespace": f"team-{number % queues}",
            "name": f"train-{number:05}",
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "creationTimestamp": _time(number),
        },
        "spec": {"torchTaskSpecs": tasks, "schedulingPolicy": {"queue": f"queue-{number % queues}"}},
        "status": {"phase": "Queued" if number % 2 else "Running", "startTime": _time(number + 60)},
    }


def _queue(number: int, jobs: int) -> Document:
    """Return a queue as it is at first. The busiest queues have twice the jobs of the mean."""
    waiting = 2 * jobs * number % (2 * jobs + 1)
    return {
        "metadata": {"name": f"queue-{number}"},
        "spec": {"weight": 1 + number % 4, "quota": {_GPU: "16", "cpu": "128"}, "namespaces": [f"team-{number}"]},
        "status": {
            "pending": waiting,
            "admitted": 3,
            "usage": {_GPU: "12", "cpu": "96"},
            "idleUsage": {},
            "share": "10.0%",
            "target": "10.0%",
            "lag": None,
            "first": None,
            "oldestWaitSeconds": 3600.0,
        },
    }


def _later(queue: Document, more: int) -> Document:
    """Return a queue of which a job was admitted (`more` is 1) or has ended (-1)."""
    status = queue["status"]
    admitted = max(0, status["admitted"] + more)
    changes = {
        "pending": max(0, status["pending"] - more),
        "admitted": admitted,
        "usage": {_GPU: str(4 * admitted), "cpu": str(32 * admitted)},
        "share": f"{10.0 + admitted / 10}%",
    }
    return {**queue, "status": {**status, **changes}}


def _pick(number: int, job: Manifest) -> Document:
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    queue = job["spec"]["schedulingPolicy"]["queue"]
    return {"pick": number, "job": name, "uid": name, "queue": queue, "workers": 4, "demand": {_GPU: "4"}}
