"""Reads the messages and the missing files from the output of failed containers.

One rule: only the end of a container's output is read, and only after a run has failed.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crds import labels
from embedded.node.pods import missing_files
from embedded.node.runs.container_runs import ContainerRuns, RunKey
from embedded.node.status.lifecycle import Histories
from embedded.pod import LocalPod

_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80
"""The end of the output that becomes the message of a failed container, as in the kubelet."""
_SEARCH_BYTES = 16 * 1024
"""The end of the output that is searched for the name of a missing file."""


def messages(pod: LocalPod, histories: Histories, runs: ContainerRuns) -> dict[tuple[str, int], str]:
    """Return the last output of failed runs, by container and restart.

    Only containers whose terminationMessagePolicy is FallbackToLogsOnError are read.
    """
    return {
        (container["name"], run.restart): _last_lines(runs, RunKey(pod.uid, container["name"], run.restart))
        for container in _containers(pod)
        if container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        for run in histories[container["name"]][-2:]
        if run.ending is not None and run.ending.exit_code
    }


def missing_file(pod: LocalPod, histories: Histories, runs: ContainerRuns, folder: Path) -> str:
    """Return the file that a container of a job's pod did not find in the pod's own folder; empty if there is none.

    A pod with the annotation for the folder of its job runs there, so its own folder explains nothing.
    """
    if labels.JOB_NAME not in pod.labels or pod.annotations.get(labels.SUBMIT_DIRECTORY):
        return ""
    files = (_missing_file(container, pod.uid, histories, runs, folder) for container in _containers(pod))
    return next(filter(None, files), "")


def _missing_file(
    container: Mapping[str, Any], uid: str, histories: Histories, runs: ContainerRuns, folder: Path
) -> str:
    history = histories[container["name"]]
    ending = history[-1].ending if history else None
    if container.get("workingDir") or ending is None or not ending.exit_code:
        return ""
    output = runs.tail(RunKey(uid, container["name"], history[-1].restart), _SEARCH_BYTES)
    command = [*container["command"], *(container.get("args") or ())]
    return missing_files.first(command, f"{output}\n{ending.message}", lambda path: (folder / path).exists())


def _containers(pod: LocalPod) -> Iterator[Mapping[str, Any]]:
    yield from pod.spec["containers"]
    yield from pod.spec.get("initContainers") or ()


def _last_lines(runs: ContainerRuns, key: RunKey) -> str:
    return "\n".join(runs.tail(key, _MESSAGE_BYTES).splitlines()[-_MESSAGE_LINES:])
