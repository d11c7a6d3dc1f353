"""Measures how much memory many waiting jobs need in the coordinator and in Redis.

One rule: the coordinator's own caches, picker and store run in a process of their own, which reads the lines of a
watch. The jobs pass one by one, and no other copy of them is in memory.
"""

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.benchmarks import ingest
from bench.report import Figures
from bench.support import redis_server
from bench.support.processes import room
from coordinator.settings import Settings
from queues import redis_keys
from queues.redis import connection

POOL = "nvidia.com/gpu=4"
"""A pool for one job; all others wait."""
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the benchmark."""

    jobs: int = 100_000
    queues: int = 1_000
    seconds: float = 900.0
    """The time limit of the run."""


SHORT = Options(jobs=2_000, queues=20)


def run(options: Options) -> Figures:
    """Let the jobs wait, and measure the processes. Raises LocalError without a Redis server."""
    with room() as bench:
        url = redis_server.start(bench)
        answer = bench.folder / "coordinator.json"
        bench.start_python(
            "coordinator", "bench.benchmarks.memory", url, str(options.jobs), str(options.queues), str(answer)
        )
        bench.wait(answer.exists, "the coordinator to have seen all jobs", options.seconds)
        figures: Figures = orjson.loads(answer.read_bytes())
        client = connection.connect(url, client_name="torchq-bench")
        redis = client.info("memory")
        waiting = int(client.hlen(redis_keys.ENTRIES))
    return {
        "waiting": waiting,
        **figures,
        "redis_mb": redis["used_memory"] / _MEGABYTE,
        "redis_rss_mb": redis["used_memory_rss"] / _MEGABYTE,
    }


def coordinate(url: str, jobs: int, queues: int, answer: Path) -> None:
    """Run as the coordinator; write the figures into a file once every job waits and a few pick cycles have run."""
    bare = _resident("VmRSS")
    client = connection.connect(url, client_name="torchq-bench")
    settings = Settings(pool=POOL, implicit_queues=True)
    leader = ingest.LeaderParts(ingest.Lines(_pieces(jobs, queues)), client, settings)
    leader.ingest(jobs)
    for _ in range(3):
        leader.term.configure()
        leader.term.cycle()
    gc.collect()
    figures = {
        "coordinator_mb": _resident("VmRSS"),
        "coordinator_peak_mb": _resident("VmHWM"),
        "python_alone_mb": bare,
        "picked": leader.term.counts.picked,
    }
    leader.close()
    written = answer.with_suffix(".part")
    written.write_bytes(orjson.dumps(figures))
    written.rename(answer)


def _pieces(jobs: int, queues: int) -> Iterator[bytes]:
    return (ingest.line(number, queues) for number in range(jobs))


def _resident(field: str) -> float:
    """Return the memory of this process in megabytes: VmRSS for now, VmHWM for the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    coordinate(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
