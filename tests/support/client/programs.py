"""Programs named `torchq` for clients under test: the real program of this source tree, and a program that follows a
plan.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.client import fake_rpc

ROOT = Path(__file__).parents[3]


def install(folder: Path) -> str:
    """Write a program `torchq` that runs this source tree, and return a PATH that begins with its folder."""
    return _script(folder, f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -P -m coordinator.cli.main "$@"')


def install_text(folder: Path, text: str) -> str:
    """Write a program `torchq` of these shell lines, and return a PATH that begins with its folder."""
    return _script(folder, text)


@dataclass(frozen=True)
class FakeProgram:
    """The program that follows a plan, and the messages that it got."""

    path: str
    """The PATH that begins with its folder."""
    log: Path
    plan: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        """The variables that a client needs to find the program."""
        return {"PATH": self.path, "FAKE_RPC_PLAN": json.dumps(self.plan), "FAKE_RPC_LOG": str(self.log)}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that all processes of the program have recorded."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def got(self, method: str) -> list[dict[str, Any]]:
        """Return the messages of a method."""
        return [each for each in self.messages if each.get("method") == method]

    @property
    def pids(self) -> list[int]:
        """The ids of all processes of the program."""
        return [each["start"] for each in self.messages if "start" in each]


def install_fake(folder: Path, calls: Mapping[str, Any] | None = None, **plan: Any) -> FakeProgram:
    """Write the program that follows a plan. `calls` maps a method to its behaviour, or to a list with one behaviour
    for each process.
    """
    turns = {method: each if isinstance(each, list) else [each] for method, each in (calls or {}).items()}
    path = _script(folder, f'exec "{sys.executable}" "{fake_rpc.__file__}" "$@"')
    return FakeProgram(path, folder / "log", {"calls": turns, **plan})


def _script(folder: Path, text: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "torchq"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
