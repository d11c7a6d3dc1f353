"""A process that makes only the API calls of reconciles: `raw_caller KUBECONFIG FOLDER NUMBER OF THREADS PARALLEL`.

One rule: the client, the calls and their order are those of a reconcile, and nothing is decided. Whole reconciles are
compared with this process.

FOLDER/plan-N, for N = 1, 2, ..., is a file of JSON lines `[namespace, job, patch of its status or null, services,
pods]`. For each line whose number is NUMBER plus a multiple of OF, this process makes these requests: a GET of the job,
then the writes, PARALLEL pods at a time. The process prints `ready N` when it has read the lines, and begins when
FOLDER/gate-N exists. Then the process prints `done N` with the times of its beginning and end (`time.monotonic`). Both
files have to appear whole, by a rename.
"""

import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from crds.api_resources import PODS, SERVICES, TORCHJOBS
from kube import client
from kube.api import Cluster
from kube.settings import ConnectionSettings

AGENT = "bench-raw"
_POLL_SECONDS = 0.005


def main() -> None:
    """Run one plan after the other, until the process is killed."""
    kubeconfig, folder, *numbers = sys.argv[1:]
    number, of, threads, parallel = map(int, numbers)
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT, pool_connections=threads + parallel + 2)
    cluster = client.connect(settings)
    with ThreadPoolExecutor(parallel) as writers, ThreadPoolExecutor(threads) as callers:

        def make(call: Sequence[Any]) -> None:
            reconcile(cluster, writers, *call)

        list(
            callers.map(lambda _: cluster.serves(PODS), range(threads))
        )  # as in a worker, the connections are open before the first write
        for part in itertools.count(1):
            plan = _wait_for(Path(folder) / f"plan-{part}").read_bytes()
            calls = [orjson.loads(line) for line in plan.splitlines()[number::of]]
            print(f"ready {part}", flush=True)
            _wait_for(Path(folder) / f"gate-{part}")
            began = time.monotonic()
            list(callers.map(make, calls))
            print(f"done {part} {began} {time.monotonic()}", flush=True)


def _wait_for(file: Path) -> Path:
    while not file.exists():
        time.sleep(_POLL_SECONDS)
    return file


def reconcile(
    cluster: Cluster, writers: ThreadPoolExecutor, namespace: str, name: str, patch: Any, services: Any, pods: Any
) -> None:
    """Make the calls of one reconcile."""
    cluster.get(TORCHJOBS, name, namespace)
    if patch is not None:
        cluster.patch(TORCHJOBS, name, {"status": patch}, namespace, subresource="status")
    for service in services:
        cluster.create(SERVICES, service, namespace)
    list(writers.map(lambda pod: cluster.create(PODS, pod, namespace), pods))


if __name__ == "__main__":
    main()
