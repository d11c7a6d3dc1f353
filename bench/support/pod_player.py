"""A process that simulates the nodes of a cluster without nodes: `pod_player KUBECONFIG THREADS`.

One rule: each pod of a job is set to Running as soon as it exists. It is set to Succeeded, or to Failed if a label asks
for that, after the run time in its label; without that label, at once.
"""

import sys
import threading
import time

from bench.benchmarks.later import Later
from crds import labels
from crds.api_resources import PODS
from kube import client, errors
from kube.api import Manifest
from kube.informer import Informer
from kube.settings import ConnectionSettings

RUN_LABEL = "bench/run-ms"
FAILS_LABEL = "bench/fails"
"""The label of pods that end with exit code 1."""
_NEXT = {"Pending": "Running", "Running": "Succeeded"}
_CRASHED = [{"name": "torch", "state": {"terminated": {"exitCode": 1}}, "restartCount": 0, "ready": False}]
_RETRY_SECONDS = 0.5
_LATE_SECONDS = 1.0

Pod = tuple[str, str, str, float, bool]
"""Namespace, name, phase, the run time in seconds, and whether the pod fails at its end."""


def main() -> None:
    """Set the phases of pods until the process is killed."""
    kubeconfig, threads = sys.argv[1], int(sys.argv[2])
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench-pod-player", pool_connections=threads + 4)
    cluster = client.connect(settings)
    with Later(threads) as later:

        def on_change(_: Pod | None, after: Pod | None) -> None:
            if after is not None and after[2] in _NEXT:
                due = time.monotonic() + (after[3] if after[2] == "Running" else 0.0)
                later.at(due, lambda: _move(cluster, after, due, later))

        pods = Informer(cluster, PODS, trim=_trim, label_selector=labels.JOB_UID, on_change=on_change)
        pods.start()
        print("ready", flush=True)
        threading.Event().wait()


def _trim(manifest: Manifest) -> Pod:
    metadata = manifest["metadata"]
    phase = (manifest.get("status") or {}).get("phase", "Pending")
    labels_of_pod = metadata["labels"]
    return (
        metadata["namespace"],
        metadata["name"],
        phase,
        int(labels_of_pod.get(RUN_LABEL, 0)) / 1000,
        FAILS_LABEL in labels_of_pod,
    )


def _move(cluster: client.KubernetesCluster, pod: Pod, due: float, later: Later) -> None:
    namespace, name, phase, _, fails = pod
    if (late := time.monotonic() - due) > _LATE_SECONDS:
        print(f"WARNING a pod's end is {late:.1f} s late", flush=True)
    try:
        crashes = fails and phase == "Running"
        status = {"phase": "Failed", "containerStatuses": _CRASHED} if crashes else {"phase": _NEXT[phase]}
        cluster.patch(PODS, name, {"status": status}, namespace, subresource="status")
    except (errors.NotFound, errors.Invalid):
        return  # the pod was deleted, or it has ended already
    except errors.ClusterError as error:
        print(f"WARNING {error}", flush=True)
        later.after(_RETRY_SECONDS, lambda: _move(cluster, pod, time.monotonic(), later))


if __name__ == "__main__":
    main()
