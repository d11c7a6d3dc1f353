"""How long `torchq run` takes to its handle and to its first pod, against `torchq submit` of a job with the same pod.

One rule: both are run in turn, and the figures are medians of pairs. A file is edited before every run, so that each
one has code of its own, as those of a user have.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.benchmarks.client import packing
from bench.benchmarks.client.program import COMMAND_AGENT, Program
from bench.report import Figures
from bench.support.processes import Bench
from bench.support.stack import Stack
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from kube.api import Manifest
from kube.informer import Informer
from torchq import Client

FILES, KIB = 43, 5
"""The project of a user: some two hundred KiB, as in the documentation."""
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Start:
    """The seconds from the start of a command to three moments."""

    handle: float
    """The command has ended and printed the handle."""
    pod: float
    """The pod exists, as a watch has shown it."""
    command: float
    """The command of the pod's main container runs."""


class Starts:
    """Starts jobs one after the other, and notes when the pod of each came."""

    def __init__(self, bench: Bench, running: Stack, program: Program) -> None:
        self.folder = bench.folder / "project"
        self._bench = bench
        self._running = running
        self._program = program
        self._created: dict[str, float] = {}
        self._pods = Informer(running.cluster, PODS, trim=_job, label_selector=labels.JOB_UID, on_change=self._on_pod)
        self._count = 0

    def __enter__(self) -> "Starts":
        packing.make_tree(self.folder, FILES, KIB)
        self._pods.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pods.stop()

    def run(self) -> Start:
        """Start a job by `torchq run`."""
        name, mark = self._next()
        return self._start(name, mark, "run", "-d", "--name", name, "--", "touch", str(mark))

    def submit(self) -> Start:
        """Start a job by `torchq submit`."""
        name, mark = self._next()
        file = self._bench.folder / "job.yaml"
        file.write_text(yaml.safe_dump(_manifest(name, mark)))
        return self._start(name, mark, "submit", str(file))

    def python(self, client: Client) -> float:
        """Start a job by `torchq.run`, and return the seconds to the handle."""
        name, mark = self._next()
        began = time.perf_counter()
        client.run(["touch", str(mark)], name=name, folder=self.folder)
        took = time.perf_counter() - began
        self._wait_ended(name)
        return took

    def requests(self, start: Callable[[], object]) -> dict[str, int]:
        """Return the requests that the client makes for a start."""
        before = self._running.requests().get(COMMAND_AGENT, Counter())
        start()
        return dict(self._running.requests()[COMMAND_AGENT] - before)

    def _next(self) -> tuple[str, Path]:
        """Edit a file. Return the name of the next job, and the file that its pod makes."""
        self._count += 1
        (self.folder / "edited.py").write_text(f"ROUND = {self._count}\n")
        name = f"start-{self._count}"
        return name, self._bench.folder / name

    def _start(self, name: str, mark: Path, *arguments: str) -> Start:
        began, wall = time.monotonic(), time.time()
        self._program.run(self.folder, *arguments)
        handle = time.monotonic() - began
        self._wait_ended(name)
        return Start(handle, self._created[name] - began, mark.stat().st_mtime_ns / 1e9 - wall)

    def _wait_ended(self, name: str) -> None:
        def ended() -> bool:
            item = self._running.cluster.get(TORCHJOBS, name, "default")
            return (item.get("status") or {}).get("phase") == "Succeeded"

        self._bench.wait(ended, f"the end of job {name}", _SECONDS)

    def _on_pod(self, _: str | None, after: str | None) -> None:
        if after is not None:
            self._created.setdefault(after, time.monotonic())


def measure(bench: Bench, running: Stack, program: Program, client: Client, rounds: int) -> Figures:
    """Return the times of `torchq run` and `torchq submit`, and of `torchq.run` in a program that runs."""
    with Starts(bench, running, program) as starts:
        starts.run(), starts.submit(), starts.python(client)
        pairs = []
        for number in range(rounds):
            first, second = (starts.run, starts.submit) if number % 2 else (starts.submit, starts.run)
            pair = (first(), second())
            pairs.append(pair if number % 2 else pair[::-1])
        python = [starts.python(client) for _ in range(rounds)]
        return {**figures(pairs), "python_run_handle_s": _middle(python), "run_requests": starts.requests(starts.run)}


def figures(pairs: list[tuple[Start, Start]]) -> Figures:
    """Return the medians of pairs of a run and a submission."""
    runs, submissions = [run for run, _ in pairs], [submission for _, submission in pairs]
    return {
        "run_handle_s": _middle([each.handle for each in runs]),
        "run_pod_s": _middle([each.pod for each in runs]),
        "run_command_s": _middle([each.command for each in runs]),
        "submit_handle_s": _middle([each.handle for each in submissions]),
        "submit_pod_s": _middle([each.pod for each in submissions]),
        "submit_command_s": _middle([each.command for each in submissions]),
        "run_over_submit_pod_s": _middle([run.pod - submission.pod for run, submission in pairs]),
        "run_over_submit_command_s": _middle([run.command - submission.command for run, submission in pairs]),
    }


def _middle(seconds: list[float]) -> float:
    return round(statistics.median(seconds), 3)


def _manifest(name: str, mark: Path) -> Manifest:
    container = {
        "name": "torch",
        "image": "python",
        "command": ["touch", str(mark)],
    }
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {"torchTaskSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}},
    }


def _job(pod: Manifest) -> str:
    return str(pod["metadata"]["labels"][labels.JOB_NAME])
