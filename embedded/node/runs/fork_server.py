"""The node's side of the fork server: the process from which shims are forked.

One rule: an order is complete before it is sent, and its lock is sent with it. If the node or the fork server dies
at any moment, there is a complete shim or none.
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
"""The time limit for the fork server to receive an order; after that a new process replaces it."""
_PROGRAM = f"import sys; sys.path.append(sys.argv[1]); import {shim.__name__} as shim; shim.serve()"
_ROOT = str(Path(shim.__file__).resolve().parents[shim.__name__.count(".")])
"""The folder from which the shim's module can be imported."""


class ForkServer:
    """A process that forks shims. The fork server starts with the first order, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 while the process does not run."""
        return self._process.pid if self._process else 0

    def fork(self, order_file: int, lock: int, output: int) -> None:
        """Fork a shim that holds `lock` and runs the marshalled order in `order_file`. Raise OSError on failure."""
        with self._lock:
            try:
                self._send((order_file, lock, output))
            except OSError:  # the process was killed, or does not receive
                self._end()
                self._send((order_file, lock, output))

    def close(self) -> None:
        """End the process; the shims continue."""
        with self._lock:
            self._end()

    def _send(self, descriptors: Sequence[int]) -> None:
        if self._socket is None:
            self._start()
        assert self._socket is not None
        socket.send_fds(self._socket, [shim.ORDER], list(descriptors))

    def _start(self) -> None:
        node_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with server_end:
            node_end.settimeout(_PATIENCE_SECONDS)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, _ROOT],
                stdin=server_end.fileno(),
                stdout=subprocess.DEVNULL,
                env={"LANG": "C.UTF-8"},
                start_new_session=True,
            )
        self._socket = node_end

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_SECONDS)
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
        self._socket = self._process = None


def write_order(order: shim.Order) -> int:
    """Write an order into memory; return a descriptor that is positioned at its beginning."""
    descriptor = os.memfd_create("order")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        marshal.dump(order, file)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
