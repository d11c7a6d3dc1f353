"""`torchq local up` in the background: the supervisor is a process of its own; this one watches it until it is ready.

One rule: when this returns, the cluster is up, or one message says why not and nothing of it runs.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import RawIOBase
from pathlib import Path
from types import FrameType

import click
import orjson

from coordinator.errors import LocalError
from coordinator.local import remaining_pods, stack, stack_state
from coordinator.local.stack_start import last_lines
from coordinator.local.stack_state import AlreadyRuns, Files

SILENT_SECONDS = 120.0
"""A start that reports nothing for so long is given up: every part has less."""
_LOOK_SECONDS = 0.1


class Progress:
    """Tells a person at a terminal which part is being started, and how long each took; tells a program nothing."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._visible = sys.stderr.isatty() if shown is None else shown
        self._since = 0.0
        self._open = False

    def part(self, name: str) -> None:
        """The start of a part begins."""
        self.done()
        if self._visible:
            click.echo(f"  {name} ...", err=True, nl=False)
            self._since, self._open = time.monotonic(), True

    def done(self) -> None:
        """The last part has started."""
        if self._open:
            click.echo(f" {time.monotonic() - self._since:.1f} s", err=True)
            self._open = False

    def broken(self) -> None:
        """The last part has not started."""
        if self._open:
            click.echo("", err=True)
            self._open = False


class Channel:
    """How a supervisor in the background tells the command that started it what it does: one JSON line for each event.

    The command may be gone: then nobody is told.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def part(self, name: str) -> None:
        """The start of a part begins."""
        self._tell({"part": name})

    def ready(self) -> None:
        """Everything runs."""
        self._tell({"ready": True})

    def failed(self, error: Exception) -> None:
        """The cluster has not started; everything that was started has been stopped."""
        self._tell({"failed": str(error), "taken": isinstance(error, AlreadyRuns)})

    def _tell(self, event: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, orjson.dumps(event) + b"\n")


def up(data: Path, command: list[str]) -> bool:
    """Have a cluster run in a data folder; whether this started it. LocalError if it cannot be started.

    `command` runs a supervisor in the foreground; it gets the descriptor of a Channel as its last argument.
    """
    while not _is_up(data):
        if _start(data, command, Progress()):
            return True
    return False


def _is_up(data: Path) -> bool:
    """Whether the cluster is up already. Waits while another process starts or stops it."""
    deadline, reported = time.monotonic() + SILENT_SECONDS, False
    while pid := stack_state.supervisor_pid(data):
        if stack_state.members(data):
            return True
        ending = remaining_pods.ending(data)
        if ending:  # that takes as long as pods may take to end
            deadline = time.monotonic() + SILENT_SECONDS
        if not reported:
            doing = (
                f"ends this cluster ({remaining_pods.progress(ending, time.time())})"
                if ending
                else "starts or stops this cluster"
            )
            click.echo(f"process {pid} {doing}: waiting for it", err=True)
            reported = True
        if time.monotonic() > deadline:
            raise LocalError(f"process {pid} has neither started nor stopped the cluster in {SILENT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    return False


def _start(data: Path, command: list[str], progress: Progress) -> bool:
    """Whether the cluster is up; False if another process began to start it at the same time."""
    log = Files(data).layout.logs("stack")
    log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with _interruptible(), open(reading, "rb", buffering=0) as events, log.open("ab") as out:
        before = out.tell()
        child = subprocess.Popen(
            [*command, str(writing)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(writing,),
        )
        os.close(writing)
        try:
            return _follow(_events(events), child, progress)
        except KeyboardInterrupt:
            progress.broken()
            _stop(child)
            raise LocalError("interrupted: the cluster was not started; what was started of it is stopped") from None
        except EOFError:
            progress.broken()
            tail = "\n  ".join(["", *last_lines(log.read_bytes()[before:])])
            raise LocalError(f"the cluster did not start; the end of {log}:{tail}") from None


def _follow(events: Iterator[dict[str, object]], child: "subprocess.Popen[bytes]", progress: Progress) -> bool:
    """Show events until the last; see _started. EOFError if the supervisor ended without a word."""
    for event in events:
        if "part" in event:
            progress.part(str(event["part"]))
        elif "ready" in event:
            progress.done()
            return True
        elif event.get("taken"):
            child.wait()
            return False
        else:
            progress.broken()
            child.wait()
            raise LocalError(str(event["failed"]))
    _stop(child)
    raise EOFError


def _events(stream: RawIOBase) -> Iterator[dict[str, object]]:
    """The events of a channel until its writer is gone, or says nothing for too long."""
    rest = b""
    while select.select([stream], [], [], SILENT_SECONDS)[0] and (more := stream.read(1 << 16)):
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield orjson.loads(line)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End a supervisor, which ends what it has started; interrupted once more, kill it."""
    if child.poll() is None:
        click.echo("stopping what was started (Ctrl-C once more kills it)", err=True)
        child.send_signal(stack.LEAVE)  # pods of the last time that it goes on with are not its own to end
    try:
        child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM and the end of the terminal mean what Ctrl-C means, unless they are ignored, as by nohup."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    replaced = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in replaced:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, before[number])


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
