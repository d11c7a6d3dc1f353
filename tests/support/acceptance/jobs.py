"""TorchJobs for the tests: plain Python, small enough to start many.

One rule: a pod does nothing by the clock that a test waits for; it is let go by a file, or short.
"""

import copy
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from crds import labels
from crds.api_resources import TORCHJOBS

RECORDING = """
import os, sys, time
folder, seconds, gate = sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
pod, attempt, restarts = (os.environ[each] for each in ("POD", "ATTEMPT", "RESTARTS"))
name = "@".join((pod, attempt, restarts))
job, task, _ = pod.rsplit("-", 2)
world = {"master", "worker"} if task in ("master", "worker") else {task}
def peers():
    noted = [each.split("@") for each in os.listdir(folder) if os.path.getsize(os.path.join(folder, each))]
    mine = [[job, each] for each in world]
    return {each[0] for each in noted if each[0].rsplit("-", 2)[:2] in mine and each[1] == attempt}
def say(word):
    with open(os.path.join(folder, name), "a") as file:
        file.write(f"{word} {time.time()} {os.getpid()}\\n")
say("start")
time.sleep(seconds)
while gate and not os.path.exists(gate):
    time.sleep(0.02)
while os.environ["RANK"] == "0" and len(peers()) < int(os.environ["WORLD_SIZE"]):
    time.sleep(0.02)
say("end")
"""
"""A pod that notes its start and its end in a file named after itself and its attempt; it may wait for a gate.

A master also waits until all its peers have started: the job succeeds with it, and who has not started by then never
will.
"""


def python(code: str, *arguments: object) -> list[str]:
    """The command that runs a piece of Python."""
    return ["python", "-c", textwrap.dedent(code), *map(str, arguments)]


def recording(folder: Path, seconds: float = 0.0, gate: Path | None = None) -> list[str]:
    """The command of a pod whose runs `spans` can read."""
    return python(RECORDING, folder, seconds, *([gate] if gate else []))


def job(
    name: str,
    command: list[str],
    *,
    queue: str = "default",
    workers: int = 0,
    cpu: str = "1",
    policy: str = "Never",
    **spec: Any,
) -> dict[str, Any]:
    """A TorchJob whose pods all run one command, and are made all at once."""
    container = {
        "name": "main",
        "image": "none",
        "command": command,
        "env": [
            _label("POD", "metadata.name"),
            _label("ATTEMPT", f"metadata.labels['{labels.ATTEMPT}']"),
            _label("RESTARTS", f"metadata.labels['{labels.RESTART}']"),
        ],
        "resources": {"requests": {"cpu": cpu}},
    }
    task = {"restartPolicy": policy, "template": {"spec": {"containers": [container]}}}
    tasks = {"Master": task} | (
        {"Worker": copy.deepcopy(task) | {"numTasks": workers, "dependsOn": []}} if workers else {}
    )
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"queue": queue}, "torchTaskSpecs": tasks, **spec},
    }


def _label(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@dataclass(frozen=True)
class Span:
    """One pod's run, as the pod itself noted it."""

    job: str
    pod: str
    attempt: int
    restarts: int
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    pid: int


def spans(folder: Path) -> list[Span]:
    """All runs noted in a folder; who has come no further than to open its file has noted none."""
    return [_span(file) for file in sorted(folder.iterdir()) if file.stat().st_size]


def _span(file: Path) -> Span:
    pod, attempt, restarts = file.name.split("@")
    lines = [line.split() for line in file.read_text().splitlines()]
    times = {word: tuple(float(line[1]) for line in lines if line[0] == word) for word in ("start", "end")}
    owner = re.sub(r"-[a-z]+-\d+$", "", pod)
    return Span(owner, pod, int(attempt), int(restarts), times["start"], times["end"], int(lines[-1][2]))


def most_at_once(found: Iterable[Span], size: Mapping[str, int] | None = None) -> int:
    """How many jobs ran at the same time at most, from the first pod's start to the last one's end."""
    steps: list[tuple[float, int]] = []
    by_job: dict[tuple[str, int, int], list[Span]] = {}
    for span in found:
        by_job.setdefault((span.job, span.attempt, span.restarts), []).append(span)
    for (name, _, _), pods in by_job.items():
        amount = size[name] if size else 1
        begin, end = min(pod.starts[0] for pod in pods), max(pod.ends[-1] for pod in pods)
        steps += [(begin, amount), (end, -amount)]
    now = most = 0
    for _, change in sorted(steps):
        now += change
        most = max(most, now)
    return most


def in_order(found: Iterable[Span]) -> bool:
    """Whether each run began after the one before it had ended."""
    ordered = sorted(found, key=lambda span: span.starts[0])
    return all(before.ends[-1] <= after.starts[0] for before, after in pairwise(ordered))
