"""The machine and the versions with which a figure was measured.

One rule: a value is read from the system or it is an empty text; no value is guessed.
"""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.support import redis_server
from bench.support.processes import ROOT
from coordinator.errors import LocalError

_PACKAGES = ("redis", "rq", "kubernetes", "aiohttp")


def load() -> float:
    """Return the load average of the last minute; above the number of cores, other processes disturbed the run."""
    return round(os.getloadavg()[0], 2)


def facts() -> dict[str, Any]:
    """Return the facts on which figures depend besides the code; `commit` ends in `+` if files have been changed."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "system": platform.system() + " " + platform.release(),
        "python": platform.python_version(),
        "redis_server": _redis_server(),
        "torchq": _version("torchq-coordinator"),
        **{package.replace("-", "_"): _version(package) for package in _PACKAGES},
        "commit": _commit(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _redis_server() -> str:
    try:
        return redis_server.version(_output([redis_server.program(), "--version"]))
    except LocalError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    git = ["git", "-C", str(ROOT)]
    commit = _output([*git, "rev-parse", "--short", "HEAD"])
    changed = commit and _output([*git, "status", "--porcelain", "--untracked-files=no"])
    return commit + ("+" if changed else "")


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
