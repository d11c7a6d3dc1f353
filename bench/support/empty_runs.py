"""Runs that only count themselves: of torchq's workers, and as plain jobs of RQ's own, for a comparison.

As a program it is a worker process of torchq: `empty_runs URL COUNTER THREADS SECONDS`. Each run appends one byte to
the file COUNTER, and several processes may do so at the same time.

One rule: the comparison favours RQ. Jobs are written together instead of enqueued one by one, their results are not
stored, and the workers do not fork (`rq.SimpleWorker`).
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bench.support.processes import Bench
from crds import timestamps
from queues.dispatch import rq_worker
from queues.redis import connection
from queues.tasks import Task

QUEUE = "plain"
FUNCTION = "bench.support.empty_runs.count"
_CHUNK = 500


def count(counter: str, seconds: float) -> None:
    """Run once, and count the run."""
    if seconds:
        time.sleep(seconds)
    runs = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(runs, b".")
    os.close(runs)


def start(bench: Bench, url: str, workers: int) -> None:
    """Start RQ's own worker processes, and wait until they have registered."""
    options = ["--url", url, "--serializer", "json", "--worker-class", "rq.SimpleWorker", "--quiet"]
    for number in range(workers):
        bench.start_python(f"plain-{workers}-{number}", "rq.cli", "worker", *options, QUEUE, stage=1)
    with connection.connect(url, client_name="torchq-bench") as client:
        bench.wait(lambda: client.scard(f"rq:workers:{QUEUE}") >= workers, f"{workers} RQ workers")


def push(url: str, jobs: int, counter: str, seconds: float) -> None:
    """Write the jobs in RQ's format into its queue."""
    client = connection.connect(url, client_name="torchq-bench")
    created = timestamps.format_micro_time(datetime.now(UTC))
    fields: dict[Any, Any] = {
        "created_at": created,
        "enqueued_at": created,
        "data": f'["{FUNCTION}", null, ["{counter}", {seconds}], {{}}]',
        "origin": QUEUE,
        "status": "queued",
        "description": FUNCTION,
        "timeout": "180",
        "result_ttl": "0",
    }
    with connection.translate_errors(client):
        client.sadd("rq:queues", f"rq:queue:{QUEUE}")
        for start_of_chunk in range(0, jobs, _CHUNK):
            pipeline = client.pipeline(transaction=False)
            for number in range(start_of_chunk, min(jobs, start_of_chunk + _CHUNK)):
                pipeline.hset(f"rq:job:plain-{number}", mapping=fields)
                pipeline.rpush(f"rq:queue:{QUEUE}", f"plain-{number}")
            pipeline.execute()
    client.close()


def main(url: str, counter: str, threads: str, seconds: str) -> None:
    """Run a worker of torchq until SIGTERM."""
    runs = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def reconcile(_task: Task, _holds: Callable[[], bool]) -> None:
        if float(seconds):
            time.sleep(float(seconds))
        os.write(runs, b".")

    rq_worker.run_worker(url, reconcile, threads=int(threads), drain_seconds=2.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
