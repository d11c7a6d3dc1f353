"""`torchq.result`: the result of a training.

One rule: the result of a job is that of rank 0. The process writes it to the termination message of its container,
where it outlives the pod; `large_results` keeps a result that does not fit there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from torchq._errors import Invalid
from torchq._training import end_message, kept_values, large_results, marked_lines, reports, surroundings
from torchq._training.json_values import as_text

log = logging.getLogger("torchq")
MOST_BYTES = 3500
"""The most bytes of JSON in a termination message, which has at most 4,096."""


def result(values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
    """Give the result of the job, as in `result(accuracy=0.95)` or `result({"val/loss": 0.1})`. Of several results, the
    last result is used.

    Only rank 0 sets the result; in other processes the call does nothing. `torchq.Job.result` returns it once the job
    has ended. Outside a job it is only printed.

    Tuples become lists, keys become text, NaN and infinity become text, arrays become lists, and a value that JSON
    cannot express becomes its repr. A result of more than 3,500 bytes of JSON is written to the file torchq-result.json
    of the job's outputs. Raises Invalid without a value.
    """
    if values is None and not more:
        raise Invalid("result: has no value; give some, as in result(accuracy=0.95)")
    give({**values, **more} if isinstance(values, Mapping) else more if values is None else values, "result")


def give(value: object, name: str) -> None:
    """Give any value as the result. `name` is the name of the value in messages. Nothing raises: the training is
    done."""
    if not surroundings.is_rank_zero(os.environ):
        return
    kept, place = kept_values.as_kept(value, name)
    text = as_text(kept)
    if place:
        log.warning("%s: is no JSON, so its repr is kept", place)
        if folder := os.environ.get(surroundings.OUTPUT):
            large_results.write(folder, large_results.REPR_FILE, kept_values.represent(value))
    reports.flush()
    path = os.environ.get(surroundings.RESULT_FILE)
    if path and len(text) > MOST_BYTES:
        text = as_text(_keep_large(text, name).document())
    marked_lines.write(marked_lines.RESULT, text)
    if path:
        _write(path, text)


def _keep_large(text: str, name: str) -> large_results.Reference:
    reference = large_results.keep(text, os.environ)
    if not (reference.file or reference.is_logged):
        log.warning(
            "%s: has %s bytes of JSON, and is lost: the log keeps at most %s. Give the job outputs, or write what is "
            "large to a file",
            name,
            f"{len(text):,}",
            f"{large_results.MOST_LOGGED:,}",
        )
    return reference


def _write(path: str, text: str) -> None:
    try:
        end_message.put(path, end_message.RESULT, text)
    except OSError as error:
        log.warning(
            "the result cannot be written to %s (%s), so it is only in the log: the container must be able to write "
            "its termination message",
            path,
            error.strerror,
        )
