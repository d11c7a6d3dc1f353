"""Become another program, one that ends when the process that started it dies: `leash.py PARENT SIGNAL PROGRAM ...`

One rule: standard library only; it runs as a script, without torchq on the path.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
"""Linux: send a signal when the parent dies; kept over exec. Elsewhere the program is started without a leash.

The signal is SIGINT, so that a program can tell the death of its supervisor from a wish of its supervisor, SIGTERM;
SIGKILL for a program that would not end by it, as kube-apiserver does not without its etcd.
"""


def held(command: Iterable[str], at_death: signal.Signals = signal.SIGINT) -> list[str]:
    """The command on a leash: to be started by this process, from a thread that lives as long as it does."""
    return [sys.executable, "-P", __file__, str(os.getpid()), str(int(at_death)), *command]


def main(parent: int, at_death: int, arguments: list[str]) -> None:
    """Does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, at_death)
        if os.getppid() != parent:
            raise SystemExit("the supervisor died before its child began")
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise SystemExit(f"{arguments[0]}: {error.strerror}") from error


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
