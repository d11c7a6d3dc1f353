"""The values that answers of `torchq rpc` become.

One rule: pure; the kinds are those of the table of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchq._errors import TorchqError
from torchq._table import Call
from torchq._values import Ending, LogLine


def convert(call: Call, value: Any, make_job: Callable[[str], Any]) -> Any:
    """Return the answer of a call. `make_job` makes the job of a handle."""
    kind = call.answer
    try:
        if kind == "job":
            return make_job(value)
        if kind == "jobs":
            return [make_job(each) for each in value]
        if kind == "ending":
            return _ending(value)
        if kind == "endings":
            return [_ending(each) for each in value]
        if kind == "log line":
            return LogLine(value["pod"], value["text"], value.get("time"))
    except (KeyError, TypeError, AttributeError) as error:
        raise TorchqError(f"torchq rpc answered {call.method} with {value!r}, which is no {kind}") from error
    return value


def _ending(value: Any) -> Ending:
    return Ending(
        value["handle"],
        value["outcome"],
        value.get("message") or "",
        value.get("result"),
        value.get("reason") or "",
        value.get("exitCode"),
    )
