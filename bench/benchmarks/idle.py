"""The CPU that a whole embedded cluster takes while it has nothing to do, and its recorder while jobs run.

One rule: CPU time is measured, over several windows, and the lowest share is the result: other programs can only raise
it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import manifests, stack
from bench.support.stack import Stack
from coordinator.rbac.permissions import RECORDER_LEASE
from crds.api_resources import LEASES, TENANT_QUEUES, TORCHJOBS
from queues.storage import stats

_NAMESPACE = "default"
_REST_SECONDS = 5.0
"""How long the cluster rests after its jobs: processes write statuses and events until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    jobs: int = option(20, "jobs that run at first")
    windows: int = option(6, "the lowest one counts")
    seconds: float = option(10.0, "the length of a window", least=1)


SHORT = Options(jobs=2, windows=1, seconds=2.0)


def run(options: Options) -> Figures:
    """Start a cluster, let jobs end on it, and return the CPU use of these jobs and after them. Raises BenchError if a
    job does not succeed."""
    with stack.running() as running:
        running.bench.wait(
            lambda: running.cluster.list(LEASES, field_selector=f"metadata.name={RECORDER_LEASE}").items, "the recorder"
        )
        pids = running.pids()
        before = _seconds(pids)
        _run_jobs(running, options.jobs)
        running.bench.wait(lambda: stats.read(running.redis).leased == 0, "the end of all reconciles")
        time.sleep(_REST_SECONDS)
        after = _seconds(pids)
        windows = [_shares(running, options.seconds) for _ in range(options.windows)]
        return figures(windows, {name: after[name] - before[name] for name in pids})


def _run_jobs(running: Stack, count: int) -> None:
    running.cluster.create(TENANT_QUEUES, manifests.queue("team"))
    names = [f"short-{number}" for number in range(count)]
    for name in names:
        master = manifests.task()
        del master["template"]["spec"]["schedulerName"]  # the node of the cluster runs the pod
        running.cluster.create(TORCHJOBS, manifests.job(name, "team", {"Master": master}), _NAMESPACE)
    for name in names:
        running.bench.wait(partial(_has_succeeded, running, name), f"job {name}")


def figures(windows: list[dict[str, float]], seconds: dict[str, float]) -> Figures:
    """Return the lowest share of a core in a window, and the shares of the processes in that window; and how much of
    the CPU seconds of the workers the recorder took while jobs ran."""
    lowest = min(windows, key=lambda shares: sum(shares.values()))
    workers = sum(took for name, took in seconds.items() if name.startswith("worker-"))
    return {
        "share_of_a_core": round(sum(lowest.values()), 4),
        "shares_by_process": {name: round(share, 4) for name, share in sorted(lowest.items())},
        "recorder_cpu_of_workers": round(seconds["recorder"] / workers, 2),
    }


def _has_succeeded(running: Stack, name: str) -> bool:
    phase = (running.cluster.get(TORCHJOBS, name, _NAMESPACE).get("status") or {}).get("phase", "")
    if phase == "Failed":
        raise BenchError(f"job {name} failed")
    return bool(phase == "Succeeded")


def _shares(running: Stack, seconds: float) -> dict[str, float]:
    """Return the share of a core that each process takes during a window, with the descendants that have no name."""
    pids = running.pids()
    began, before = time.monotonic(), _seconds(pids)
    time.sleep(seconds)
    took, after = time.monotonic() - began, _seconds(pids)
    return {name: (after[name] - before[name]) / took for name in pids}


def _seconds(pids: dict[str, int]) -> dict[str, float]:
    named = set(pids.values())
    return {name: sum(map(stack.cpu_seconds, _family(pid, named))) for name, pid in pids.items()}


def _family(pid: int, named: set[int]) -> Iterator[int]:
    yield pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if int(child) not in named:
            yield from _family(int(child), named)
