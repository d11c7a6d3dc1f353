"""Runs one container once, keeps its log, and outlives the node that asked for it.

One rule: `started` is written before the command begins and `exited` after all of it is gone, each whole or not at all,
and the lock is held from before the shim's birth to its death. So for whoever looks at a run's folder:

    lock held                            it runs, or is about to
    lock free, no `started`              the command never began: it may be started
    lock free, `started`, no `exited`    the shim was killed: nobody knows how the command ended
    `exited`                             it ended so

Why a command could not be executed is in `problem`. The node takes the room for `exited` before the shim is born, so
that the end of a container is on record also if the disk is full by then.

The command writes into a pipe, and the shim writes what comes into the log (`log_writer`): so the log is never longer
than it may be, however fast the command prints, and a full disk costs lines of the log and not the container.

Born as a fork of an isolated interpreter (`zygote`), which waits on standard input, a socket, for orders: a fork takes
a tenth of the CPU of a new interpreter. With each order come three descriptors: the order marshalled (so that no secret
is on a command line or on disk), the locked file, and the file for its own complaints. Shims outlive the process that
forked them, and that one ends with the node. A shim stays in memory beside its container, so it imports the least there
is.
"""

import _socket
import ctypes
import marshal
import os
import select
import signal
import time

from embedded.log_writer import LogWriter

LOCK_DESCRIPTOR = 3
OUT_OF_MEMORY = "oomkilled"
"""The file in which the node says that it ends the container because of its memory; its room is taken beforehand."""
ORDER = b"r"
"""The one message there is."""
_RESERVED = 10
"""Descriptors below this one are placed by us: nothing that arrives may land on them."""
_MOST_OPEN = 64
START_ERROR = 128
"""The exit code of a container whose command could not be executed, as containerd gives it."""

Order = tuple[str, list[str], dict[str, str], str, int, str]
"""The run's folder, the command, its environment, its working directory, the bytes of log that its container may keep,
and the folder of its control group, if it has one."""

_PIECE = 64 * 1024
"""Bytes of output that are read at once: what a pipe holds."""
_LARGEST_PIPE = 1024 * 1024
_RESERVED_BYTES = 1024
"""Room that is taken for a file before it is written."""
_RETRY_SECONDS = 1.0

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Meant for the command, or for the node."""
_NOTED = (signal.SIGTERM, signal.SIGHUP)
"""Nobody sends these to a shim but the end of a session or of the machine, which sends them to every process."""
_signalled: list[float] = []
"""When the shim received the first of these signals, in seconds since the epoch; empty if it received none."""


def serve() -> None:
    """Fork a shim for each order that comes, until the node is gone."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, _bury)
    while os.open(os.devnull, os.O_RDONLY) < _RESERVED:
        pass
    door = _socket.socket(fileno=os.dup(0))
    room = _socket.CMSG_SPACE(3 * 4)
    while True:
        message, notes, _, _ = door.recvmsg(1, room)
        if not message:
            return
        paper, lock, output = memoryview(notes[0][2]).cast("i")
        if os.fork() == 0:
            _be_born(paper, lock, output)
        for descriptor in (paper, lock, output):
            os.close(descriptor)


def _bury(*_: object) -> None:
    """Shims that have ended are nobody's but ours."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _be_born(paper: int, lock: int, output: int) -> None:
    """Go on as a shim; does not return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for descriptor, place in ((paper, 0), (output, 1), (output, 2), (lock, LOCK_DESCRIPTOR)):
            os.dup2(descriptor, place)
        os.closerange(LOCK_DESCRIPTOR + 1, _MOST_OPEN)
        main()
        code = 0
    except BaseException as e:
        os.write(2, f"the shim failed: {type(e).__name__}: {e}\n".encode())
    finally:
        os._exit(code)


def main() -> None:
    """Run the order on standard input; do nothing if it was run before."""
    os.set_inheritable(LOCK_DESCRIPTOR, False)
    with open(0, "rb", closefd=False) as paper:
        order: Order = marshal.load(paper)
    folder = order[0]
    if os.path.exists(os.path.join(folder, "started")):
        return
    for ignored in _IGNORED:
        signal.signal(ignored, _note_signal if ignored in _NOTED else signal.SIG_IGN)
    _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)
    bell = _bell()
    printed, output = os.pipe()
    log = LogWriter(folder, order[4])
    problem = log.open()
    pid, go, verdict = _fork(order, output, problem)
    os.close(output)
    started = f'{{"pid": {pid}, "startTicks": {_start_ticks(pid)}, "startedAt": {time.time()}}}'
    write(folder, "started", started)
    os.write(go, b"go")
    os.close(go)
    with open(verdict, encoding="utf-8") as failure:
        problem = failure.read()
    status = _follow(pid, bell, printed, log)
    if problem:
        try:  # noqa: SIM105 - contextlib would be one more import
            write(folder, "problem", problem)
        except OSError:
            pass  # the disk is full
    signalled = f', "signalledAt": {_signalled[0]}' if _signalled else ""
    _leave(group=order[5], folder=folder)
    _record_end(folder, f'{{{_ending(status, problem)}{signalled}, "finishedAt": {time.time()}}}')


def _note_signal(*_: object) -> None:
    if not _signalled:
        _signalled.append(time.time())


