"""How long commands take from their start to their end, against an empty Python program and one list of the API.

One rule: the figures are ratios to references of the same run, which are measured in turn with the commands. All
programs have their bytecode, as an installed program has.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from bench.errors import BenchError
from bench.options import option
from bench.report import Figures
from bench.support import manifests, stack
from bench.support.processes import ROOT
from bench.support.stack import Stack
from crds.api_resources import TENANT_QUEUES, TORCHJOBS
from kube.api import Manifest
from queues.storage import stats

NAMESPACE, QUEUE = "default", "held"
_THREADS = 8
_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of the measurement."""

    jobs: int = option(12_000, "jobs to list")
    rounds: int = option(9, "runs of each command")


SHORT = Options(jobs=200, rounds=1)


def run(options: Options) -> Figures:
    """Measure `torchq --version`, `torchq status` and `torchq job list`. Raises BenchError if a command fails."""
    with stack.running() as running:
        torchq = [sys.executable, "-m", "coordinator", "--kubeconfig", running.kubeconfig]
        empty = partial(_run, running, [sys.executable, "-c", "pass"])
        version = _in_turn(options.rounds, empty, partial(_run, running, [*torchq, "--version"]))
        status = _in_turn(options.rounds, empty, partial(_run, running, [*torchq, "status"]))
        _make_jobs(running, options.jobs)
        listed = _in_turn(
            options.rounds,
            partial(running.cluster.list, TORCHJOBS, NAMESPACE),
            partial(_run, running, [*torchq, "job", "list"], options.jobs + 1),
        )
    return figures(version, status, listed)


Times = Sequence[tuple[float, float]]
"""The seconds of a reference, and of the command that was run after it."""


def figures(version: Times, status: Times, listed: Times) -> Figures:
    """Return the shortest times of the commands and of their references, and how many references a command takes.

    A program that starts while others use the cores takes several times as long, so a median says more about
    the others than about the command.
    """
    empty, api = min(reference for reference, _ in (*version, *status)), min(each for each, _ in listed)
    named = {"version": version, "status": status, "job_list": listed}
    seconds = {name: min(took for _, took in times) for name, times in named.items()}
    return {
        "pass_s": round(empty, 4),
        "api_list_s": round(api, 4),
        **{f"{name}_s": round(took, 4) for name, took in seconds.items()},
        "version_over_pass": round(seconds["version"] / empty, 2),
        "status_over_pass": round(seconds["status"] / empty, 2),
        "job_list_over_api_list": round(seconds["job_list"] / api, 2),
    }


def _run(running: Stack, command: Sequence[str], lines: int = 0) -> None:
    """Run a program. Raises BenchError if the command fails, or does not print that number of lines."""
    folder = running.bench.folder
    variables = environment(os.environ, str(folder / "bytecode"))
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    shown, printed = " ".join(command), len(done.stdout.splitlines())
    if done.returncode:
        raise BenchError(f"{shown}: exit code {done.returncode}\n{done.stderr[-1000:]}")
    if lines and printed != lines:
        raise BenchError(f"{shown} printed {printed} lines, not {lines}")


def environment(given: Mapping[str, str], bytecode: str) -> dict[str, str]:
    """Return an environment in which programs of this checkout keep their bytecode in a folder."""
    kept = {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": bytecode}


def _in_turn(rounds: int, reference: Callable[[], object], command: Callable[[], object]) -> list[tuple[float, float]]:
    """Run the reference and the command once, so that their bytecode is written, and then measure the two in turn."""
    reference(), command()
    return [(_time(reference), _time(command)) for _ in range(rounds)]


def _time(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _make_jobs(running: Stack, count: int) -> None:
    """Create jobs in a queue that gives nothing out, and wait until all jobs have their place in the queue."""
    running.cluster.create(TENANT_QUEUES, manifests.queue(QUEUE, stopPolicy="Hold"))
    with ThreadPoolExecutor(_THREADS) as pool:
        made = (pool.submit(running.cluster.create, TORCHJOBS, job(number), NAMESPACE) for number in range(count))
        for each in list(made):
            each.result()

    def settled() -> bool:
        now = stats.read(running.redis)
        return now.waiting == count and not (now.ready or now.delayed or now.leased)

    running.bench.wait(settled, f"places of {count} jobs", _SECONDS)


def job(number: int) -> Manifest:
    """Return a job of four pods, as large as the jobs of users."""
    variables = [{"name": f"OPTION_{letter}", "value": f"value-{letter}"} for letter in "abcdefgh"]
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "torch", "image": "train:1", "command": ["python", "train.py"], "env": variables}
    template = {"spec": {"containers": [{**container, "resources": resources}]}}
    tasks = {"Master": {"template": template}, "Worker": {"numTasks": 3, "template": template}}
    made = manifests.job(f"job-{number:05d}", QUEUE, tasks)
    made["metadata"]["labels"] = {"team": "a", "experiment": f"e{number % 100}"}
    return made
