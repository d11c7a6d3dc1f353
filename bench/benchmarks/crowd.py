"""Processes that create TorchJobs as fast as they can, all of them begun at once (`bench/support/submitter.py`).

One rule: nothing is created before every process has said that it is ready.
"""

import time
from collections import Counter
from dataclasses import dataclass

import orjson

from bench.support.processes import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """How many there are, and what they create together."""

    clients: int
    threads: int
    """Requests under way at the same time in each of them."""
    jobs: int
    pods: int = 1
    """Of each job."""
    queues: int

    @property
    def names(self) -> list[str]:
        """Of the processes."""
        return [f"submitter-{number}" for number in range(self.clients)]


def begin(bench: Bench, kubeconfig: str, crowd: Crowd) -> float:
    """Let all of them begin at once; when that was, as `time.monotonic` has it."""
    gate, share = bench.folder / "gate", -(-crowd.jobs // crowd.clients)
    for number, name in enumerate(crowd.names):
        first = number * share
        count = min(share, crowd.jobs - first)
        numbers = map(str, (first, count, crowd.threads, crowd.pods, crowd.queues))
        bench.start_python(name, "bench.support.submitter", kubeconfig, str(gate), *numbers, stage=2)
    bench.wait_said(crowd.names, "ready")
    gate.touch()
    return time.monotonic()


def troubles(bench: Bench, crowd: Crowd) -> dict[str, int]:
    """Requests that had to be repeated, by why; once all have ended their work."""
    bench.wait_said(crowd.names, '"troubles"')
    lines = [bench.log(name).read_text().splitlines()[-1] for name in crowd.names]
    return dict(sum((Counter(orjson.loads(line)["troubles"]) for line in lines), Counter()))
