"""A process that creates TorchJobs as fast as it can: `submitter KUBECONFIG GATE FIRST COUNT THREADS PODS QUEUES`.

One rule: all such processes begin when the file GATE appears. The last line of the output is JSON: the number of jobs
that were created, and the number of requests that had to be repeated, by error.
"""

import itertools
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from crds.api_resources import TORCHJOBS
from kube import client, errors
from kube.api import Cluster
from kube.settings import ConnectionSettings

NAMESPACE = "default"
_POLL_SECONDS = 0.005
_RETRY_SECONDS = 0.2


def job(number: int, pods: int, queues: int) -> dict[str, Any]:
    """Return a job whose pods begin and end at once."""
    container = {"name": "torch", "image": "none", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    task = {"template": {"spec": {"containers": [container]}}}
    tasks = {"Master": task, **({"Worker": {"numTasks": pods - 1, "dependsOn": [], **task}} if pods > 1 else {})}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": f"burst-{number}"},
        "spec": {"schedulingPolicy": {"queue": f"team-{number % queues}"}, "torchTaskSpecs": tasks},
    }


def main() -> None:
    """Create the jobs, print the result and wait for a signal."""
    kubeconfig, gate, *numbers = sys.argv[1:]
    first, count, threads, pods, queues = map(int, numbers)
    cluster = client.connect(ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench-submitter"))
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(_POLL_SECONDS)
    troubles: Counter[str] = Counter()
    todo = itertools.count(first)

    def create() -> None:
        while (number := next(todo)) < first + count:
            _create(cluster, job(number, pods, queues), troubles)

    workers = [threading.Thread(target=create) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(orjson.dumps({"created": count, "troubles": troubles}).decode(), flush=True)
    signal.pause()  # the supervisor would restart a process that ends


def _create(cluster: Cluster, body: dict[str, Any], troubles: Counter[str]) -> None:
    """Create a job; send the request again if its answer was lost."""
    while True:
        try:
            cluster.create(TORCHJOBS, body, NAMESPACE)
            return
        except errors.AlreadyExists:
            return
        except (errors.Unreachable, errors.ServerError, errors.TooManyRequests) as error:
            troubles[type(error).__name__] += 1
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
