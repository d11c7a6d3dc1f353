"""Fast torchq commands: a waiting process has imported the command line, and forks a new process for each command.

One rule: a command is a separate process with its own arguments, variables, folder, standard streams and exit code.
Other tests check that `python -m coordinator.cli.main` starts by itself.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import click

from coordinator.cli import main

ROOT = Path(__file__).parents[3]
BACKLOG = 64
LARGEST_REQUEST = 1 << 20
PARENT_IS_THERE = 0
"""The file descriptor of standard input. Standard input reaches its end when the test process ends."""


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Warm:
    """A runner of commands. The runner starts the waiting process with the first command."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def run(
        self, *arguments: str, cwd: Path, environment: Mapping[str, str], text: str | None = None, seconds: float
    ) -> CommandResult:
        """Run a command to its end and return its result. At the timeout, kill the command and raise TimeoutError."""
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write((text or "").encode())
            streams[0].seek(0)
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(self._address())
            connection.settimeout(seconds)
            request = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)}
            code = _ask(connection, request, streams)
            out, err = (_content(each) for each in streams[1:])
        return CommandResult(code, out, err)

    def close(self) -> None:
        """End the waiting process."""
        if self._process is None or self._folder is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()
        self._process = self._folder = None

    def _address(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="torchq-warm-")
            command = [sys.executable, "-m", __name__, f"{self._folder.name}/socket"]
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert self._process.stdout is not None
            with self._process.stdout as ready:
                assert ready.readline(), "the process that waits for commands has ended"
        return f"{self._folder.name}/socket"


def _ask(connection: socket.socket, request: Mapping[str, object], streams: list[BinaryIO]) -> int:
    """Return the exit code of the command, negative for a signal, as in subprocess."""
    socket.send_fds(connection, [json.dumps(request).encode()], [each.fileno() for each in streams])
    connection.shutdown(socket.SHUT_WR)
    with connection.makefile("r") as answer:
        pid = int(answer.readline())
        try:
            return int(answer.readline())
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise


def _content(stream: BinaryIO) -> str:
    stream.seek(0)
    return stream.read().decode()


def wait_for_commands(address: str) -> None:
    """Fork a process for each request, and return only in such a process, set up for its command.

    The waiting process itself exits when the process that started it ends.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()  # garbage collection in a fork would copy the pages of all imported modules
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(BACKLOG)
        os.write(1, b"ready\n")
        while True:
            readable, _, _ = select.select([listening, PARENT_IS_THERE], [], [])
            if PARENT_IS_THERE in readable:
                sys.exit()
            connection, _ = listening.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection:
        request, streams = _received(connection)
        pid = os.fork()
        if pid:
            connection.sendall(f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os._exit(0)
    _become(request, streams)


def _received(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    first, streams, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
    return json.loads(b"".join([first, *_rest(connection)])), streams


def _rest(connection: socket.socket) -> Iterator[bytes]:
    while more := connection.recv(LARGEST_REQUEST):
        yield more


def _become(request: dict[str, object], streams: list[int]) -> None:
    for wanted, stream in enumerate(streams):
        os.dup2(stream, wanted)
        os.close(stream)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    sys.argv[1:] = request["arguments"]  # type: ignore[assignment]


def _import_commands(group: click.Group) -> None:
    """Import all commands of a group and their subcommands, which otherwise are imported at their first use."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            _import_commands(command)


if __name__ == "__main__":
    _import_commands(main.main)
    wait_for_commands(sys.argv[1])
    main.main(prog_name="torchq")
