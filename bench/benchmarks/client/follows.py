"""How fast the output of a job of eight pods is followed while they print as fast as they can.

One rule: the pods begin to print when the follower has a line of each of them, and every line has to come exactly once.
"""

import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from bench.benchmarks.client.program import Program
from bench.errors import BenchError
from bench.report import Figures
from bench.support.processes import Bench
from bench.support.stack import Stack
from crds.api_resources import TORCHJOBS
from kube.api import LogOptions, Manifest
from torchq import Client

PODS = 8
LINE_BYTES = 128
"""The bytes of a line with its end."""
READY = "ready"
_PIECE = 1 << 16
NAMESPACE = "default"


def measure(bench: Bench, running: Stack, program: Program, client: Client, mib: int) -> Figures:
    """Return the rates of `torchq job logs -f --all`, of `job.logs(follow=True)`, and of a plain read of all output."""
    command, command_printed = _follow(bench, running, mib, "by-command", partial(_by_command, program))
    python, python_printed = _follow(bench, running, mib, "by-python", partial(_by_python, client))
    return {
        "follow_command_mib_per_s": rate(mib, command),
        "follow_command_printed_mib_per_s": rate(mib, command_printed),
        "follow_python_mib_per_s": rate(mib, python),
        "follow_python_printed_mib_per_s": rate(mib, python_printed),
        "follow_read_mib_per_s": rate(mib, _read(running, "by-python")),
    }


def rate(mib: int, seconds: float) -> float:
    """Return the MiB of output a second, of a job whose pods each print so many."""
    return round(PODS * mib / seconds, 1)


def _lines_of_a_pod(mib: int) -> int:
    return mib * 2**20 // LINE_BYTES


class Counted:
    """The lines that a follower has got: first one of each pod that is ready, then the output."""

    def __init__(self, name: str, mib: int) -> None:
        self._name = name
        self._expected = PODS * _lines_of_a_pod(mib)
        self.ready = 0
        self.count = 0

    def check(self) -> None:
        """Raise BenchError unless every line came exactly once."""
        if (self.ready, self.count) != (PODS, self._expected):
            raise BenchError(
                f"job {self._name}: {self.count} lines of {self._expected} came, and {self.ready} of {PODS} first ones"
            )


def _follow(
    bench: Bench, running: Stack, mib: int, name: str, follow: Callable[[str, Counted], Iterator[None]]
) -> tuple[float, float]:
    """Follow a job. Return the seconds from its first line to the end of the follower, and to the end of printing."""
    folder = bench.folder / name
    folder.mkdir()
    gate = folder / "gate"
    running.cluster.create(TORCHJOBS, job(name, folder, mib), NAMESPACE)
    counted, began, wall = Counted(name, mib), 0.0, 0.0
    for _ in follow(name, counted):
        if counted.ready == PODS and not began:
            began, wall = time.perf_counter(), time.time()
            gate.touch()
    took = time.perf_counter() - began
    counted.check()
    ends = [each.stat().st_mtime_ns / 1e9 for each in folder.glob("printed-*")]
    return took, max(ends) - wall


def job(name: str, folder: Path, mib: int) -> Manifest:
    """Return a job whose pods print their first line, wait for the file `gate`, and print the rest."""
    line, place = "x" * (LINE_BYTES - 1), shlex.quote(str(folder))
    script = (
        f"echo {READY}; while [ ! -e {place}/gate ]; do sleep 0.05; done; "
        f"yes {line} | head -n {_lines_of_a_pod(mib)}; touch {place}/printed-$RANK"
    )
    container = {"name": "torch", "image": "none", "command": ["sh", "-c", script]}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": TORCHJOBS.kind,
        "metadata": {"name": name},
        "spec": {
            "torchTaskSpecs": {
                "Worker": {"numTasks": PODS, "template": {"spec": {"containers": [container]}}},
            }
        },
    }


def _by_command(program: Program, name: str, counted: Counted) -> Iterator[None]:
    with program.open("job", "logs", "-f", "--all", name) as process:
        assert process.stdout is not None
        while counted.ready < PODS and (line := process.stdout.readline()):
            counted.ready += line.endswith(f"] {READY}\n".encode())
            yield
        while piece := process.stdout.read(_PIECE):
            counted.count += piece.count(b"\n")
    yield


def _by_python(client: Client, name: str, counted: Counted) -> Iterator[None]:
    for line in client.job(name).logs(follow=True):
        if line.pod and line.text == READY:
            counted.ready += 1
            yield
        elif line.pod:
            counted.count += 1


def _read(running: Stack, name: str) -> float:
    """Read the output of all pods at once, as a follower asks for it. Return the seconds."""
    uid = running.cluster.get(TORCHJOBS, name, NAMESPACE)["metadata"]["uid"]
    runs = running.cluster.job_runs(NAMESPACE, uid)
    began = time.perf_counter()

    def read(run: Manifest) -> int:
        number = f"{run['podUid']}.{run['container']}.{run['restart']}"
        options = LogOptions(timestamps=True, positions=True)
        return sum(map(len, running.cluster.job_log(NAMESPACE, uid, number, options=options)))

    with ThreadPoolExecutor(PODS) as pool:
        sizes = list(pool.map(read, runs))
    took = time.perf_counter() - began
    if len(sizes) != PODS:
        raise BenchError(f"job {name} has the output of {len(sizes)} pods, not of {PODS}")
    return took
