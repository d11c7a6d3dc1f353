"""A process that plays the kubelets of a cluster without nodes: `kubelet_player KUBECONFIG THREADS RESTART-SECONDS`.

One rule: this process writes only the fields that a kubelet writes. Each pod of a job runs as soon as it exists. A pod
that is asked to restart its containers says that it has done so some seconds later.
"""

import sys
import time
from typing import Any, NamedTuple

from bench.support import player
from crds import labels, timestamps
from kube.api import Manifest


class Pod(NamedTuple):
    """The part of a pod that its kubelet reads."""

    namespace: str
    name: str
    phase: str
    containers: tuple[str, ...]
    asked: str
    """The restart that the pod is asked for; empty if it is asked for none."""
    done: str
    """The restart that the pod has done last."""
    restarts: int


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


def running(pod: Pod) -> dict[str, Any]:
    """Return the status of a pod whose containers run, started again if the pod was asked to restart."""
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


def main(kubeconfig: str, threads: str, seconds: str) -> None:
    """Play the kubelets until the process is killed."""

    def wait(before: Pod | None, after: Pod) -> float | None:
        if (due := _due(after)) is None or (before is not None and _due(before) == due):
            return None
        return float(seconds) if due else 0.0

    player.play(kubeconfig, int(threads), _trim, wait, running)


if __name__ == "__main__":
    main(*sys.argv[1:])
