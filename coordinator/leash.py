"""Become another program, one that ends when the process that started it dies: `leash.py PARENT PROGRAM ARGUMENT...`

One rule: standard library only; it runs as a script, without torchq on the path.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Linux: send a signal when the parent dies; kept over exec. Elsewhere the program is started without a leash.

The signal is SIGINT, so that a program can tell the death of its supervisor from a wish of its supervisor, SIGTERM.
"""


def main(parent: int, arguments: list[str]) -> None:
    """Does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            raise SystemExit("the supervisor died before its child began")
    try:
        os.execvp(arguments[0], arguments)
    except OSError as error:
        raise SystemExit(f"{arguments[0]}: {error.strerror}") from error


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
