"""The share of a core that a whole embedded cluster takes while it has nothing to do.

One rule: CPU time is measured, over several windows, and the lowest share is the result: other programs can only raise
it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import manifests, stack
from bench.support.stack import Stack
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from queues.storage import stats

_NAMESPACE = "default"
_REST_SECONDS = 5.0
"""How long the cluster rests after its job: processes write statuses and events until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    windows: int = option(6, "the lowest one counts")
    seconds: float = option(10.0, "the length of a window", least=1)


SHORT = Options(windows=1, seconds=2.0)


def run(options: Options) -> Figures:
    """Start a cluster, let one job end on it, and return the CPU use after that. Raises BenchError if the job does not
    succeed."""
    with stack.running() as running:
        running.cluster.create(TENANT_QUEUES, manifests.queue("team"))
        master = manifests.task()
        del master["template"]["spec"]["schedulerName"]  # the node of the cluster runs the pod
        body = manifests.job("short", "team", {"Master": master})
        running.cluster.create(TORCHJOBS, body, _NAMESPACE)
        running.bench.wait(lambda: _phase(running, body["metadata"]["name"]) == "Succeeded", "the job")
        running.bench.wait(lambda: stats.read(running.redis).leased == 0, "the end of all reconciles")
        time.sleep(_REST_SECONDS)
        return figures([_shares(running, options.seconds) for _ in range(options.windows)])


def figures(windows: list[dict[str, float]]) -> Figures:
    """Return the lowest share of a core in a window, and the shares of the processes in that window."""
    lowest = min(windows, key=lambda shares: sum(shares.values()))
    return {
        "share_of_a_core": round(sum(lowest.values()), 4),
        "shares_by_process": {name: round(share, 4) for name, share in sorted(lowest.items())},
    }


def _phase(running: Stack, name: str) -> str:
    phase = (running.cluster.get(TORCHJOBS, name, _NAMESPACE).get("status") or {}).get("phase", "")
    if phase == "Failed":
        raise BenchError(f"job {name} failed")
    return str(phase)


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
