"""The durations of the worst outages, with the settings of production.

One rule: durations are measured from outside, on real processes: from the kill to the next admission, from FLUSHALL to
the last restored entry, and from the moment of a new Redis master to the next admission.
"""

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import redis

from crds.api_resources import TORCHJOBS
from kube import errors
from tests.chaos import stores
from tests.chaos.arena import COORDINATORS, START_SECONDS, Arena, Times
from tests.chaos.failovers import AWAY_SECONDS
from tests.support.acceptance.jobs import job, python
from tests.support.sentinel import Installation, Node

PRODUCTION = Times(lease=15.0, deadline=10.0, renew=2.0, running_lease=15.0, resync=60.0)


def takeover(size: int) -> dict[str, Any]:
    """Kill the leader `size` times (default 5), and measure from each kill to the next admission."""
    with tempfile.TemporaryDirectory(prefix="torchq-chaos-") as folder:
        arena = Arena(Path(folder) / "run", 0, PRODUCTION, cpus=4)
        try:
            arena.start()
            arena.queue("open", 1, {})
            taken = [_takeover(arena, number) for number in range(size or 5)]
        finally:
            arena.stop()
    return {"measure": "takeover", "seconds": taken, "worst": max(taken), "median": statistics.median(taken)}


def _takeover(arena: Arena, number: int) -> float:
    leader = arena.leader()
    began = time.monotonic()
    arena.parts[leader].kill(0.0)
    arena.api().create(TORCHJOBS, job(f"next-{number}", python("pass"), queue="open"), "default")
    arena.until(lambda: _admitted(arena, f"next-{number}"), "an admission")
    seconds = round(time.monotonic() - began, 2)
    arena.until(arena.leader, "a leader")
    arena.until(lambda: all(arena.parts[name].pid for name in COORDINATORS), "both coordinators")
    return seconds


def _admitted(arena: Arena, name: str) -> bool:
    status = arena.api().get(TORCHJOBS, name, "default").get("status") or {}
    return bool(status.get("admission"))


def flush(size: int) -> dict[str, Any]:
    """Flush Redis while `size` jobs (default 10,000) wait, and measure until the queues work again."""
    size = size or 10_000
    with tempfile.TemporaryDirectory(prefix="torchq-chaos-") as folder:
        arena = Arena(Path(folder) / "run", 0, PRODUCTION, cpus=4)
        try:
            arena.start()
            arena.queue("full", 1, {"jobs": 1})
            arena.queue("open", 1, {})
            runs = _flushes(arena, size)
        finally:
            arena.stop()
    return {"measure": "flush", "jobs": size, "runs": runs, "worst": max(run["admitting"] for run in runs)}


def _flushes(arena: Arena, size: int) -> list[dict[str, float]]:
    first = job("first", python("import time; time.sleep(100000)"), queue="full")
    api = arena.api(30.0)
    api.create(TORCHJOBS, first, "default")
    arena.until(lambda: _admitted(arena, "first"), "the first job's admission")
    body = job("waits", python("pass"), queue="full")

    def create(number: int) -> None:
        with contextlib.suppress(errors.AlreadyExists):
            api.create(TORCHJOBS, {**body, "metadata": {"name": f"waits-{number}"}}, "default")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(create, range(size)))
    with contextlib.closing(arena.redis()) as connection:
        arena.until(lambda: connection.hlen("torchq:entries") == size, "all entries", 600)
        arena.until(
            lambda: not connection.get("torchq:work:ready") or int(connection.get("torchq:work:ready")) == 0,
            "the workers to rest",
            600,
        )
        return [_flush(arena, connection, size, number) for number in range(3)]


def _flush(arena: Arena, connection: "redis.Redis", size: int, number: int) -> dict[str, float]:
    """Flush Redis once, and measure until the entries are complete and a new job of another queue is admitted."""
    began = time.monotonic()
    connection.flushall()
    arena.api().create(TORCHJOBS, job(f"after-{number}", python("pass"), queue="open"), "default")
    arena.until(lambda: connection.exists("torchq:epoch") and connection.hlen("torchq:entries") >= size, "the entries")
    entries = time.monotonic() - began
    arena.until(lambda: _admitted(arena, f"after-{number}"), "an admission")
    admitting = time.monotonic() - began
    arena.until(lambda: int(connection.get("torchq:work:ready") or 0) == 0, "the workers to rest", 600)
    return {"entries": round(entries, 2), "admitting": round(admitting, 2)}


def failover(size: int) -> dict[str, Any]:
    """Replace the Redis master in each way `size` times (default 1), and measure from each new master to the next
    admission."""
    with tempfile.TemporaryDirectory(prefix="torchq-chaos-") as folder:
        arena = Arena(Path(folder) / "run", 0, PRODUCTION, cpus=4, sentinels=True)
        try:
            arena.start()
            arena.queue("open", 1, {})
            _admit(arena, "first")  # workers have started
            runs = [_failover(arena, way, number) for number in range(size or 1) for way in _WAYS]
        finally:
            arena.stop()
    return {"measure": "failover", "runs": runs, "worst": max(run["admitting"] for run in runs)}


