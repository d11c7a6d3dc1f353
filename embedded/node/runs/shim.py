"""Runs one container once, writes its log, and outlives the node that ordered it.

One rule: `started` is written before the command begins, and `exited` after all of its processes are gone, each file
whole or not at all. The lock is held from before the shim's start to its end. So a run's folder shows its state:

    lock held                            the command runs, or is about to
    lock free, no `started`              the command never began: it may be started
    lock free, `started`, no `exited`    the shim was killed: how the command ended is unknown
    `exited`                             the command ended as the file says

If the command could not be executed, `problem` says why. The node reserves disk space for `exited` before the shim
starts. So the end of a container is recorded even if the disk is full at that time.

The command writes into a pipe, and the shim copies its output into the log (`log_writer`). So the log never exceeds its
limit, however fast the command prints, and a full disk costs lines of the log and not the container.

A shim is a fork of the fork server, an isolated interpreter that receives orders through a socket on standard input. A
fork takes a tenth of the CPU time of a new interpreter. Three descriptors come with each order: the order itself, the
locked file, and the file for the shim's own errors. The order is marshalled in memory, so that no secret is on a
command line or on disk.
Shims outlive the fork server, which ends with the node. A shim stays in memory beside its container, so this module
imports as little as possible.
"""

import _socket
import ctypes
import marshal
import os
import select
import signal
import time

from embedded.log_writer import LogWriter
from embedded.node.runs.command_processes import HANDLED, SESSION_ENDS, CommandProcesses, stat
from embedded.node.runs.memory_group import MemoryGroup

LOCK_DESCRIPTOR = 3
OUT_OF_MEMORY = "oomkilled"
"""The file which says that the container was killed because of its memory. Its disk space is reserved before."""
ORDER = b"r"
"""The only message to the fork server."""
_RESERVED = 10
"""Descriptors below this number have fixed meanings, so descriptors that arrive must have larger numbers."""
_MOST_OPEN = 64
START_ERROR = 128
"""The exit code of a container whose command could not be executed, as in containerd."""

Order = tuple[str, list[str], dict[str, str], str, int, str]
"""The run's folder, the command, its environment, its working directory, the limit of the container's log in bytes, the
folder of the control group (empty if there is none)."""

_PIECE = 64 * 1024
"""The number of bytes of output that are read at once: the usual size of a pipe."""
_LARGEST_PIPE = 1024 * 1024
_RESERVED_BYTES = 1024
"""The disk space that is reserved for a file before it is written."""
_RETRY_SECONDS = 1.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that do not end the shim: they concern the command or the node."""
_signalled: list[float] = []
"""The time of the first signal that ends the session, in seconds since the epoch; empty if the shim received none."""


def serve() -> None:
    """Fork a shim for each order, until the node closes the socket."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _reap_shims)
    while os.open(os.devnull, os.O_RDONLY) < _RESERVED:
        pass
    connection = _socket.socket(fileno=os.dup(0))
    space = _socket.CMSG_SPACE(3 * 4)
    while True:
        message, ancillary, _, _ = connection.recvmsg(1, space)
        if not message:
            return
        order_file, lock, output = memoryview(ancillary[0][2]).cast("i")
        if os.fork() == 0:
            _run_shim(order_file, lock, output)
        for descriptor in (order_file, lock, output):
            os.close(descriptor)


def _reap_shims(*_: object) -> None:
    """Reap the shims that have ended: they are children of this process."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _run_shim(order_file: int, lock: int, output: int) -> None:
    """Turn this process into a shim, run the order and exit; never return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for descriptor, place in ((order_file, 0), (output, 1), (output, 2), (lock, LOCK_DESCRIPTOR)):
            os.dup2(descriptor, place)
        os.closerange(LOCK_DESCRIPTOR + 1, _MOST_OPEN)
        main()
        code = 0
    except BaseException as e:
        os.write(2, f"the shim failed: {type(e).__name__}: {e}\n".encode())
    finally:
        os._exit(code)


def main() -> None:
    """Run the order from standard input; do nothing if the command was started before."""
    os.set_inheritable(LOCK_DESCRIPTOR, False)
    with open(0, "rb", closefd=False) as order_file:
        order: Order = marshal.load(order_file)
    folder = order[0]
    if os.path.exists(os.path.join(folder, "started")):
        return
    for ignored in _IGNORED:
        signal.signal(ignored, _record_signal if ignored in SESSION_ENDS else signal.SIG_IGN)
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)
    signals = _signal_pipe()
    printed, output = os.pipe()
    log = LogWriter(folder, order[4])
    problem = log.open()
    pid, go, verdict = _fork(order, output, problem)
    os.close(output)
    me = os.getpid()
    shim = f'"shim": {me}, "shimTicks": {_start_ticks(me)}'
    started = f'"pid": {pid}, "startTicks": {_start_ticks(pid)}, "startedAt": {time.time()}'
    write(folder, "started", f"{{{started}, {shim}}}")
    os.write(go, b"go")
    os.close(go)
    with open(verdict, encoding="utf-8") as failure:
        problem = failure.read()
    group = MemoryGroup(order[5])
    status = _follow(CommandProcesses(pid), signals, printed, log, (group, group.events(), folder))
    if problem:
        try:  # noqa: SIM105 - contextlib would be one more import
            write(folder, "problem", problem)
        except OSError:
            pass  # the disk is full
    signalled = f', "signalledAt": {_signalled[0]}' if _signalled else ""
    if group.has_killed():
        _record_oom(group, folder)
    group.remove()
    _record_end(folder, f'{{{_ending(status, problem)}{signalled}, "finishedAt": {time.time()}}}')


