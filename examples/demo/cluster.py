"""The embedded cluster of the demo, and the command line that it uses.

One rule: the demo does what any user can do, on private ports and in a temporary folder.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.local.supervisor import Command, Supervisor


class DemoFailed(Exception):
    """The demo did not reach the result that its last line states."""


def torchq(kubeconfig: Path, *arguments: str, folder: Path) -> str:
    """Run a command in a folder as a user would, and return its output.

    Raise DemoFailed, with the error output, if it fails.
    """
    command = [sys.executable, "-m", "coordinator.cli.main", "--kubeconfig", str(kubeconfig), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DemoFailed(f"torchq {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def stack(data: Path, cpus: int, redis: str, **settings: str) -> Iterator[Supervisor]:
    """Run the embedded cluster, and stop it at the end of the block. `settings` are those of its processes."""
    command = [sys.executable, "-m", "coordinator.cli.main", "local", "up", "--foreground", "--no-current"]
    command += ["--data", str(data), "--cpus", str(cpus), "--memory", "16Gi", "--gpus", "0", "--workers", "2"]
    command += ["--redis", redis] if redis else []
    environment = {**os.environ, **{f"TORCHQ_{name.upper()}": value for name, value in settings.items()}}
    supervisor = Supervisor(drain_seconds=60)
    try:
        log = data / "stack.log"
        supervisor.start(Command(name="stack", arguments=command, output=log, environment=environment))
        _wait_until_up(supervisor, data)
        yield supervisor
    finally:
        supervisor.stop()


def _wait_until_up(supervisor: Supervisor, data: Path) -> None:
    deadline = time.monotonic() + 60
    while not (data / "ready").exists():
        supervisor.step()
        if not supervisor.pids() or time.monotonic() > deadline:
            tail = (data / "stack.log").read_text().splitlines()[-10:]
            raise DemoFailed("the embedded cluster did not start:\n" + "\n".join(tail))
        time.sleep(0.05)
