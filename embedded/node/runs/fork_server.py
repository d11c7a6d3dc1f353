"""The process that shims are forked from, as the node holds it.

One rule: an order is complete before it is sent, and its lock travels with it: a node, or this process, that dies in
between leaves a whole shim or none.
"""

import marshal
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from embedded.node.runs import shim

_PATIENCE_SECONDS = 5.0
"""How long an order may wait to be taken; then the process is held for dead and another one started."""
_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from embedded.node.runs import shim; shim.serve()"
_ROOT = str(Path(shim.__file__).resolve().parents[2])


class Zygote:
    """Started with the first order, and again when it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 while there is none."""
        return self._process.pid if self._process else 0

    def fork(self, paper: int, lock: int, output: int) -> None:
        """Have a shim begin on the marshalled order in `paper`, holding `lock`. OSError if that cannot be."""
        with self._lock:
            try:
                self._send((paper, lock, output))
            except OSError:  # it was killed, or does not answer
                self._end()
                self._send((paper, lock, output))

    def close(self) -> None:
        """Let it end; the shims live on."""
        with self._lock:
            self._end()

    def _send(self, descriptors: Sequence[int]) -> None:
        if self._door is None:
            self._start()
        assert self._door is not None
        socket.send_fds(self._door, [shim.ORDER], list(descriptors))

    def _start(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            ours.settimeout(_PATIENCE_SECONDS)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                start_new_session=True,
            )
        self._door = ours

    def _end(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_SECONDS)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._door = self._process = None


def write_order(order: shim.Order) -> int:
    """A descriptor with the order, to be read from its beginning."""
    paper = os.memfd_create("order")
    with os.fdopen(os.dup(paper), "wb") as file:
        marshal.dump(order, file)
    os.lseek(paper, 0, os.SEEK_SET)
    return paper