def _record_signal(*_: object) -> None:
    if not _signalled:
        _signalled.append(time.time())


def _signal_pipe() -> int:
    """Return a descriptor from which the numbers of the signals are read that the shim receives and does not ignore.

    SIGCHLD is one of these signals: a child has ended.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in HANDLED:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _fork(order: Order, output: int, problem: str) -> tuple[int, int, int]:
    """Fork the child that becomes the command.

    Return the pid of the child, the descriptor that lets it begin, and the descriptor from which to read why it could
    not begin.
    """
    ready, go = os.pipe()
    verdict, failure = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            os.close(go)
            os.write(failure, _become(order, ready, output, problem).encode(errors="replace"))
        except Exception as e:
            os.write(failure, f"cannot prepare the command: {e}".encode(errors="replace"))
        finally:
            os._exit(START_ERROR)  # in every case: this child must never continue as a second shim
    os.close(ready)
    os.close(failure)
    return pid, go, verdict


def _become(order: Order, ready: int, output: int, problem: str) -> str:
    """Execute the command in this child as soon as its start is recorded. Return only after an error, with its text."""
    _, command, environment, directory, _, group = order
    os.setsid()
    MemoryGroup(group).join()
    _set_process_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not os.read(ready, 2):
        return "the shim ended before the command began"
    if problem:
        return problem
    # A shell that started the node in the background ignores SIGQUIT; the command must not inherit this setting.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.umask(0o022)
    try:
        os.chdir(directory)
    except OSError as e:
        return f"cannot enter the working directory {directory!r}: {e.strerror}"
    try:
        os.execvpe(command[0], command, environment)
    except OSError as e:
        where = "this machine, which runs no images" if "/" in command[0] else "the PATH of this machine"
        hint = f"; is it on {where}?" if isinstance(e, FileNotFoundError) else ""
        return f"cannot execute {command[0]!r}: {e.strerror}{hint}"
    except ValueError as e:
        return f"cannot execute {command[0]!r}: {e}"


def _follow(
    processes: CommandProcesses, signals: int, printed: int, log: LogWriter, memory: "tuple[MemoryGroup, int, str]"
) -> int:
    """Write the log until the command and all of its processes have ended; return the command's status.

    Orphans of any depth and session become children of the shim. The shim waits for processes that became another
    user's, and logs their output.
    """
    poller = select.poll()
    poller.register(printed, select.POLLIN)
    poller.register(signals, select.POLLIN)
    group, shortages, folder = memory
    if shortages >= 0:
        poller.register(shortages, select.POLLIN)
    while True:
        for ready, _ in poller.poll():
            if ready == shortages:
                poller.unregister(shortages)
                _record_oom(group, folder)
                group.kill()
                continue
            if ready == printed:
                piece = os.read(printed, _PIECE)
                log.write(piece)
                if not piece:  # no process of the command has the pipe open any more
                    poller.unregister(printed)
                continue
            status = processes.take(os.read(signals, _PIECE))
            if status is not None:
                _drain(printed, log)
                return status


def _drain(printed: int, log: LogWriter) -> None:
    """Log the remaining content of the pipe, up to the largest size of a pipe.

    A process that does not belong to the container may have the pipe open and print without end.
    """
    os.set_blocking(printed, False)
    remaining = _LARGEST_PIPE
    try:
        while remaining > 0 and (piece := os.read(printed, _PIECE)):
            log.write(piece)
            remaining -= len(piece)
    except BlockingIOError:
        return


def _record_oom(group: MemoryGroup, folder: str) -> None:
    """Record that the container exceeded its memory limit, unless that is recorded."""
    try:
        if not os.path.exists(os.path.join(folder, OUT_OF_MEMORY)):
            container = os.path.basename(os.path.dirname(folder))
            write_reserved(folder, OUT_OF_MEMORY, group.message(container))
    except OSError:
        pass  # the exit code is recorded in any case


def _start_ticks(pid: int) -> int:
    return int(stat(str(pid))[19])


def _ending(status: int, problem: str) -> str:
    if problem:
        return f'"exitCode": {START_ERROR}, "reason": "StartError"'
    code = os.waitstatus_to_exitcode(status)
    return f'"exitCode": {code}' if code >= 0 else f'"exitCode": {128 - code}, "signal": {-code}'


def reserve(folder: str, name: str) -> None:
    """Reserve disk space for a file that must be written later, even if the disk is full at that time.

    Raise OSError on failure.
    """
    with open(os.path.join(folder, f".{name}"), "wb") as file:
        file.write(b" " * _RESERVED_BYTES)


def write_reserved(folder: str, name: str, content: str) -> None:
    """Write a file whole, into the disk space that was reserved for it; spaces fill the remaining space."""
    draft = os.path.join(folder, f".{name}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, content.encode().ljust(_RESERVED_BYTES))
    finally:
        os.close(file)
    os.rename(draft, os.path.join(folder, name))


def _record_end(folder: str, content: str) -> None:
    """Write `exited`, and try again after errors: on some file systems even a change needs free space."""
    while True:
        try:
            return write_reserved(folder, "exited", content)
        except FileNotFoundError:
            return  # the pod's folder was removed
        except OSError:
            time.sleep(_RETRY_SECONDS)


def write(folder: str, name: str, content: str) -> None:
    """Write a file whole or not at all."""
    draft = os.path.join(folder, f".{name}")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(draft, os.path.join(folder, name))


def _set_process_option(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
