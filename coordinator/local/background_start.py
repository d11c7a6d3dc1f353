"""`torchq local up` in the background: starts the supervisor as a process of its own and waits until it is ready.

One rule: at the end the cluster is up, or one message says why it is not and none of its processes runs.
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

import click
import orjson

from coordinator.errors import LocalError
from coordinator.local import remaining_pods, stack, stack_state
from coordinator.local.stack_start import last_lines
from coordinator.local.stack_state import AlreadyRuns, Files

SILENT_SECONDS = 120.0
"""A start without a report for this long is given up. It is longer than the limit of any part."""
_LOOK_SECONDS = 0.1


class ProgressPrinter:
    """Prints each part that starts and its duration, if standard error is a terminal."""

    def __init__(self, *, is_visible: bool | None = None) -> None:
        self._visible = sys.stderr.isatty() if is_visible is None else is_visible
        self._since = 0.0
        self._open = False

    def part(self, name: str) -> None:
        """Note that the start of a part begins."""
        self.done()
        if self._visible:
            click.echo(f"  {name} ...", err=True, nl=False)
            self._since, self._open = time.monotonic(), True

    def done(self) -> None:
        """Note that the last part has started."""
        self._end(f" {time.monotonic() - self._since:.1f} s")

    def abort(self) -> None:
        """Note that the last part has failed to start."""
        self._end("")

    def _end(self, text: str) -> None:
        if self._open:
            click.echo(text, err=True)
            self._open = False


class Channel:
    """Sends the events of a supervisor in the background to the command that started it, one JSON line per event.

    If that command has ended, the events are dropped.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def part(self, name: str) -> None:
        """Report that the start of a part begins."""
        self._tell({"part": name})

    def ready(self) -> None:
        """Report that all parts run."""
        self._tell({"ready": True})

    def report_failure(self, error: Exception) -> None:
        """Report that the cluster has not started. All processes of the stack have been stopped."""
        self._tell({"failed": str(error), "taken": isinstance(error, AlreadyRuns)})

    def _tell(self, event: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, orjson.dumps(event) + b"\n")


def up(data: Path, command: list[str]) -> bool:
    """Start the cluster of a data folder unless it is up; return whether this call started it.

    `command` runs a supervisor in the foreground; its last argument is the descriptor of a Channel. Raises LocalError
    if the cluster cannot be started.
    """
    while not _is_up(data):
        if _start(data, command, ProgressPrinter()):
            return True
    return False


def _is_up(data: Path) -> bool:
    """Return whether the cluster is already up. Waits while another process starts or stops the cluster."""
    deadline, reported = time.monotonic() + SILENT_SECONDS, False
    while pid := stack_state.supervisor_pid(data):
        if stack_state.members(data):
            return True
        ending = remaining_pods.ending(data)
        if ending:  # pods may take long to end
            deadline = time.monotonic() + SILENT_SECONDS
        if not reported:
            doing = "is starting or stopping this cluster"
            if ending:
                doing = f"is ending this cluster ({remaining_pods.format_progress(ending, time.time())})"
            click.echo(f"process {pid} {doing}: waiting for it", err=True)
            reported = True
        if time.monotonic() > deadline:
            raise LocalError(f"process {pid} has neither started nor stopped the cluster in {SILENT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    return False


def _start(data: Path, command: list[str], progress: ProgressPrinter) -> bool:
    """Start a supervisor and wait for the cluster; return False if another process is starting it at the same time."""
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
            progress.abort()
            _stop(child)
            raise LocalError("interrupted: the cluster was not started, and its processes are stopped") from None
        except EOFError:
            progress.abort()
            tail = "\n  ".join(["", *last_lines(log.read_bytes()[before:])])
            raise LocalError(f"the cluster did not start; the end of {log}:{tail}") from None


def _follow(events: Iterator[dict[str, object]], child: "subprocess.Popen[bytes]", progress: ProgressPrinter) -> bool:
    """Print events until the last one; return as `_start` does. Raises EOFError if the supervisor ended without a
    report."""
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
            progress.abort()
            child.wait()
            raise LocalError(str(event["failed"]))
    _stop(child)
    raise EOFError


def _events(stream: RawIOBase) -> Iterator[dict[str, object]]:
    """Yield the events of a channel until its writer ends, or sends nothing for SILENT_SECONDS."""
    rest = b""
    while select.select([stream], [], [], SILENT_SECONDS)[0] and (more := stream.read(1 << 16)):
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield orjson.loads(line)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """End a supervisor, which ends the parts that it has started. A second interrupt kills the supervisor."""
    if child.poll() is None:
        click.echo("stopping the processes of the cluster (Ctrl-C again kills them)", err=True)
        child.send_signal(stack.LEAVE)  # it must not end pods of an earlier start that it has taken over
    try:
        child.wait()
    except KeyboardInterrupt:
        child.kill()
        child.wait()


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, unless they are ignored, as under nohup."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    replaced = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in replaced:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, before[number])
