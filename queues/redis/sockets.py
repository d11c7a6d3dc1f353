"""The sockets of Redis clients, which find their server anew each time that they connect, and the questions to
sentinels.

One rule: where the server is and with which credentials is decided when a socket connects, not when its client is made.
"""

import functools
import math
import re
import time
from dataclasses import dataclass
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import AuthenticationError, NoPermissionError, ReadOnlyError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from kube import handshakes
from queues.redis import url as redis_url
from queues.redis.location import Location
from queues.redis.sentinel import Address, SentinelSilent, Unlocated

SENTINEL_SECONDS = 1.0
"""How long to wait for a sentinel."""
CONNECT_SECONDS = 2.0
"""How long to wait for a connection to a server that sentinels have named: they may name another one."""
_SLICE_SECONDS = 0.5
"""How often a wait for an answer looks whether the master is another server by now."""
_SENTINELS = 64


class TlsSocket(redis.SSLConnection):
    """A TLS connection that leaves no socket open if the server closes it before the handshake."""

    def _connect(self) -> Any:
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        except (OSError, RedisError) as error:
            handshakes.close_lost(error)
            raise


class ServerReplaced(RedisError):
    """Another server process answers than the process that the client is pinned to."""


@dataclass(slots=True)
class Pin:
    """The only server process that a client may use."""

    run_id: str = ""
    """What the server calls its process; empty: the client may use any."""


class Socket(redis.Connection):
    """A connection to the server that its location names at the moment of connecting."""

    def __init__(self, *, location: Location, pin: Pin | None = None, **options: Any) -> None:
        """`options` are the options of redis.Connection except the address, the credentials and the database."""
        super().__init__(host="", port=0, **options)  # type: ignore[no-untyped-call]
        self._location, self._pin = location, pin
        self._place = self._run_id = ""

    def connect(self) -> None:
        """Connect if the socket is not connected, or if its server is no longer the server to use.

        The pool calls this before each command or pipeline, and never between a command and its answer."""
        if self.is_connected and (self._has_left() or self._is_elsewhere()):
            self.disconnect()  # type: ignore[no-untyped-call]
        super().connect()  # type: ignore[no-untyped-call]

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """Log in, and raise ServerReplaced unless the server is the process to which the client is pinned."""
        super().on_connect_check_health(check_health)
        if self._pin is not None:
            self._run_id = self._read_run_id()
            if self._is_elsewhere():
                raise ServerReplaced(f"the process {self._run_id} has taken the place of {self._pin.run_id}")

    def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the answer to a command. A refusal that a new connection may cure ends the present connection."""
        if self._location.has_sentinels:
            self._wait()
        try:
            return super().read_response(*args, **options)
        except ReadOnlyError as error:  # the server was the master; a new connection may lead to the new one
            self.disconnect()  # type: ignore[no-untyped-call]
            raise redis.ConnectionError(str(error), status_code=error.status_code) from error
        except (AuthenticationError, NoPermissionError):
            self.mark_for_reconnect()  # type: ignore[no-untyped-call]
            raise

    def _read_run_id(self) -> str:
        self.send_command("INFO", "server", check_health=False)  # type: ignore[no-untyped-call]
        try:
            found = re.search(rb"run_id:(\w+)", bytes(self.read_response()))
        except ResponseError:  # the user may not read it
            return ""
        return found[1].decode() if found else ""

    def _is_elsewhere(self) -> bool:
        """Return whether the server is not the process to which the client is pinned."""
        return self._pin is not None and self._pin.run_id not in ("", self._run_id)

    def _has_left(self) -> bool:
        return self._location.may_change and self._location.master.has_left(self._place, ask)

    def _wait(self) -> None:
        """Wait for an answer, and give up at once when the server is not the master any more: it may hang."""
        ends = time.monotonic() + (self.socket_timeout or math.inf)
        while self.is_connected and not self.can_read(max(0.0, min(_SLICE_SECONDS, ends - time.monotonic()))):
            if self._has_left():
                self.disconnect()  # type: ignore[no-untyped-call]
                raise redis.ConnectionError(f"{self._place} is not the master any more")
            if time.monotonic() >= ends:
                self.disconnect()  # type: ignore[no-untyped-call]
                raise redis.TimeoutError(f"timeout reading from {self._place}")

    def _connect(self) -> Any:
        try:
            url = self._location.master.locate(ask)
            options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        except (Unlocated, ValueError) as error:
            raise redis.ConnectionError(str(error)) from None
        self._place = redis_url.address(url)
        self.db = options.pop("db", 0)
        self.username, self.password = options.pop("username", None), options.pop("password", None)
        kind = options.pop("connection_class", redis.Connection)
        seconds = self.socket_connect_timeout
        if self._location.has_sentinels:
            seconds = min(seconds or CONNECT_SECONDS, CONNECT_SECONDS)
        plain = (TlsSocket if kind is redis.SSLConnection else kind)(
            **options, socket_timeout=self.socket_timeout, socket_connect_timeout=seconds
        )
        return plain._connect()

    def _host_error(self) -> str:
        return self._place


def ask(url: str, name: str) -> Address | None:
    """Return the address of a master by the word of one sentinel; None if the sentinel knows no such name. Raises
    SentinelSilent."""
    try:
        answer = _sentinel(url).execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)  # type: ignore[no-untyped-call]
    except (RedisError, ValueError) as error:
        raise SentinelSilent(str(error)) from None
    if not answer:
        return None
    host, port = answer
    return host.decode(), int(port)


@functools.lru_cache(maxsize=_SENTINELS)
def _sentinel(url: str) -> "redis.Redis":
    """Return the client of a sentinel. The connection is kept, since a request is sent every second."""
    tls = {"connection_class": TlsSocket} if url.startswith("rediss://") else {}
    return redis.Redis.from_url(
        url,
        **tls,
        socket_timeout=SENTINEL_SECONDS,
        socket_connect_timeout=SENTINEL_SECONDS,
        retry=Retry(NoBackoff(), 0),
        driver_info=None,
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
