"""Programs of users, which run as separate processes.

One rule: a program sees the variables of its job that a test names, and no variable of a job in which the test itself
may run.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import SECONDS, patient

OF_JOBS = ("TORCHQ_", "RANK", "LOCAL_RANK", "WORLD_SIZE")
IMPORTS = """
import torchq
from torchq._functions.remote import remote
from torchq._training.outputs import output
from torchq._training.reports import report
from torchq._training.results import result
"""


def run(
    code: str, variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run code that may call `report`, `result`, `output` and `remote`."""
    return run_command([sys.executable, "-c", IMPORTS + code], variables, folder)


def run_command(
    command: Sequence[str], variables: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command; `python` is the interpreter of the test."""
    words = [sys.executable if word == "python" else word for word in command]
    own = {name: value for name, value in os.environ.items() if not name.startswith(OF_JOBS)}
    environment = {**own, **(variables or {})}
    return subprocess.run(
        words, env=environment, cwd=folder, capture_output=True, text=True, timeout=patient(SECONDS), check=False
    )


def marked(output: str, mark: str) -> list[str]:
    """Return the text after a mark, for each line that begins with the mark."""
    return [line[len(mark) :] for line in output.splitlines() if line.startswith(mark)]
