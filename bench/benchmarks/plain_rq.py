"""Runs one plain RQ job per key, as a comparison with torchq's batches.

One rule: the comparison favours RQ. Jobs are written together instead of enqueued one by one, their results are not
stored, and the workers do not fork (`rq.SimpleWorker`).
"""

import os
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bench.support.processes import Bench
from crds import timestamps
from queues.redis import connection

QUEUE = "plain"
FUNCTION = "bench.benchmarks.plain_rq.count"
_CHUNK = 500


def count(counter: str, seconds: float) -> None:
    """Run as an RQ job: do the same as a reconcile of `noop_worker`."""
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
    client = connection.connect(url, client_name="torchq-bench")
    bench.wait(partial(_have_registered, client, workers), f"{workers} RQ workers")
    client.close()


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


def _have_registered(client: connection.Connection, workers: int) -> bool:
    with connection.translate_errors(client):
        return int(client.scard(f"rq:workers:{QUEUE}")) >= workers
