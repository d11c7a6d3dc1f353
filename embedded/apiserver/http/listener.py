"""The API server's listening socket, and its limits on connections without the token.

One rule: a connection that has not sent the token is one of few, is closed after a short time, and gives way to newer
connections. A connection that has sent the token stays open as long as its client wants. All clients are on this
machine and share its addresses, so only the token distinguishes them.

The servers of asyncio cannot do this: they know a connection only after its TLS handshake, which a client may never
finish.
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
"""The most connections that have not sent the token; for each further connection the oldest is closed."""
ANONYMOUS_SECONDS = 10.0
"""The time from the beginning of a connection, TLS handshake included, in which its client must send the token."""
_RESERVED = 64
"""The file descriptors that connections leave to the database, to logs and to other files."""
_AT_ONCE = 8
"""The connections accepted in a row. Open connections are then served first, as a handshake costs a millisecond."""
_PAUSE_SECONDS = 0.1
_WARNING_SECONDS = 60.0
_NO_LIMIT = 1 << 20
_LOG = logging.getLogger(__name__)


class Connection:
    """One accepted connection, from before its TLS handshake."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.transport: asyncio.Transport | None = None
        """The transport after the TLS handshake; None before."""

    def abort(self) -> None:
        """Close the connection at once; data in transit is lost."""
        if self.transport is not None:
            self.transport.abort()
        # Before the TLS handshake, and during the closing messages of TLS, no transport exists that could be aborted.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Listener:
    """Accepts connections. Only one event loop may call its methods."""

    def __init__(self, secure: ssl.SSLContext, serve: Callable[["Listener", Connection], asyncio.Protocol]) -> None:
        self._secure = secure
        self._serve = serve
        self._open: set[Connection] = set()
        self._anonymous: dict[Connection, asyncio.TimerHandle] = {}
        """The connections without the token and the timers that close them, oldest first."""
        self._handshakes: set[asyncio.Task[None]] = set()
        self._most = descriptors() - _RESERVED
        self._warned = float("-inf")

    def start(self, host: str, port: int) -> Any:
        """Listen, and return the socket's address. Raise OSError on failure."""
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
        """Accept no more connections, and close those whose TLS handshake is in progress."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for task in self._handshakes:
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def trust(self, connection: Connection) -> None:
        """Keep a connection on which the client has sent the token."""
        timer = self._anonymous.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def forget(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        self.trust(connection)
        self._open.discard(connection)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no descriptor or no memory is left
                self._pause(error)
                return
            accepted.setblocking(False)
            self._take(Connection(accepted))

    def _pause(self, error: OSError) -> None:
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
            self._warn(f"{len(self._anonymous)} connections have not sent the token: the oldest are closed")
            self._drop_oldest()
        if len(self._open) >= self._most:
            self._warn(f"{len(self._open)} connections are open, and no more descriptors are allowed (ulimit -n)")
            connection.socket.close()
            return
        self._open.add(connection)
        self._anonymous[connection] = self._loop.call_later(ANONYMOUS_SECONDS, self._expire, connection)
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, connection: Connection) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._serve(self, connection),
                connection.socket,
                ssl=self._secure,
                ssl_handshake_timeout=ANONYMOUS_SECONDS,
            )
        except OSError as error:  # errors of TLS, too
            _LOG.debug("a TLS handshake failed: %s", error)
            self.forget(connection)

    def _expire(self, connection: Connection) -> None:
        self.forget(connection)
        connection.abort()

    def _drop_oldest(self) -> None:
        self._expire(next(iter(self._anonymous)))

    def _warn(self, message: str) -> None:
        if self._loop.time() - self._warned >= _WARNING_SECONDS:
            self._warned = self._loop.time()
            _LOG.warning("%s", message)


def descriptors() -> int:
    """Return the number of file descriptors that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _NO_LIMIT if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise this process's limit on file descriptors to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS reports no hard limit, and refuses to set it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
