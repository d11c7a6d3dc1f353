"""The API server's listening socket, and how many connections without the token it keeps.

One rule: a connection that has not shown the token is one of few, is closed after a short time, and gives way to newer
ones; a connection that has shown it stays open as long as its client wants. All clients are on this machine and share
its addresses, so nothing but the token tells them apart.

asyncio's own servers cannot do this: they know a connection only after its TLS handshake, which a client may leave half
done.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Any

MOST_ANONYMOUS = 256
"""Connections that have not shown the token; beyond these the oldest is closed for each new one."""
ANONYMOUS_SECONDS = 10.0
"""How long a connection may take from its beginning, TLS handshake included, until it shows the token."""
_RESERVED = 64
"""File descriptors that connections leave to the database, to logs and to other files."""
_AT_ONCE = 8
"""Connections taken in a row: then those that are open are served first, as a handshake costs a millisecond."""
_PAUSE_SECONDS = 0.1
_WARNING_SECONDS = 60.0
_NO_LIMIT = 1 << 20
_LOG = logging.getLogger(__name__)


class Connection:
    """One accepted connection, from before its TLS handshake."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.transport: asyncio.Transport | None = None
        """Known after the TLS handshake."""

    def abort(self) -> None:
        """Close it now, whatever is on its way."""
        if self.transport is not None:
            self.transport.abort()
        # Before its TLS handshake, or while it says goodbye, there is no transport that could be aborted.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener:
    """Accepts connections. Its methods belong to one event loop."""

    def __init__(self, secure: ssl.SSLContext, serve: Callable[["Listener", Connection], asyncio.Protocol]) -> None:
        self._secure = secure
        self._serve = serve
        self._open: set[Connection] = set()
        self._anonymous: dict[Connection, asyncio.TimerHandle] = {}
        """Oldest first."""
        self._handshakes: set[asyncio.Task[None]] = set()
        self._most = descriptors() - _RESERVED
        self._warned = float("-inf")

    def start(self, host: str, port: int) -> Any:
        """Listen; the socket's address. OSError."""
        self._loop = asyncio.get_running_loop()
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._socket = socket.socket(family, kind, protocol)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setblocking(False)
            self._socket.bind(address)
            self._socket.listen(1024)
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._accept)
        return self._socket.getsockname()

    async def stop(self) -> None:
        """Take no more connections, and drop those whose TLS handshake is under way."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for each in self._handshakes:
            each.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def trust(self, connection: Connection) -> None:
        """The token was shown on a connection: it stays."""
        timer = self._anonymous.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def closed(self, connection: Connection) -> None:
        """A connection has ended."""
        self.trust(connection)
        self._open.discard(connection)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory is left
                self._rest(error)
                return
            accepted.setblocking(False)
            self._take(Connection(accepted))

    def _rest(self, error: OSError) -> None:
        self._warn(f"no connection can be accepted: {error.strerror}")
        for _ in range(min(_AT_ONCE, len(self._anonymous))):
            self._drop_oldest()
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket, self._accept)

    def _take(self, connection: Connection) -> None:
        while len(self._anonymous) >= MOST_ANONYMOUS or (self._anonymous and len(self._open) >= self._most):
            self._warn(f"{len(self._anonymous)} connections have not shown the token: the oldest are closed")
            self._drop_oldest()
        if len(self._open) >= self._most:
            self._warn(f"{len(self._open)} connections are open, and no more descriptors are allowed (ulimit -n)")
            connection.socket.close()
            return
        self._open.add(connection)
        self._anonymous[connection] = self._loop.call_later(ANONYMOUS_SECONDS, self._expire, connection)
        task = self._loop.create_task(self._shake(connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake(self, connection: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._serve(self, connection),
                connection.socket,
                ssl=self._secure,
                ssl_handshake_timeout=ANONYMOUS_SECONDS,
            )
        except OSError as error:  # also what TLS finds wrong
            _LOG.debug("a TLS handshake failed: %s", error)
            self.closed(connection)

    def _expire(self, connection: Connection) -> None:
        self.closed(connection)
        connection.abort()

    def _drop_oldest(self) -> None:
        self._expire(next(iter(self._anonymous)))

    def _warn(self, message: str) -> None:
        if self._loop.time() - self._warned >= _WARNING_SECONDS:
            self._warned = self._loop.time()
            _LOG.warning("%s", message)


def descriptors() -> int:
    """How many file descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Allow this process as many file descriptors as it may allow itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS names no limit, and takes less
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
