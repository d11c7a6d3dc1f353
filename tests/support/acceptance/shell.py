"""A user's shell, for pages that show a session.

One rule: the shell has `torchq` on PATH and an empty home folder, as on a machine where nothing of torchq runs yet.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.waiting import patient

ROOT = Path(__file__).parents[3]
COMMAND_SECONDS = 240


class Shell:
    """Runs commands one by one. The current folder stays the same between commands, as in a session."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.folder = folder
        programs = home / "programs"
        programs.mkdir(parents=True)
        (programs / "torchq").write_text(f'#!/bin/sh\nexec {sys.executable} -m coordinator.cli.main "$@"\n')
        (programs / "torchq").chmod(0o755)
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. The output has the text of both streams, in the order of time."""
        if command.startswith("cd "):
            self.folder = self.folder / command.removeprefix("cd ")
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.run(
            ["sh", "-c", command],
            check=False,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patient(COMMAND_SECONDS),
        )

    def interrupt(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that has no end, until it has printed a line, and end it by Ctrl-C."""
        with subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            late = threading.Timer(patient(COMMAND_SECONDS), process.kill)
            late.start()
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            late.cancel()
        return subprocess.CompletedProcess(command, process.wait(), first + rest, "")
