"""The commands of `torchq` as calls: the output of a command becomes the answer.

One rule: each thread has its own output. Nothing that a command prints reaches the standard output of the process,
which belongs to the protocol.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click
import orjson

from coordinator.cli.main import main
from coordinator.cli.rpc.call_context import OpenCall
from coordinator.cli.session import Session
from coordinator.terminal import Door, TextBuffer

NOT_CALLED = ("coordinator", "worker", "local", "top", "run", "rpc", "submit")
"""Commands that run for long, need a terminal or the caller's folder, or have a call of their own."""


@dataclass(slots=True)
class CommandOutput:
    """The output of a command."""

    out: str = ""
    notes: str = ""
    """What it printed to standard error."""
    failed: bool = False
    """Whether it has ended with an exit code other than 0, although it could go on to its end."""

    def parse(self) -> Any:
        """Return the JSON document that the command has printed."""
        return orjson.loads(self.out)


class _ThreadStream(io.TextIOBase):
    """A standard stream whose text goes to the output of the thread that writes it, if that thread has an output."""

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, field: str, other: TextIO) -> None:
        super().__init__()
        self._field = field
        self._other = other
        self.buffer = TextBuffer(self)

    def write(self, text: str) -> int:
        """Write to the output of this thread, else to the other stream."""
        output: CommandOutput | None = getattr(_OUTPUTS, "present", None)
        if output is None:
            return self._other.write(text)
        setattr(output, self._field, getattr(output, self._field) + text)
        return len(text)

    def flush(self) -> None:
        """Flush the other stream; an output needs no flush."""
        self._other.flush()


_OUTPUTS = threading.local()


@contextlib.contextmanager
def thread_streams() -> Iterator[None]:
    """Replace the standard streams by streams that write to the output of each thread. Any other output goes to
    standard error.
    """
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Door(_ThreadStream("out", err)), Door(_ThreadStream("notes", err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def run(session: Session, call: OpenCall, *words: str) -> CommandOutput:
    """Run a command as the command line does, and return the output of the command. The notes of the command are sent
    to the caller.

    Raises the command's own errors: UsageError for wrong options, and the errors of the cluster.
    """
    output = CommandOutput()
    _OUTPUTS.present = output
    try:
        with click.Context(main, info_name="torchq", obj=session) as context:
            name, command, rest = main.resolve_command(context, list(words))
            if command is None:
                raise click.UsageError(f"there is no command {name}", context)
            with command.make_context(name, rest, parent=context) as inner:
                command.invoke(inner)
    except click.exceptions.Exit:
        pass  # the exit code repeats what the output says
    except SystemExit as ending:
        output.failed = bool(ending.code)
    finally:
        _OUTPUTS.present = None
        if output.notes:
            call.tell(output.notes.strip(), "warning")
    return output


def check_callable(words: Sequence[str]) -> None:
    """Raise UsageError for a command that is not run as a call."""
    name = words[0] if words else ""
    if not name or name.startswith("-"):
        raise click.UsageError('name a command, as in command("queue", "list")')
    if name in NOT_CALLED:
        raise click.UsageError(f"`torchq {name}` is no call: run it in a shell, or use the function of that name")
