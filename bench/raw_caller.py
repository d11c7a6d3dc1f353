"""A process that makes the calls of reconciles bare: `raw_caller KUBECONFIG GATE PLAN NUMBER OF THREADS PARALLEL`.

One rule: the same client, the same calls in the same order, and nothing decided: what a reconcile is measured against.

PLAN is a file of JSON lines `[namespace, job, patch of its status or null, services, pods]`, of which this process
takes every OF-th from NUMBER on: a GET of the job, then the writes, pods PARALLEL at a time. GATE is a file that
appears when all are to begin. The last line of the output is when it began and ended (`time.monotonic`).
"""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from cluster import client
from cluster.api import Cluster
from cluster.settings import ConnectionSettings
from crds.resources import PODS, SERVICES, TORCHJOBS

AGENT = "bench-raw"
_POLL_SECONDS = 0.005


def main() -> None:
    """Run to the end."""
    kubeconfig, gate, plan, *numbers = sys.argv[1:]
    number, of, threads, parallel = map(int, numbers)
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT, pool_connections=threads + parallel + 2)
    cluster = client.connect(settings)
    calls = [orjson.loads(line) for line in Path(plan).read_bytes().splitlines()[number::of]]
    with ThreadPoolExecutor(parallel) as writers, ThreadPoolExecutor(threads) as callers:
        list(callers.map(lambda _: cluster.serves(PODS), range(threads)))  # a worker's connections are open already
        print("ready", flush=True)
        while not Path(gate).exists():
            time.sleep(_POLL_SECONDS)
        began = time.monotonic()
        list(callers.map(lambda each: reconcile(cluster, writers, *each), calls))
        print(orjson.dumps([began, time.monotonic()]).decode(), flush=True)
    signal.pause()  # who started us would start us again


def reconcile(
    cluster: Cluster, writers: ThreadPoolExecutor, namespace: str, name: str, patch: Any, services: Any, pods: Any
) -> None:
    """The calls of one reconcile."""
    cluster.get(TORCHJOBS, name, namespace)
    if patch is not None:
        cluster.patch(TORCHJOBS, name, {"status": patch}, namespace, subresource="status")
    for service in services:
        cluster.create(SERVICES, service, namespace)
    list(writers.map(lambda pod: cluster.create(PODS, pod, namespace), pods))


if __name__ == "__main__":
    main()
