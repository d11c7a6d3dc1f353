"""A worker process whose reconciles only record that they ran.

Usage: `python -m tests.support.queues.sample_worker URL THREADS SECONDS DRAIN`.

Every run pushes `begin KEY` and `end KEY` to the list `runs` of the same Redis. A key that begins with `fail` raises
an error, `exit` kills the process, and `slow` takes SECONDS. A stop waits DRAIN seconds for the current runs.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable

from queues.dispatch import rq_worker
from queues.redis import connection
from queues.tasks import Task
from queues.work import WorkSettings


def main() -> None:
    url, threads = sys.argv[1], int(sys.argv[2])
    seconds, drain = map(float, sys.argv[3:])
    logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(message)s")
    client = connection.connect(url, client_name="runs")

    def reconcile(task: Task, holds: Callable[[], bool]) -> float | None:
        client.rpush("runs", f"begin {task.key.name} {int(holds())} {os.getpid()}")
        match task.key.name.partition("-")[0]:
            case "fail":
                raise ValueError("this key always fails")
            case "exit" if client.set("exited", 1, nx=True):
                os.kill(os.getpid(), signal.SIGKILL)
            case "slow":
                time.sleep(seconds)
        client.rpush("runs", f"end {task.key.name} {int(holds())} {os.getpid()}")
        return None

    rq_worker.run_worker(url, reconcile, threads=threads, settings=WorkSettings(running_lease=1.0), drain_seconds=drain)


if __name__ == "__main__":
    main()
