"""`torchq rpc`: serves a Python program that has imported `torchq`. The server reads requests, runs each on a thread,
and writes answers.

One rule: the thread that reads never waits for a call, and every line is written whole. Standard output has the
protocol and nothing else; the end of standard input ends the server, after the changes that are being made.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import IO, Any

import click

from coordinator import terminal
from coordinator.cli import session as sessions
from coordinator.cli.rpc import (
    call_errors,
    command_calls,
    command_output,
    followed_jobs,
    job_reads,
    output_files,
    submissions,
)
from coordinator.cli.rpc.call_context import ClusterAccesses, OpenCall
from coordinator.cli.rpc.call_errors import CallError
from coordinator.cli.rpc.command_calls import Method
from coordinator.cli.session import Session, pass_session
from torchq import _protocol
from torchq._calls import CALLS
from torchq._outbox import Outbox
from torchq._parameters import check
from torchq._protocol import LONGEST_LINE, encode
from torchq._table import Call
from torchq._version import PROTOCOL, VERSION

METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "run": submissions.run,
        "dry_run": submissions.dry_run,
        "submit": submissions.submit,
        "job": job_reads.find,
        "jobs": job_reads.list_jobs,
        "wait": followed_jobs.wait,
        "as_completed": followed_jobs.as_completed,
        **{verb: command_calls.changes_all(verb) for verb in ("cancel", "delete", "suspend", "hold")},
        "queues": command_calls.queues,
        "queue": command_calls.reads("queue", "show", of="name"),
        "next_picks": command_calls.next_picks,
        "status": command_calls.reads("status", "--seconds=0"),
        "command": command_calls.command,
        "job.phase": job_reads.phase,
        "job.why": command_calls.reads("job", "why", of="job"),
        "job.position": command_calls.position,
        "job.pods": job_reads.pods,
        "job.details": command_calls.reads("job", "show", of="job"),
        "job.logs": followed_jobs.logs,
        "job.reports": followed_jobs.reports,
        "job.wait": followed_jobs.wait_for_one,
        "job.result": followed_jobs.result,
        "job.outputs": output_files.outputs,
        "job.download": output_files.download,
        "job.restart": command_calls.restart,
        "job.move": command_calls.move,
        "job.scale": command_calls.scale,
        **{
            f"job.{verb}": command_calls.changes(verb)
            for verb in ("suspend", "resume", "cancel", "delete", "hold", "bump")
        },
    }
)
"""The method of each call in the table `torchq._calls`. A method gets the cluster, checked parameters and its open
call, and returns JSON; the method of a stream yields JSON values."""

logger = logging.getLogger(__name__)

SHORT_CALLS = 32
"""Calls that do not wait for jobs, at the same time; more of them take turns."""
LONG_CALLS = 2_000
"""Streams and waits at the same time; more of them are refused."""
CHANGE_SECONDS = 10.0
"""How long the server goes on after its client has ended, to complete the changes that it is making."""


class Server:
    """A server for one client."""

    def __init__(
        self,
        accesses: ClusterAccesses,
        requests: IO[bytes],
        answers: int,
        methods: Mapping[str, Method] = METHODS,
    ) -> None:
        """Create a server that reads `requests` and writes to the file descriptor `answers`."""
        self._accesses = accesses
        self._methods = methods
        self._requests = requests
        self._outbox = Outbox(answers)
        self._pool = ThreadPoolExecutor(SHORT_CALLS, thread_name_prefix="call")
        self._open: dict[Any, OpenCall] = {}
        self._changing = 0
        self._changed = threading.Condition()
        self._misfit = ""

    def run(self) -> None:
        """Answer until the client ends."""
        self._outbox.send(_protocol.hello())
        while line := self._requests.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE or not line.endswith(b"\n"):
                logger.error("the client sent a line without an end")
                break
            self._receive(line)
        for call in list(self._open.values()):
            call.cancel()
        with self._changed:
            self._changed.wait_for(lambda: not self._changing, CHANGE_SECONDS)
        self._outbox.close(CHANGE_SECONDS)

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            method, params, number = message["method"], message.get("params") or {}, message.get("id")
            known = self._open.get(params.get("id"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._fail(None, CallError("Invalid", "this is no request of JSON-RPC 2.0", -32_600))
            return
        if method == "hello":
            if params.get("protocol") != PROTOCOL:  # the client does not understand this server
                package = (str(params.get("version")), params.get("protocol"))
                self._misfit = _protocol.misfit("torchq", (VERSION, PROTOCOL), package)
        elif method == "cancel" and known is not None:
            known.cancel()
        elif method == "more" and known is not None:
            known.allow(int(params["count"]))
        elif number is not None:
            self._begin(number, method, params)

    def _begin(self, number: Any, method: str, params: Mapping[str, Any]) -> None:
        """Start a call on a thread of its own if the call may be long, else on a thread of the pool."""
        call, is_known = CALLS.get(method), method in self._methods
        if self._misfit or call is None or not is_known:
            reason = self._misfit or f"torchq {VERSION} has no call {method}: install a newer torchq"
            self._fail(number, CallError("VersionMismatch", reason, call_errors.UNKNOWN_METHOD))
            return
        is_long = call.stream or call.long
        if is_long and len(self._open) >= LONG_CALLS:
            self._fail(number, CallError("Refused", f"{LONG_CALLS} streams and waits are open: end some of them first"))
            return
        opened = self._open[number] = OpenCall(self._note)
        if not call.repeatable and not call.stream:
            with self._changed:
                self._changing += 1
        if is_long:
            threading.Thread(target=self._run, args=(number, call, params, opened), name=method, daemon=True).start()
        else:
            self._pool.submit(self._run, number, call, params, opened)

    def _run(self, number: Any, call: Call, params: Mapping[str, Any], opened: OpenCall) -> None:
        """Run a call and answer it."""
        try:
            self._answer(number, call, params, opened)
        finally:
            self._open.pop(number, None)
            if not call.repeatable and not call.stream:
                with self._changed:
                    self._changing -= 1
                    self._changed.notify_all()

    def _answer(self, number: Any, call: Call, params: Mapping[str, Any], opened: OpenCall) -> None:
        access = None
        try:
            check(call, params)
            access = self._accesses.present()
            value = self._methods[call.method](access, params, opened)
            if call.stream:
                self._send_items(number, value, opened)
                value = None
            answer = encode({"id": number, "result": value})
        except Exception as error:  # whatever it is, the client waits for an answer
            call_error = call_errors.error_of(error)
            if access is not None and call_error.kind in call_errors.RECONNECTING:
                self._accesses.forget(access)
            answer = encode({"id": number, "error": call_error.document})
        self._outbox.send(answer)

    def _send_items(self, number: Any, values: Generator[Any], opened: OpenCall) -> None:
        try:
            for value in values:
                if not opened.may_send():
                    return
                self._outbox.send(encode({"method": "item", "params": {"id": number, "value": value}}))
        finally:
            values.close()

    def _note(self, text: str, level: str) -> None:
        self._outbox.send(encode({"method": "note", "params": {"text": terminal.clean(text), "level": level}}))

    def _fail(self, number: Any, call_error: CallError) -> None:
        self._outbox.send(encode({"id": number, "error": call_error.document}))


@click.command()
@pass_session
def rpc(session: Session) -> None:
    """Answer programs that `import torchq`.

    A program that imports `torchq` starts this command and speaks JSON-RPC with it, a JSON object a line, over standard
    input and output. The end of the input ends it.
    """
    if sys.stdin is None or sys.stdin.isatty():
        raise click.UsageError("this command answers Python programs: use `import torchq` in one, see docs/python.md")
    requests, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    sessions.start_log(session.settings)
    with command_output.thread_streams(), os.fdopen(requests, "rb") as lines:
        Server(ClusterAccesses(session.with_user_agent("torchq-python")), lines, answers).run()
    # Threads of streams that wait for a server would delay the end.
    sys.stderr.flush()
    os._exit(0)
