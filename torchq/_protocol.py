"""The protocol between this package and `torchq rpc`: JSON-RPC 2.0, one JSON object a line, both ways.

    both sides, first    {"method": "hello", "params": {"version": "0.2.0", "protocol": 1}}
    caller               {"id": 1, "method": "job.logs", "params": {...}}
    program, of streams  {"method": "item", "params": {"id": 1, "value": ...}}, any number of them
    program              {"method": "note", "params": {"text": ..., "level": "info" or "warning"}}, for people
    program              {"id": 1, "result": ...} or {"id": 1, "error": {"code": ..., "message": ..., "data": {...}}}
    caller, of streams   {"method": "more", "params": {"id": 1, "count": 128}}, as items are used
    caller               {"method": "cancel", "params": {"id": 1}}

The program sends at most WINDOW items of a stream ahead of what the caller has used, so that a slow reader stalls its
own stream only.

One rule: no I/O but the log; the clients for threads and for asyncio share this module.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from torchq._errors import NoProgram, TorchqError, VersionMismatch, from_answer
from torchq._version import CLIENT_PACKAGE, PROGRAM_PACKAGE, PROTOCOL, VERSION

logger = logging.getLogger("torchq")

WINDOW = 256
LONGEST_LINE = 64 * 1024 * 1024
"""The most bytes of a line."""

Message = dict[str, Any]
Sink = Callable[[str, Any], object]
"""What gets the news of a call: ("item", value), and last ("answer", value) or ("error", exception)."""


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as a line of ASCII."""
    return json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"


def hello() -> bytes:
    """Return the first line of either side."""
    return encode({"method": "hello", "params": {"version": VERSION, "protocol": PROTOCOL}})


def misfit(program: str, at_program: tuple[str, object], at_package: tuple[str, object]) -> str:
    """Return the message about two sides that do not understand each other; each has a version and a protocol."""
    return (
        f"the package torchq {at_package[0]} (protocol {at_package[1]}) and the program {program} {at_program[0]} "
        f"(protocol {at_program[1]}) do not understand each other: install the same version of both, with "
        f"`pip install {CLIENT_PACKAGE}=={at_program[0]}` for the package "
        f"or `pip install {PROGRAM_PACKAGE}=={at_package[0]}` for the program"
    )


def check_hello(line: bytes, program: str) -> None:
    """Check the first line of a program. Raises NoProgram for another program, VersionMismatch for another version."""
    try:
        message = json.loads(line)
        params = message["params"]
        version, protocol = str(params["version"]), params["protocol"]
    except (ValueError, KeyError, TypeError):
        raise NoProgram(
            f"the program {program} does not answer as `torchq rpc` does, but with {line[:80]!r}: "
            f"put the `torchq` of `pip install {PROGRAM_PACKAGE}` first on PATH"
        ) from None
    if protocol != PROTOCOL:
        raise VersionMismatch(misfit(program, (version, protocol), (VERSION, PROTOCOL)))


class Lines:
    """The lines in a sequence of pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that a piece completes, without their ends."""
        first, *others = piece.split(b"\n")
        self._pieces.append(first)
        if not others:
            return []
        line = b"".join(self._pieces)
        self._pieces = [others.pop()]
        return [line, *others]


class Dialog:
    """The calls of one connection that have no answer yet. Safe to share between threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._sinks: dict[int, Sink] = {}
        self._end: Callable[[], TorchqError] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for an answer."""
        return not self._sinks

    def open(self, method: str, params: Mapping[str, Any], sink: Sink) -> tuple[int, bytes]:
        """Return the number of a new call, and the line to send. Raises the error of a connection that has ended."""
        number = next(self._numbers)
        line = encode({"id": number, "method": method, "params": params})
        self._sinks[number] = sink
        if self._end is not None:
            self._sinks.pop(number, None)
            raise self._end()
        return number, line

    def cancel(self, number: int) -> bytes | None:
        """Forget a call, and return the line that cancels it; None if the call has been answered."""
        if self._sinks.pop(number, None) is None:
            return None
        return encode({"method": "cancel", "params": {"id": number}})

    def more(self, number: int, count: int) -> bytes:
        """Return the line that allows more items of a stream."""
        return encode({"method": "more", "params": {"id": number, "count": count}})

    def receive(self, line: bytes) -> None:
        """Give a line of the program to its call. Raises ValueError for a line that is no message."""
        message = json.loads(line)
        if message.get("method") == "item":
            params = message["params"]
            sink = self._sinks.get(params["id"])
            if sink is not None:
                sink("item", params["value"])
        elif message.get("method") == "note":
            level = logging.WARNING if message["params"].get("level") == "warning" else logging.INFO
            logger.log(level, "%s", message["params"]["text"])
        elif "id" in message:
            sink = self._sinks.pop(message["id"], None)
            if sink is not None and "error" in message:
                sink("error", from_answer(message["error"]))
            elif sink is not None:
                sink("answer", message.get("result"))

    def end(self, error: Callable[[], TorchqError]) -> None:
        """Give every open call, and every later one, its own error."""
        self._end = error
        while self._sinks:
            try:
                _, sink = self._sinks.popitem()
            except KeyError:
                return
            sink("error", error())
