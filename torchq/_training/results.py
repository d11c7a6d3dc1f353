"""`torchq.result`: what a training has reached.

One rule: the result of a job is that of rank 0. The process writes it to the termination message of its container,
where it outlives the pod.
"""

from __future__ import annotations

import os
from typing import Any

from torchq._errors import Invalid, TorchqError
from torchq._training import marked_lines, reports, surroundings
from torchq._training.json_values import as_json, as_text

MOST_BYTES = 3500
"""The most bytes of a result as JSON. A termination message has at most 4,096."""

STOP_MARK = b"torchq: stopped"
"""The line that the preStop hook of the container appends to the file. With it, an end with 0 is no success."""


def result(**values: Any) -> None:
    """Give the result of the job, as in `result(accuracy=0.95)`. Of several results, the last one counts.

    Only rank 0 gives it; in other processes the call checks the values and does nothing more. `torchq.Job.result`
    returns it once the job has ended. Outside a job it is only printed.

    Raises Invalid for a value that JSON does not have, and for more than 3,500 bytes of JSON. Raises TorchqError if the
    file that the job names for it cannot be written.
    """
    if not values:
        raise Invalid("result: has no value; give some, as in result(accuracy=0.95)")
    give(values, "result")


def give(value: object, name: str) -> None:
    """Give any JSON value as the result. `name` is what messages call it. Raises what `result` raises."""
    text = as_text(as_json(value, name))
    if len(text) > MOST_BYTES:
        raise Invalid(
            f"{name}: has {len(text):,} bytes of JSON, and at most {MOST_BYTES:,} go. "
            "Write what is large to a file in torchq.output()"
        )
    if not surroundings.is_rank_zero(os.environ):
        return
    reports.flush()
    marked_lines.write(marked_lines.RESULT, text)
    path = os.environ.get(surroundings.RESULT_FILE)
    if path:
        _write(path, f'{{"torchq-result":{text}}}'.encode() + _stop_mark(path))


def _stop_mark(path: str) -> bytes:
    """Return the line by which the node has marked that it asked the container to stop; empty without that."""
    try:
        with open(path, "rb") as file:
            return b"\n" + STOP_MARK + b"\n" if STOP_MARK in file.read().splitlines() else b""
    except OSError:
        return b""


def _write(path: str, content: bytes) -> None:
    """Replace the content of a file by one write: the file is mounted, so no other file can take its place."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(file, content)
        finally:
            os.close(file)
    except OSError as error:
        raise TorchqError(
            f"the result cannot be written to {path} ({error.strerror}): the container must be able to write its "
            "termination message"
        ) from error
