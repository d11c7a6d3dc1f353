"""A process that lets pods run on a cluster without nodes: `pod_player KUBECONFIG THREADS`.

One rule: each pod of a job is set to Running as soon as it exists. The phase of the pod is set to Succeeded, or to
Failed if a label asks for that, after the run time in its label; without a label for the run time, the phase is set at
once. The output has the time of each end.
"""

import re
import sys
import time
from typing import Any, NamedTuple

from bench.support import player
from crds.labels import JOB_NAME
from kube.api import Manifest

RUN_LABEL = "bench/run-ms"
FAILS_LABEL = "bench/fails"
"""The label of pods that end with exit code 1."""
_NEXT = {"Pending": "Running", "Running": "Succeeded"}
_END = re.compile(r"^ended (\S+) ([\d.]+)$", re.MULTILINE)
_CRASHED = [{"name": "torch", "state": {"terminated": {"exitCode": 1}}, "restartCount": 0, "ready": False}]


class Pod(NamedTuple):
    """The facts that decide how long a pod runs, and how the pod ends."""

    namespace: str
    name: str
    phase: str
    seconds: float
    fails: bool
    job: str


def _trim(manifest: Manifest) -> Pod:
    metadata, phase = manifest["metadata"], (manifest.get("status") or {}).get("phase", "Pending")
    labels = metadata["labels"]
    seconds = int(labels.get(RUN_LABEL, 0)) / 1000
    return Pod(metadata["namespace"], metadata["name"], phase, seconds, FAILS_LABEL in labels, labels.get(JOB_NAME, ""))


def _wait(_before: Pod | None, after: Pod) -> float | None:
    return {"Pending": 0.0, "Running": after.seconds}.get(after.phase)


def _status(pod: Pod) -> dict[str, Any]:
    crashes = pod.fails and pod.phase == "Running"
    return {"phase": "Failed", "containerStatuses": _CRASHED} if crashes else {"phase": _NEXT[pod.phase]}


def _say_end(pod: Pod) -> None:
    if pod.phase == "Running":
        sys.stdout.write(f"ended {pod.job} {time.time():.4f}\n")  # in one piece: there are many threads
        sys.stdout.flush()


def ends(output: str) -> dict[str, float]:
    """Return when the end of each job's last pod had been written, in seconds since 1970, from the output of the
    process."""
    return {job: float(moment) for job, moment in _END.findall(output)}


if __name__ == "__main__":
    player.play(sys.argv[1], int(sys.argv[2]), _trim, _wait, _status, _say_end)
