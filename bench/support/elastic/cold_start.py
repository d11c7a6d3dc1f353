"""Measures how long torchrun's agents and the training script take to start, without torchq.

One rule: the number of processes that start at once is that of the step of the benchmark from which the time is
subtracted, since they share the cores.
"""

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import BenchError
from bench.support.elastic import training_record
from bench.support.processes import Bench

_SECONDS = 120.0
_POLL_SECONDS = 0.01
TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


@dataclass(eq=False)
class ColdStart:
    """The times of starts, measured at each call: the load of the machine changes during a run."""

    bench: Bench
    script: Path

    def seconds(self, agents: int, scripts: int) -> float:
        """Return how long it takes to start agents, and then training processes until their first step."""
        return self._agents(agents) + self._scripts(scripts)

    def undisturbed(self, name: str, steps: int) -> dict[int, float]:
        """Train alone and without pauses. Return the loss of each step."""
        record = self._train(f"{name}-undisturbed", 1, steps)
        return training_record.losses(training_record.parse(record.read_text()))

    def _agents(self, count: int) -> float:
        if not count:
            return 0.0
        began = time.time()
        _run([[*TORCHRUN, "--standalone", "--no-python", "true"]] * count, [{}] * count)
        return time.time() - began

    def _scripts(self, count: int) -> float:
        began = time.time()
        text = self._train(f"scripts-{count}", count, 1).read_text()
        step = training_record.first_step(training_record.parse(text), began, count)
        if step is None:
            raise BenchError(f"the training did not begin with {count} processes")
        return step.time - began

    def _train(self, name: str, world: int, steps: int) -> Path:
        """Train with `python train.py` in a static world. Return the record."""
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.bench.folder))
        record = folder / "record"
        command = [sys.executable, str(self.script), "--steps", str(steps), "--step-seconds", "0"]
        command += ["--folder", str(folder), "--record", str(record)]
        port = str(self.bench.port())
        ranks = [
            {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            for rank in range(world)
        ]
        _run([command] * world, ranks)
        return record


def _run(commands: Sequence[Sequence[str]], variables: Sequence[Mapping[str, str]]) -> None:
    """Run all commands at once until they end. Raises BenchError if a process fails."""
    start = functools.partial(subprocess.Popen[str], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    base = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCHQ_MAX_WORKERS": "4"}
    processes = [start(command, env={**base, **more}) for command, more in zip(commands, variables, strict=True)]
    deadline = time.monotonic() + _SECONDS
    try:
        for command, process in zip(commands, processes, strict=True):
            _, errors = process.communicate(timeout=max(0.0, deadline - time.monotonic()))
            if process.returncode:
                raise BenchError(f"{' '.join(command)}: exit code {process.returncode}\n{errors[-1000:]}")
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(commands[0])}: not over after {_SECONDS:.0f} s") from error
    finally:
        for process in processes:
            process.kill()
