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
from tests.chaos.arena import COORDINATORS, Arena, Times
from tests.chaos.failovers import AWAY_SECONDS
from tests.support.acceptance.jobs import job, python
from tests.support.sentinel import Installation, Node

PRODUCTION = Times(lease=8.0, renew=2.0, running_lease=15.0, resync=60.0)


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
    """Replace the master. It comes back when a job has been admitted with the new one."""
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


_WAYS: dict[str, Callable[[Arena, Installation, Node], None]] = {
    "kill": lambda arena, _, old: arena.parts[old.name].kill(AWAY_SECONDS),
    "stop": lambda arena, _, old: os.kill(arena.parts[old.name].pid, signal.SIGSTOP),
    "failover": lambda _, installation, __: installation.fail_over(),
    "cutoff": lambda _, installation, old: installation.cut_off(old),
}
MEASURES: dict[str, Callable[[int], dict[str, Any]]] = {"takeover": takeover, "flush": flush, "failover": failover}
