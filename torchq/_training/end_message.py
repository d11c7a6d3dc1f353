"""The termination message of the container: what the training has to say at its end, where it outlives the pod.

One rule: a part replaces only the earlier value of the same part. `reconcilers/views/pod_result.py` reads the message.
"""

from __future__ import annotations

import json
import os

RESULT, MODEL = "torchq-result", "torchq-model"
"""The parts of the message, in their order: the result, and the count of the files of the model."""
STOP_MARK = b"torchq: stopped"
"""The line that the preStop hook of the container appends to the file. With it, an end with 0 is no success."""


def put(path: str, part: str, text: str) -> None:
    """Write a part, given as JSON, into the file of the message. Raises OSError."""
    mark, parts = _read(path)
    parts[part] = text
    shown = ",".join(f'"{name}":{parts[name]}' for name in (RESULT, MODEL) if name in parts)
    _write(path, f"{{{shown}}}".encode() + mark)


def _read(path: str) -> tuple[bytes, dict[str, str]]:
    """Return the line by which the node has marked that it asked the container to stop, and the parts that the message
    has."""
    try:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return b"", {}
    mark = b"\n" + STOP_MARK + b"\n" if STOP_MARK in lines else b""
    try:
        found = json.loads(b"\n".join(line for line in lines if line != STOP_MARK))
    except ValueError:
        return mark, {}
    parts = found if isinstance(found, dict) and found.keys() <= {RESULT, MODEL} else {}
    return mark, {name: json.dumps(value, separators=(",", ":")) for name, value in parts.items()}


def _write(path: str, content: bytes) -> None:
    """Replace the content of a file by one write: the file is mounted, so no other file can take its place. On a full
    disk the earlier content stays."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.ftruncate(file, os.write(file, content))
    finally:
        os.close(file)
