"""TorchJobs for the tests: plain Python programs, small enough to start many of them.

One rule: no test waits for a pod that sleeps. A pod ends at once, or when the test creates a file.
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
"""A program that records its start and its end in a file named after its pod and attempt. The program may wait for a
gate file.

A master also waits until all its peers have started. The job succeeds with its master, and pods that have not started
before this success never start.
"""


def python(code: str, *arguments: object) -> list[str]:
    """Return a command that runs Python code."""
    return ["python", "-c", textwrap.dedent(code), *map(str, arguments)]


def recording(folder: Path, seconds: float = 0.0, gate: Path | None = None) -> list[str]:
    """Return the command of a pod whose runs `spans` can read."""
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
    """Return a TorchJob whose pods all run the same command and are all created at once."""
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
    """A run of a pod, as the pod recorded the run."""

    job: str
    pod: str
    attempt: int
    restarts: int
    starts: tuple[float, ...]
    ends: tuple[float, ...]
    pid: int


def spans(folder: Path) -> list[Span]:
    """Return all runs recorded in a folder. An empty file is ignored, because its pod has recorded no start yet."""
    return [_span(file) for file in sorted(folder.iterdir()) if file.stat().st_size]


def _span(file: Path) -> Span:
    pod, attempt, restarts = file.name.split("@")
    lines = [line.split() for line in file.read_text().splitlines()]
    times = {word: tuple(float(line[1]) for line in lines if line[0] == word) for word in ("start", "end")}
    owner = re.sub(r"-[a-z]+-\d+$", "", pod)
    return Span(owner, pod, int(attempt), int(restarts), times["start"], times["end"], int(lines[-1][2]))


def most_at_once(found: Iterable[Span], size: Mapping[str, int] | None = None) -> int:
    """Return the largest number of jobs that ran at once.

    A job runs from the start of its first pod to the end of its last pod. With `size`, each job counts by its size.
    """
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
    """Return whether each run began after the previous run had ended."""
    ordered = sorted(found, key=lambda span: span.starts[0])
    return all(before.ends[-1] <= after.starts[0] for before, after in pairwise(ordered))
