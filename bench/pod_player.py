"""A process that plays the nodes of a cluster that has none: `pod_player KUBECONFIG THREADS`.

One rule: each pod of a job is said to run as soon as it is seen, and to have succeeded as soon as it is seen to run.
"""

import queue
import sys
import threading

from cluster import client, errors
from cluster.api import Manifest
from cluster.informer import Informer
from cluster.settings import ConnectionSettings
from crds import labels
from crds.resources import PODS

_NEXT = {"Pending": "Running", "Running": "Succeeded"}
_RETRY_SECONDS = 0.5

Pod = tuple[str, str, str]
"""Namespace, name and phase."""


def main() -> None:
    """Play until killed."""
    kubeconfig, threads = sys.argv[1], int(sys.argv[2])
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench-pod-player", pool_connections=threads + 4)
    cluster = client.connect(settings)
    waiting: queue.SimpleQueue[Pod] = queue.SimpleQueue()

    def changed(_: Pod | None, after: Pod | None) -> None:
        if after is not None and after[2] in _NEXT:
            waiting.put(after)

    def play() -> None:
        while True:
            _move(cluster, waiting.get(), waiting)

    for _ in range(threads):
        threading.Thread(target=play, daemon=True).start()
    pods = Informer(cluster, PODS, trim=_trim, label_selector=labels.JOB_UID, on_change=changed)
    pods.start()
    print("ready", flush=True)
    threading.Event().wait()


def _trim(manifest: Manifest) -> Pod:
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"], (manifest.get("status") or {}).get("phase", "Pending")


def _move(cluster: client.KubernetesCluster, pod: Pod, waiting: "queue.SimpleQueue[Pod]") -> None:
    namespace, name, phase = pod
    try:
        cluster.patch(PODS, name, {"status": {"phase": _NEXT[phase]}}, namespace, subresource="status")
    except (errors.NotFound, errors.Invalid):
        return  # deleted meanwhile, or it has ended already
    except errors.ClusterError as error:
        print(f"WARNING {error}", flush=True)
        threading.Timer(_RETRY_SECONDS, waiting.put, [pod]).start()


if __name__ == "__main__":
    main()