def _failover(arena: Arena, way: str, number: int) -> dict[str, Any]:
    """Replace the master. The old master comes back after the new master has admitted a job."""
    assert isinstance(arena.store, stores.Sentinels)
    installation = arena.store.installation
    arena.until(installation.is_ready, "replicas of the master")
    old, began = installation.master(), time.monotonic()
    pid = arena.parts[old.name].pid
    _WAYS[way](arena, installation, old)
    arena.until(lambda: installation.has_other_master(old), "another master")
    replaced = time.monotonic()
    _admit(arena, f"{way}-{number}")
    admitting = time.monotonic()
    if arena.parts[old.name].pid == pid:
        os.kill(pid, signal.SIGCONT)
        installation.rejoin(old)
    return {"way": way, "replaced": round(replaced - began, 2), "admitting": round(admitting - replaced, 2)}


def _admit(arena: Arena, name: str) -> None:
    """Submit a job and wait until it is admitted."""
    arena.api().create(TORCHJOBS, job(name, python("pass"), queue="open"), "default")
    arena.until(lambda: _admitted(arena, name), "an admission")


def stop(size: int) -> dict[str, Any]:
    """End each kind of process by SIGTERM `size` times (default 3) while jobs arrive, and measure how long the slowest
    job takes from its creation to its end, beside runs in which no process ends.

    A process is started again, as in a rolling restart. There are two coordinators, and two `torchq worker` on two
    hosts.
    """
    with tempfile.TemporaryDirectory(prefix="torchq-chaos-") as folder:
        arena = Arena(Path(folder) / "run", 0, PRODUCTION, cpus=16)
        try:
            arena.start()
            arena.add_workers("workers-b")
            arena.queue("open", 1, {})
            _admit(arena, "first")
            runs = [_stop(arena, number, kind) for number in range(size or 3) for kind in _PROCESSES]
        finally:
            arena.stop()
    worst = {kind: max(run["slowest"] for run in runs if run["process"] == kind) for kind in _PROCESSES}
    late = {kind: round(seconds - worst["none"], 2) for kind, seconds in worst.items() if kind != "none"}
    return {"measure": "stop", "runs": runs, "slowest": worst, "late": late}


def _stop(arena: Arena, number: int, kind: str) -> dict[str, Any]:
    """Submit jobs for ten seconds, and end a process after three. Return how long the jobs took."""
    arena.until(lambda: arena.leader() and all(arena.parts[name].pid for name in COORDINATORS), "both coordinators")
    arena.until(lambda: len(arena.parts.worker_pids()) == arena.workers, "all workers")
    api = arena.api()
    created: dict[str, float] = {}
    ended: dict[str, float] = {}
    began, is_signalled = time.monotonic(), False
    body = job("any", ["true"], queue="open", cpu="100m")
    while len(ended) < len(created) or time.monotonic() < began + _ARRIVAL_SECONDS:
        arena.parts.tick()
        now = time.monotonic() - began
        assert now < START_SECONDS, f"waited in vain for {created.keys() - ended.keys()}"
        if now >= _ARRIVAL_SECONDS * 0.3 and not is_signalled:
            is_signalled = True
            _PROCESSES[kind](arena)
        if now < _ARRIVAL_SECONDS and now >= len(created) * _PAUSE_SECONDS:
            name = f"{kind}-{number}-{len(created)}"
            api.create(TORCHJOBS, {**body, "metadata": {"name": name}}, "default")
            created[name] = now
        for each in api.list(TORCHJOBS, "default").items:
            name = each["metadata"]["name"]
            if name in created and name not in ended and (each.get("status") or {}).get("phase") == "Succeeded":
                ended[name] = time.monotonic() - began
        time.sleep(0.02)
    taken = sorted(ended[name] - created[name] for name in created)
    for name in created:
        api.delete(TORCHJOBS, name, "default")
    return {
        "process": kind,
        "jobs": len(taken),
        "median": round(statistics.median(taken), 2),
        "slowest": round(taken[-1], 2),
    }


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def _standby(arena: Arena) -> str:
    leader = arena.leader()
    return next(name for name in COORDINATORS if name != leader)


_ARRIVAL_SECONDS = 10.0
_PAUSE_SECONDS = 0.25
_PROCESSES: dict[str, Callable[[Arena], None]] = {
    "none": lambda _: None,
    "leader": lambda arena: _terminate(arena.parts[arena.leader()].pid),
    "standby": lambda arena: _terminate(arena.parts[_standby(arena)].pid),
    "worker": lambda arena: _terminate(arena.parts["workers"].pid),
    "worker-process": lambda arena: _terminate(arena.parts.worker_pids()[0]),
}
_WAYS: dict[str, Callable[[Arena, Installation, Node], None]] = {
    "kill": lambda arena, _, old: arena.parts[old.name].kill(AWAY_SECONDS),
    "stop": lambda arena, _, old: os.kill(arena.parts[old.name].pid, signal.SIGSTOP),
    "failover": lambda _, installation, __: installation.fail_over(),
    "cutoff": lambda _, installation, old: installation.cut_off(old),
}
MEASURES: dict[str, Callable[[int], dict[str, Any]]] = {
    "takeover": takeover,
    "flush": flush,
    "failover": failover,
    "stop": stop,
}
