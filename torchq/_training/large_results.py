"""Results that do not fit into a termination message: where they are kept, and how they are found again.

One rule: the termination message has a reference with the digest of the result. A copy with another digest is another
result. `coordinator/follow/kept_results.py` reads both.

A result is a file of the job's outputs. On Kubernetes, where nobody outside the pods reads the outputs, and where a job
has no outputs, the result is also written as lines of the log, up to `MOST_LOGGED`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchq._training import marked_lines, surroundings

KEY = "torchq-result-kept"
FILE, REPR_FILE = "torchq-result.json", "torchq-result.txt"
"""The files of a job's outputs with its result as JSON, and with the repr of what is no JSON."""
MOST_LOGGED = 1024 * 1024
"""The most bytes of a result that the log keeps: a kubelet keeps 10 MiB of it."""
LINE = 8000
ON_CLAIM = "/torchq/output"
"""The folder of outputs on a claim of Kubernetes."""


@dataclass(frozen=True)
class Reference:
    """The value that stands for a large result."""

    bytes: int
    digest: str
    file: str = ""
    """The name of its file in the outputs of the job; empty if it is in none."""
    is_logged: bool = False
    """Whether it is in the log."""

    def document(self) -> dict[str, Any]:
        """Return the reference as a JSON value."""
        return {KEY: asdict(self)}


def keep(text: str, environ: Mapping[str, str]) -> Reference:
    """Keep a result, as JSON in ASCII, wherever this process can."""
    folder = environ.get(surroundings.OUTPUT, "")
    file = FILE if folder and write(folder, FILE, text) else ""
    is_logged = (not file or folder.rstrip("/") == ON_CLAIM) and len(text) <= MOST_LOGGED
    reference = Reference(len(text), digest(text), file, is_logged)
    if is_logged:
        for start in range(0, len(text), LINE):
            marked_lines.write(marked_lines.RESULT_PART, f"{reference.digest} {start} {text[start : start + LINE]}")
    return reference


def write(folder: str, name: str, text: str) -> bool:
    """Write a file of the job's outputs, so that its name never stands for a part of the content. Return whether the
    file is there.
    """
    part = Path(folder, f".{name}.{os.getpid()}.part")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        os.replace(part, Path(folder, name))
    except OSError:
        return False
    return True


def digest(text: str) -> str:
    """Return the digest that distinguishes a result from other results."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
