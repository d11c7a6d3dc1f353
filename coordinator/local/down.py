"""`torchq local down`: ends the cluster of a data folder, and waits until none of its processes runs.

One rule: the command waits as long as the pods may take, and prints the length of this time. `torchq local down` may be
interrupted and repeated at any time. The command ends parts only through the supervisor, and starts a supervisor if
pods run without one.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from coordinator import release
from coordinator.errors import LocalError
from coordinator.local import remaining_pods, stack, stack_state, target
from coordinator.local.stack_state import Files
from kube.stop import HURRY

_TRIES = 3
"""The most attempts to end the pods, each with a new supervisor if the last one was killed."""
_LOOK_SECONDS = 0.2
_SAY_AGAIN_SECONDS = 15.0


def down(data: Path, *, keep: bool = False, now: bool = False) -> None:
    """End the cluster, and its pods unless `keep`, and print the result. Raises LocalError if the cluster cannot be
    stopped.
    """
    pid = stack_state.supervisor_pid(data)
    runs = pid is not None or bool(remaining_pods.running(data))
    if keep and runs and remaining_pods.ending(data):
        raise LocalError("--keep comes too late: the pods are already ending")
    if pid is None and (keep or not runs):
        print_line(f"no cluster runs in {data}{describe_remaining_pods(data, '; ')}")
        return
    try:
        if pid is not None:
            _wait(data, pid, stack.LEAVE if keep else HURRY if now else signal.SIGTERM)
        if not keep:
            _end_pods(data, now=now)
    except KeyboardInterrupt:
        wait, kill = target.command("down", data), stack.hurry_command(data)
        print_line(f"\nthe cluster continues to go down: `{wait}` waits for it, `{kill}` kills its pods")
        sys.exit(1)
    print_line(f"the cluster is down{describe_remaining_pods(data, '; ')}")


def _end_pods(data: Path, *, now: bool) -> None:
    """End the pods that run without a supervisor, after it was killed or has left them running."""
    for _ in range(_TRIES):
        if not remaining_pods.running(data):
            return
        _wait(data, stack_state.supervisor_pid(data) or _start_ending(data, now=now), None)
    pods = remaining_pods.running(data)
    if pods:
        raise LocalError(f"{remaining_pods.format_count(pods)} cannot be ended; see {_log(data)}")


def describe_remaining_pods(data: Path, before: str = "") -> str:
    """Return a text about pods that run without their cluster, after the text `before`; empty without such pods."""
    pods = remaining_pods.running(data)
    if not pods:
        return ""
    verb = "runs" if len(pods) == 1 else "run"
    up, end = target.command("up", data), target.command("down", data)
    return f"{before}{remaining_pods.format_count(pods)} still {verb}: `{up}` takes over what runs, `{end}` ends it"


def _wait(data: Path, pid: int, number: signal.Signals | None) -> None:
    """Send a signal to a process and wait until it has ended.

    Both use a descriptor of the process, which never refers to a later process with the same id.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    progress = _EndingProgress(data)
    try:
        if number is not None:
            signal.pidfd_send_signal(descriptor, number)
        while not select.select([descriptor], [], [], _LOOK_SECONDS)[0]:
            progress.look()
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)


class _EndingProgress:
    """Prints how many pods still end, when their number changes and from time to time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._count = 0
        self._said_at = time.monotonic()

    def look(self) -> None:
        pods = remaining_pods.ending(self._data) or ()
        now = time.monotonic()
        if len(pods) == self._count and now - self._said_at < _SAY_AGAIN_SECONDS:
            return
        if pods:
            hint = "" if self._count else f" (Ctrl-C stops waiting, `{stack.hurry_command(self._data)}` kills them)"
            print_line(remaining_pods.format_progress(pods, time.time()) + hint)
        elif not self._count:
            print_line("waiting for the coordinator and the workers to end")
        self._count, self._said_at = len(pods), now


def _start_ending(data: Path, *, now: bool) -> int:
    """Start the process that ends the pods of a cluster that is down; return its process id."""
    log = _log(data)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*release.MODULE, "coordinator.cli.main", "local", "end-pods", "--data", str(data), *["--now"] * now]
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    return child.pid


def _log(data: Path) -> Path:
    return Files(data).layout.logs("stack")


def print_line(text: str) -> None:
    """Print a line about work that must continue even if the terminal closes or the reader of the output ends."""
    try:
        click.echo(text)
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