def _bell() -> int:
    """A descriptor that can be read whenever a child has ended."""
    rung, ring = os.pipe()
    os.set_blocking(rung, False)
    os.set_blocking(ring, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    return rung


def _fork(order: Order, output: int, problem: str) -> tuple[int, int, int]:
    """A child that waits for our word, and the descriptors to give it and to hear why it could not begin."""
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
            os._exit(START_ERROR)  # whatever happens: this child must never go on as a second shim
    os.close(ready)
    os.close(failure)
    return pid, go, verdict


def _become(order: Order, ready: int, output: int, problem: str) -> str:
    """Turn this child into the command, once it is on record; what went wrong, if it comes back."""
    _, command, environment, directory, _, group = order
    os.setsid()
    _join(group)
    _set_process_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not os.read(ready, 2):
        return "the shim ended before the command began"
    if problem:
        return problem
    # What a shell that started us in the background ignores (SIGQUIT) is none of the command's business.
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


def _follow(pid: int, bell: int, printed: int, log: LogWriter) -> int:
    """Keep the log until the command has ended and nothing of it is left; the command's status.

    What the command left behind is killed, as the end of a container's first process does on Kubernetes. Orphans of any
    depth and session become our children, so that killing children until there are none is enough; those that became
    another user's are waited for, and may print meanwhile.
    """
    poller = select.poll()
    poller.register(printed, select.POLLIN)
    poller.register(bell, select.POLLIN)
    status = None
    while True:
        for ready, _ in poller.poll():
            if ready == printed:
                piece = os.read(printed, _PIECE)
                log.write(piece)
                if not piece:  # nothing of the command holds it open any more
                    poller.unregister(printed)
                continue
            os.read(bell, _PIECE)
            status, alone = _reap(pid, status)
            if status is not None and alone:
                _drain(printed, log)
                return status
            if status is not None:
                for child in _children():
                    _kill(child)


def _reap(pid: int, status: "int | None") -> "tuple[int | None, bool]":
    """Bury the children that have ended: the command's status once it has, and whether there is no child left."""
    try:
        while True:
            ended, found = os.waitpid(-1, os.WNOHANG)
            if not ended:
                return status, False
            if ended == pid:
                status = found
    except ChildProcessError:
        return status, True


def _drain(printed: int, log: LogWriter) -> None:
    """What is still in the pipe; a process that is none of ours may hold it open and print for ever."""
    os.set_blocking(printed, False)
    left = _LARGEST_PIPE
    try:
        while left > 0 and (piece := os.read(printed, _PIECE)):
            log.write(piece)
            left -= len(piece)
    except BlockingIOError:
        return


def _join(group: str) -> None:
    """Go into a control group; without it the node watches alone."""
    try:
        if group:
            _write_now(os.path.join(group, "cgroup.procs"), "0")
    except OSError:
        pass


def _leave(group: str, folder: str) -> None:
    """Remove the control group of a container of which nothing is left; note whether it was ended because of its
    memory."""
    if not group:
        return
    try:
        if _count(group, "oom_kill") and not os.path.exists(os.path.join(folder, OUT_OF_MEMORY)):
            write_reserved(folder, OUT_OF_MEMORY, _oom_message(group, os.path.basename(os.path.dirname(folder))))
        os.rmdir(group)
    except OSError:
        pass  # how it ended is written all the same


def _count(group: str, name: str) -> int:
    with open(os.path.join(group, "memory.events"), encoding="ascii") as file:
        return sum(int(words[1]) for words in map(str.split, file) if words[0] == name)


def _oom_message(group: str, container: str) -> str:
    limit, peak = _megabytes(group, "memory.max"), _megabytes(group, "memory.peak")
    return (
        f"container {container} used {peak or limit}Mi of memory, and its limit is {limit}Mi "
        "(resources.limits.memory): raise the limit, or let the program use less"
    )


def _megabytes(group: str, name: str) -> int:
    try:
        with open(os.path.join(group, name), encoding="ascii") as file:
            return int(file.read()) >> 20
    except (OSError, ValueError):  # memory.peak is of Linux 5.19
        return 0


def _write_now(path: str, text: str) -> None:
    """Write to a file that is there, at once and in one piece. OSError."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _kill(child: int) -> None:
    try:  # noqa: SIM105 - contextlib is not imported here
        os.kill(child, signal.SIGKILL)
    except PermissionError:
        pass  # it became another user's: waited for


def _children() -> list[int]:
    own = str(os.getpid()).encode()
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and _stat(name)[1:2] == [own]]


def _start_ticks(pid: int) -> int:
    return int(_stat(str(pid))[19])


def _stat(pid: str) -> list[bytes]:
    """The fields of /proc/<pid>/stat after the command's name: state, parent, ...; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _ending(status: int, problem: str) -> str:
    if problem:
        return f'"exitCode": {START_ERROR}, "reason": "StartError"'
    code = os.waitstatus_to_exitcode(status)
    return f'"exitCode": {code}' if code >= 0 else f'"exitCode": {128 - code}, "signal": {-code}'


def reserve(folder: str, name: str) -> None:
    """Take the room for a file that must be written later, whatever the disk is like by then. OSError."""
    with open(os.path.join(folder, f".{name}"), "wb") as file:
        file.write(b" " * _RESERVED_BYTES)


def write_reserved(folder: str, name: str, content: str) -> None:
    """Put a file there whole, into the room that was taken for it; spaces follow the content."""
    draft = os.path.join(folder, f".{name}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(file, content.encode().ljust(_RESERVED_BYTES))
    finally:
        os.close(file)
    os.rename(draft, os.path.join(folder, name))


def _record_end(folder: str, content: str) -> None:
    """Write `exited`, if need be again and again: on some file systems a change takes room too."""
    while True:
        try:
            return write_reserved(folder, "exited", content)
        except FileNotFoundError:
            return  # the pod's folder was removed
        except OSError:
            time.sleep(_RETRY_SECONDS)


def write(folder: str, name: str, content: str) -> None:
    """Put a file there whole, or not at all."""
    draft = os.path.join(folder, f".{name}")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(draft, os.path.join(folder, name))


def _set_process_option(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
