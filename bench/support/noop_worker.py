"""Runs a worker process of torchq whose reconciles only count: `noop_worker URL COUNTER THREADS SECONDS`.

One rule: each run appends one byte to the file COUNTER, and several processes may do so at the same time.
"""

import os
import sys
import time
from collections.abc import Callable

from queues.dispatch import rq_worker
from queues.values import Task


def main() -> None:
    """Run until SIGTERM."""
    url, counter, threads, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    runs = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def reconcile(_task: Task, _holds: Callable[[], bool]) -> float | None:
        if seconds:
            time.sleep(seconds)
        os.write(runs, b".")
        return None

    rq_worker.run_worker(url, reconcile, threads=threads, drain_seconds=2.0)


if __name__ == "__main__":
    main()
