"""Runs a program that ends when the process that started it dies: `die_with_parent.py PARENT SIGNAL PROGRAM ...`

One rule: standard library only; this module runs as a script, without torchq on the path.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterable

PR_SET_PDEATHSIG = 1
"""The Linux option to send a signal when the parent dies; it stays in force over exec. Other systems have no such
option, and the program then outlives its parent.

The signal is SIGINT, so that a program can distinguish the death of its supervisor from the supervisor's SIGTERM. A
program that does not end at SIGINT gets SIGKILL: kube-apiserver does not end without its etcd.
"""


def wrap_command(command: Iterable[str], at_death: signal.Signals = signal.SIGINT) -> list[str]:
    """Return the command line that starts `command` through this script.

    This process must start the program, from a thread that lives as long as the program.
    """
    return [sys.executable, "-P", __file__, str(os.getpid()), str(int(at_death)), *command]


def main(parent: int, at_death: int, arguments: list[str]) -> None:
    """Replace this process by the program. Does not return."""
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
