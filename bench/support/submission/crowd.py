"""Processes that create TorchJobs as fast as they can and start together (`bench/support/submission/submitter.py`).

One rule: no job is created before every process has logged that it is ready.
"""

import time
from collections import Counter
from dataclasses import dataclass

import orjson

from bench.support.processes import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The number of processes and the jobs that they create together."""

    clients: int
    threads: int
    """The number of concurrent requests of each process."""
    jobs: int
    pods: int = 1
    """The number of pods of each job."""
    queues: int

    @property
    def names(self) -> list[str]:
        """The names of the processes."""
        return [f"submitter-{number}" for number in range(self.clients)]


def begin(bench: Bench, kubeconfig: str, crowd: Crowd) -> float:
    """Start all processes at once. Return the time by `time.monotonic`."""
    gate, share = bench.folder / "gate", -(-crowd.jobs // crowd.clients)
    for number, name in enumerate(crowd.names):
        first = number * share
        count = min(share, crowd.jobs - first)
        numbers = map(str, (first, count, crowd.threads, crowd.pods, crowd.queues))
        bench.start_python(name, "bench.support.submission.submitter", kubeconfig, str(gate), *numbers, stage=2)
    bench.wait_said(crowd.names, "ready")
    gate.touch()
    return time.monotonic()


def troubles(bench: Bench, crowd: Crowd) -> dict[str, int]:
    """Wait until all processes have finished. Return the number of repeated requests by reason."""
    bench.wait_said(crowd.names, '"troubles"')
    lines = [bench.log(name).read_text().splitlines()[-1] for name in crowd.names]
    return dict(sum((Counter(orjson.loads(line)["troubles"]) for line in lines), Counter()))
