"""Ends the processes that the tests of one process have started, however that process ends. This module runs as a
script: `leftovers.py FOLDER`.

One rule: a process belongs to the tests if it began after this script and names the folder of the tests in its
variables, its arguments or its working folder. The script uses only the standard library.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_SECONDS = 0.5
LONGEST_SECONDS = 10.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_with_this_process(folder: Path) -> Iterator[None]:
    """End the processes of the tests when this process ends, and at the end of the context. Only Linux tells which
    processes belong to the tests.
    """
    if sys.platform != "linux":
        yield
        return
    command = [sys.executable, "-I", "-S", __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()
        yield


def main(folder: str, parent: int) -> None:
    """Wait for the end of the tests: the end of standard input, or the end of the process that has started this script.
    Then end all processes of the tests.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    print(flush=True)
    while os.getppid() == parent:
        if select.select([0], [], [], LOOK_SECONDS)[0]:
            break
    own, deadline = _began("self"), time.monotonic() + LONGEST_SECONDS
    # A supervisor may start another process during this loop.
    while (found := list(_belonging(folder, own))) and time.monotonic() < deadline:
        for pid in found:
            _kill(pid)
        time.sleep(LOOK_SECONDS / 10)


def _belonging(folder: str, began: int) -> Iterator[int]:
    name = f"{folder}/".encode()
    for each in os.listdir("/proc"):
        if each.isdigit() and int(each) != os.getpid():
            try:
                if _began(each) >= began and any(name in part for part in _texts(Path("/proc", each))):
                    yield int(each)
            except OSError:
                continue  # the process has ended, or belongs to another user


def _texts(process: Path) -> Iterator[bytes]:
    yield (process / "cmdline").read_bytes()
    yield os.fsencode(os.readlink(process / "cwd")) + b"/"
    yield (process / "environ").read_bytes()


def _began(process: str) -> int:
    """Return when a process began, in ticks of the kernel."""
    return int(Path("/proc", process, "stat").read_bytes().rpartition(b")")[2].split()[19])


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], os.getppid())
