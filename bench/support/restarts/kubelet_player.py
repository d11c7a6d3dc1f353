"""A process that plays the kubelets of a cluster without nodes: `kubelet_player KUBECONFIG THREADS RESTART-SECONDS`.

One rule: it writes what a kubelet writes, and nothing else. Each pod of a job runs as soon as it exists. A pod that is
asked to restart its containers says that it has done so some seconds later.
"""

import sys
import threading
import time
from typing import Any, NamedTuple

from bench.benchmarks.later import Later
from crds import labels, timestamps
from crds.api_resources import PODS
from kube import client, errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from kube.settings import ConnectionSettings

_RETRY_SECONDS = 0.5


class Pod(NamedTuple):
    """What the kubelet of a pod looks at."""

    namespace: str
    name: str
    phase: str
    containers: tuple[str, ...]
    asked: str
    """The restart that the pod is asked for; empty if it is asked for none."""
    done: str
    """The restart that the pod has done last."""
    restarts: int


def main() -> None:
    """Play the kubelets until the process is killed."""
    kubeconfig, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    settings = ConnectionSettings(kubeconfig=kubeconfig, user_agent="bench-kubelets", pool_connections=threads + 4)
    cluster = client.connect(settings)
    with Later(threads) as later:

        def on_change(before: Pod | None, after: Pod | None) -> None:
            if after is None or (before is not None and _due(before) == _due(after)):
                return
            if (wait := _due(after)) is not None:
                later.after(seconds if wait else 0.0, lambda: _write(cluster, after, later))

        pods = Informer(cluster, PODS, trim=_trim, label_selector=labels.JOB_UID, on_change=on_change)
        pods.start()
        print("ready", flush=True)
        threading.Event().wait()


def _due(pod: Pod) -> str | None:
    """Return the restart that the pod has to do, or an empty text if it has to start; None if it has nothing to do."""
    if pod.phase == "Pending":
        return ""
    return pod.asked if pod.phase == "Running" and pod.asked != pod.done else None


def _trim(manifest: Manifest) -> Pod:
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = status.get("conditions") or ()
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        phase=status.get("phase", "Pending"),
        containers=tuple(container["name"] for container in manifest["spec"]["containers"]),
        asked=(metadata.get("annotations") or {}).get(labels.RESTART_CONTAINERS, ""),
        done=next((each["message"] for each in conditions if each["type"] == labels.CONTAINERS_RESTARTED), ""),
        restarts=max((each["restartCount"] for each in status.get("containerStatuses") or ()), default=0),
    )


def _write(cluster: KubernetesCluster, pod: Pod, later: Later) -> None:
    try:
        cluster.patch(PODS, pod.name, {"status": running(pod)}, pod.namespace, subresource="status")
    except (errors.NotFound, errors.Invalid):
        return  # the pod was deleted, or it has ended already
    except errors.ClusterError as error:
        print(f"WARNING {error}", flush=True)
        later.after(_RETRY_SECONDS, lambda: _write(cluster, pod, later))


def running(pod: Pod) -> dict[str, Any]:
    """Return the status of a pod whose containers run, again if it was asked for that."""
    now = timestamps.format_time(time.time())
    ended = {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}}
    container = {
        "image": "none",
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": pod.restarts + bool(pod.asked),
        "state": {"running": {"startedAt": now}},
        **({"lastState": ended} if pod.asked else {}),
    }
    status = {"phase": "Running", "containerStatuses": [{**container, "name": name} for name in pod.containers]}
    said = {"type": labels.CONTAINERS_RESTARTED, "status": "True", "message": pod.asked, "lastTransitionTime": now}
    return {**status, **({"conditions": [said]} if pod.asked else {})}


if __name__ == "__main__":
    main()
