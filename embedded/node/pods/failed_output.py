"""Reads from the output of failed containers: their messages, files that were missing, and ports that were taken.

One rule: only the end of a container's output is read, and only after a run has failed. A file counts as missing only
if the output of the command names it. Many arguments look like files and are not, or name files that are to be written.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crds import labels
from embedded.node.runs.container_runs import ContainerRuns, RunKey
from embedded.node.status.pod_lifecycle import Histories
from embedded.pod import LocalPod

_MESSAGE_BYTES, _MESSAGE_LINES = 2048, 80
"""The end of the output that becomes the message of a failed container, as in the kubelet."""
_SEARCH_BYTES = 16 * 1024
"""The end of the output that is searched for the name of a missing file."""
_MISSING = re.compile(r"No such file|can't open|cannot open|not found|does not exist|No module named")
"""The messages of Python, shells and other programs about a missing file."""
_SEPARATORS = re.compile(r"[\s=;&|()<>\"']+")
_ABSOLUTE = ("/", "~", "-", "$", "%")
"""The beginnings of words that are not relative paths: absolute paths, options, variables."""
_QUOTED = re.compile(r"No such file or directory: '([^'/][^']*)'")
"""Python's message about a relative path that a script could not open."""
_MODULE = re.compile(r"(?:^|\s)-m[\s=]+([A-Za-z_]\w*)")
"""An argument that names a module for Python to run; the group is its package."""
_TAKEN = re.compile(r"EADDRINUSE|[Aa]ddress already in use")
_PORT = re.compile(r"\bport[:= ]+(\d{1,5})\b|['\"], (\d{1,5})\)|(?:\d+\.\d+\.\d+\.\d+|\]|localhost|\*):(\d{1,5})\b")
"""PyTorch's `port: 29500`, Python's `('127.0.0.1', 29500)`, and the `127.0.0.1:29500` and `[::]:29500` of others."""
_NEAR = 3
"""The number of lines before a complaint that may name the port."""


def messages(pod: LocalPod, histories: Histories, runs: ContainerRuns) -> dict[tuple[str, int], str]:
    """Return the last output of failed runs, by container and restart.

    Only containers whose terminationMessagePolicy is FallbackToLogsOnError are read.
    """
    keys = (
        RunKey(pod.uid, container["name"], run.restart)
        for container in pod.containers
        if container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        for run in histories[container["name"]][-2:]
        if run.ending is not None and run.ending.exit_code
    )
    return {
        (key.container, key.restart): "\n".join(runs.tail(key, _MESSAGE_BYTES).splitlines()[-_MESSAGE_LINES:])
        for key in keys
    }


def missing_file(pod: LocalPod, histories: Histories, runs: ContainerRuns, folder: Path) -> str:
    """Return the file that a container of a job's pod did not find in the pod's own folder; empty if no file was
    missing.

    A pod with the annotation for the folder of its job runs there, so its own folder explains nothing.
    """
    if labels.JOB_NAME not in pod.labels or pod.annotations.get(labels.SUBMIT_DIRECTORY):
        return ""
    files = (_missing_file(container, pod.uid, histories, runs, folder) for container in pod.containers)
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
    return first_missing(command, f"{output}\n{ending.message}", lambda path: (folder / path).exists())


def taken_port(pod: LocalPod, histories: Histories, runs: ContainerRuns) -> int:
    """Return the port that a container of a job's pod could not use because it was taken; 0 if no port was taken."""
    if labels.JOB_NAME not in pod.labels:
        return 0
    ended = (
        RunKey(pod.uid, name, history[-1].restart)
        for name, history in histories.items()
        if history and (ending := history[-1].ending) is not None and ending.exit_code
    )
    return next(filter(None, (named_port(runs.tail(key, _SEARCH_BYTES)) for key in ended)), 0)


def first_missing(command: Sequence[str], output: str, exists: Callable[[str], bool]) -> str:
    """Return the relative path of the first missing file that the output of a command names; empty if no file was
    missing.

    `exists` returns whether a relative path exists in the working folder.
    """
    complaints = [line for line in output.splitlines() if _MISSING.search(line)]
    quoted: list[str] = [path for line in complaints for path in _QUOTED.findall(line)]
    for name in (*_argument_paths(command), *quoted):
        # The pattern matches the whole name, and not a part of a longer name.
        named = re.compile(rf"(?<![\w.-]){re.escape(name.removeprefix('./'))}(?![\w-])")
        if any(map(named.search, complaints)) and not exists(name):
            return name
    return ""


def _argument_paths(command: Sequence[str]) -> Iterator[str]:
    """Yield the parts of a command that may be relative paths, also those inside a shell's script."""
    for part in (part for argument in command for part in _SEPARATORS.split(argument)):
        if part and not part.startswith(_ABSOLUTE) and "://" not in part and ("." in part or "/" in part):
            yield part
    yield from _MODULE.findall(" ".join(command))


def named_port(output: str) -> int:
    """Return the port that the last complaint in the output of a program names; 0 if the output names no port."""
    lines = output.splitlines()
    for at in reversed([number for number, line in enumerate(lines) if _TAKEN.search(line)]):
        for line in (lines[at], *reversed(lines[max(0, at - _NEAR) : at])):
            ports = [int(text) for match in _PORT.finditer(line) for text in match.groups() if text]
            usable = [port for port in ports if 0 < port < 65_536]
            if usable:
                return usable[0]
    return 0
