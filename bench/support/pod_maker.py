"""A process that creates pods as fast as it can: `pod_maker KUBECONFIG GATE NAMESPACE BODY PREFIX COUNT THREADS`.

One rule: only the client and its connections do work, so that torchq is compared with the fastest possible client. BODY
is a file with the pod's manifest; GATE is a file that appears when all processes are to begin.
"""

import itertools
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson

from bench.benchmarks import pods
from crds.api_resources import PODS
from kube import client, errors
from kube.api import Cluster, Manifest
from kube.settings import ConnectionSettings

AGENT = "bench-pod-maker"
_POLL_SECONDS = 0.005
_RETRY_SECONDS = 0.2


def main() -> None:
    """Create the pods and wait for a signal."""
    kubeconfig, gate, namespace, body, prefix, *numbers = sys.argv[1:]
    count, threads = map(int, numbers)
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent=AGENT, pool_connections=threads + 2)
    cluster, manifest = client.connect(settings), orjson.loads(Path(body).read_bytes())
    with ThreadPoolExecutor(threads) as callers:  # as in a worker, the connections are open before the first write
        list(callers.map(lambda _: cluster.list(PODS, namespace, label_selector=f"{AGENT}=none"), range(threads)))
    print("ready", flush=True)
    while not Path(gate).exists():
        time.sleep(_POLL_SECONDS)
    todo = itertools.count()

    def create() -> None:
        while (number := next(todo)) < count:
            _create(cluster, pods.with_name(manifest, f"{prefix}-{number}"), namespace)

    makers = [
        threading.Thread(target=create, daemon=True) for _ in range(threads)
    ]  # daemons, so that a signal ends the process at once
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    print("done", flush=True)
    signal.pause()  # the supervisor would restart a process that ends


def _create(cluster: Cluster, body: Manifest, namespace: str) -> None:
    """Create a pod; send the request again if its answer was lost."""
    while True:
        try:
            cluster.create(PODS, body, namespace)
            return
        except errors.AlreadyExists:
            return
        except (errors.Unreachable, errors.ServerError, errors.TooManyRequests):
            time.sleep(_RETRY_SECONDS)


if __name__ == "__main__":
    main()
