"""The real kubectl, run as a user runs it: with a kubeconfig, its current context, and a namespace.

One rule: tests check only what a user sees: the output and the exit code.
"""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import patient

SECONDS = 90.0
needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on PATH")


@dataclass(frozen=True)
class KubectlResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one server, in one namespace."""

    kubeconfig: Path
    home: Path
    namespace: str = "default"
    embedded: bool = True

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), **more}

    def try_run(self, *arguments: str, body: Any = None, **variables: str) -> KubectlResult:
        """Run a command that may fail, and return its exit code and output."""
        text = None if body is None else body if isinstance(body, str) else json.dumps(body)
        done = subprocess.run(
            self.command(*arguments),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=patient(SECONDS),
            check=False,
        )
        return KubectlResult(done.returncode, done.stdout, done.stderr)

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--namespace", self.namespace, *arguments]

    def __call__(self, *arguments: str, body: Any = None, **variables: str) -> str:
        """Run a command that must succeed, and return its output."""
        result = self.try_run(*arguments, body=body, **variables)
        assert result.code == 0, result
        return result.out

    def refused(self, *arguments: str, body: Any = None) -> str:
        """Run a command that must fail, and return its error output."""
        result = self.try_run(*arguments, body=body)
        assert result.code != 0, result
        return result.err

    def json(self, *arguments: str) -> Any:
        """Run a command with -o json and return the parsed output."""
        return json.loads(self(*arguments, "-o", "json"))

    def rows(self, *arguments: str) -> list[list[str]]:
        """Run a command that prints a table and return its cells, header first; two spaces separate cells."""
        lines = self(*arguments).splitlines()
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines if line]
