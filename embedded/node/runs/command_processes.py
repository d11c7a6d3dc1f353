"""The processes of one command: its first process, and the orphans that became children of its shim.

One rule: the command ends with its last process, and has the status of its first one. When the first process ends, the
processes that it left are killed, as at the end of a container's first process on Kubernetes. There is one exception. A
first process that dies of the SIGTERM which asks the container to end, as a shell does, leaves processes that were
never asked. The remaining processes get SIGTERM in place of the first process, and the rest of the grace, which the
node counts. A process whose own parent lives gets no SIGTERM: its parent decides, as a training does about the workers
of its data loader.

| SIGTERM came from | the first process | what it left |
|---|---|---|
| the node, which signals the shim (ASK) | ended otherwise | is killed |
| the node | died of it | gets SIGTERM, and so do the orphans of those that die of it |
| the end of the session or machine, for all processes | died of it | had SIGTERM already: it is killed 90 s later |
| anybody else | ended in any way | is killed |

This module is a part of the shim, which stays in memory beside its container. So this module imports as little as
possible.
"""

import os
import signal

ASK = signal.SIGUSR1
"""The signal by which the node tells a shim that its command is asked to end."""
SESSION_ENDS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that a shim receives only when a session or the machine ends, since every process receives them then."""
SESSION_SECONDS = 90
"""The time for which processes may outlive the end of their session: systemd's own, before it kills all."""
HANDLED = (signal.SIGCHLD, signal.SIGALRM, ASK)
"""The signals that are for `CommandProcesses` alone."""


class CommandProcesses:
    """The processes of a command, whose first process has the given pid. The processes are children of this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._status: int | None = None
        self._asked = False
        self._session_ended = False
        """Whether the session ended less than SESSION_SECONDS ago."""
        self._told: set[int] = set()
        """The orphans that were sent SIGTERM."""

    def take(self, signals: bytes) -> "int | None":
        """Act on the signals that the shim received.

        Return the status of the first process if all processes have ended.
        """
        if any(number in signals for number in SESSION_ENDS):
            self._session_ended = True
            signal.alarm(SESSION_SECONDS)
        if signal.SIGALRM in signals:
            self._session_ended = False
        childless = self._reap()
        if ASK in signals:
            self._asked = True
            if self._status is None:
                _send(self._pid, signal.SIGTERM)
        if self._status is not None and not childless:
            self._end_rest(self._status)
        return self._status if childless else None

    def _reap(self) -> bool:
        """Reap the children that have ended; return whether none is left."""
        try:
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    return False
                if child == self._pid:
                    self._status = status
        except ChildProcessError:
            return True

    def _end_rest(self, status: int) -> None:
        died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        children = _children()
        if self._asked and died_of == signal.SIGTERM:
            for child in children - self._told:
                _send(child, signal.SIGTERM)
            self._told = children
        elif not (self._session_ended and died_of in SESSION_ENDS):
            for child in children:
                _send(child, signal.SIGKILL)


def _send(child: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib is not imported here
        os.kill(child, number)
    except PermissionError:
        pass  # it became another user's process: the shim waits for it


def _children() -> set[int]:
    parent = str(os.getpid()).encode()
    return {int(name) for name in os.listdir("/proc") if name.isdecimal() and stat(name)[1:2] == [parent]}


def stat(pid: str) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat after the command's name: state, parent, ...; empty if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
