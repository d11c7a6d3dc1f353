"""Connections to Redis, and the translation of its errors.

One rule: no module but this one and `queues.redis.sockets` imports `redis`, and neither its exceptions nor a password
leave this module.
"""

import contextlib
import math
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from kube.process import turns
from kube.process.meter import NO_METER, Meter
from queues import errors
from queues.chunks import chunks
from queues.redis import server_checks
from queues.redis import url as redis_url
from queues.redis.location import Location
from queues.redis.sockets import Pin, ServerReplaced, Socket

Connection = redis.Redis
"""A Redis client over a pool of sockets; safe to share between threads. Answers are bytes."""

TIMEOUT_SECONDS = 5.0
"""How long to wait for a connection and for an answer."""
RETRIES = 3
"""How often the client repeats a command after a connection error. Scripts are idempotent for that reason."""

_RETRY_PAUSE_SECONDS = (0.05, 0.5)
_HEALTH_CHECK_SECONDS = 30
_CALLS_PER_PIPELINE = 8
_SCAN = 1000
"""Elements per step of a scan. The server does nothing else during a step, which takes about a millisecond."""
_REFUSALS: dict[str, type[errors.QueueError]] = {
    "STORELOST": errors.StoreLost,
    "STALEEPOCH": errors.StaleEpoch,
    "FOREIGNSTORE": errors.ForeignStore,
}
"""The first word of an error reply of a torchq script -> its error."""
_NOT_ALLOWED = ("The user executing the script can't", "ACL failure in script")
"""Parts of the error for a script that uses more than its user's rights: of Redis 7.0; of newer versions and Valkey."""
_IN_PIPELINE = re.compile(r"Command # \d+ \(.*\) of pipeline caused error: ", re.DOTALL)
"""What the library puts before the error of a command in a pipeline. It has the names of keys."""
_WRONG_CONTENT = ("WRONGTYPE", "not an integer", "found invalid token", "Expected value but found")
"""Parts of errors that a key or value of another program causes in torchq's commands and scripts."""


def connect(
    where: str | Location,
    *,
    client_name: str,
    timeout: float | None = TIMEOUT_SECONDS,
    retries: int = RETRIES,
    pinned: bool = False,
) -> Connection:
    """Return a client of the Redis at a location. The client connects with the first command.

    `timeout` limits the wait for an answer, in seconds; None is for clients that block on purpose. `retries` is how
    often a command is repeated after a connection error. A `pinned` client raises StoreLost instead of the use of
    another server process than the process that `incarnation` has named last. Raises BadAddress for a URL that cannot
    be used.
    """
    location = Location(where) if isinstance(where, str) else where
    if not location.file:  # a file may become usable later
        redis_url.check(location.url())
    base, cap = _RETRY_PAUSE_SECONDS
    pool = redis.ConnectionPool(
        Socket,
        location=location,
        pin=Pin() if pinned else None,
        client_name=client_name,
        socket_timeout=timeout,
        socket_connect_timeout=min(timeout or TIMEOUT_SECONDS, TIMEOUT_SECONDS),
        health_check_interval=_HEALTH_CHECK_SECONDS,
        retry=_NotedRetry(ExponentialBackoff(cap=cap, base=base), retries),
        driver_info=None,  # no CLIENT SETINFO: users have no right to it, and Redis 7.2 and newer log each refusal
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    return redis.Redis.from_pool(pool)


class _NotedRetry(Retry):
    """The attempts of a command or a connection, noted as a wait of the loop whose thread makes them. All together they
    may take longer than a loop may be silent."""

    def call_with_retry(self, *args: Any, **options: Any) -> Any:
        """Try until an attempt succeeds, or none is left."""
        with turns.current().waiting("Redis"):
            return super().call_with_retry(*args, **options)


def is_reachable(url: str) -> bool:
    """Return whether the Redis at a URL takes commands. Raises CredentialsRefused if the server does not accept the
    login.
    """
    client = connect(url, client_name="torchq-probe", timeout=1.0, retries=0)
    try:
        with translate_errors(client):
            return bool(client.ping())
    except errors.CredentialsRefused:
        raise
    except errors.QueueError:
        return False
    finally:
        client.close()


def address(connection: Connection) -> str:
    """Return the address of a client's server, as a URL without its secrets."""
    location = connection.connection_pool.connection_kwargs.get("location")
    return location.address if location is not None else "(unknown)"


def incarnation(connection: Connection) -> str:
    """Return the id that the server chose at its start; empty if the server has no id or the user may not read the id.
    A pinned client uses no other server from now on.
    """
    pin = connection.connection_pool.connection_kwargs.get("pin") or Pin()
    pin.run_id = ""
    pin.run_id = str(facts(connection, "server").get("run_id", ""))
    return pin.run_id


def meter(connection: Connection) -> Meter:
    """Return the meter of the scripts of a client."""
    location = connection.connection_pool.connection_kwargs.get("location")
    return location.meter if location is not None else NO_METER


def seconds_since_move(connection: Connection) -> float:
    """Return how long ago the clients of this process began to use a server at another address; infinite if they never
    did."""
    location = connection.connection_pool.connection_kwargs.get("location")
    return location.master.seconds_since_move if location is not None else math.inf


def facts(connection: Connection, section: str | None = None) -> dict[str, Any]:
    """Return the server's information about itself (INFO), in one section or in all usual ones; empty if the server
    refuses this to the user. A server that takes no writes may refuse even to answer, which is an error.
    """
    with translate_errors(connection):
        try:
            return dict(connection.info(section))
        except ResponseError as error:
            if isinstance(error, redis.exceptions.NoPermissionError) or "unknown command" in str(error):
                return {}
            raise


@contextlib.contextmanager
def translate_errors(connection: Connection) -> Iterator[None]:
    """Turn errors of the Redis library inside the block into `queues.errors.QueueError`."""
    try:
        yield
    except RedisError as error:
        raise _translate(error, address(connection)) from error


@contextlib.contextmanager
def translate_parse_errors(connection: Connection) -> Iterator[None]:
    """Turn errors of parsing inside the block into `queues.errors.Unreadable`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable_error(address(connection), type(error).__name__) from error


def evaluate(
    connection: Connection, source: str, sha: str, keys: Sequence[str], arguments: Sequence[str | bytes | int | float]
) -> Any:
    """Run a Lua script by its SHA-1. Send the source of the script if the server does not know the script.

    Raises StoreLost or StaleEpoch if the script's error reply begins with STORELOST or STALEEPOCH.
    """
    with translate_errors(connection):
        try:
            return connection.evalsha(sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return connection.eval(source, len(keys), *keys, *arguments)


class _Request:
    """A script that was sent. The request has no answer until an answer is read."""

    def __init__(self, source: str, sha: str, arguments: Sequence[str | bytes | int | float]) -> None:
        self.script = source, sha
        self.arguments = arguments
        self.answers: list[Any] = []


class ScriptPipeline:
    """A socket on which scripts are sent without a wait for each answer. The server runs them in the order of sending.
    Safe to share between threads.

    After a connection error, `send`'s function runs its script again. A repetition is safe because scripts are
    idempotent.
    """

    def __init__(self, connection: Connection) -> None:
        """The pipeline takes a socket of the connection while answers are pending."""
        self._connection = connection
        self._lock = threading.Lock()
        self._socket: Any = None
        self._pending: deque[_Request] = deque()

    @property
    def meter(self) -> Meter:
        """The meter of the scripts of the connection."""
        return meter(self._connection)

    def send(self, source: str, sha: str, arguments: Sequence[str | bytes | int | float]) -> Callable[[], Any]:
        """Send a script. Return a function that waits for its answer."""
        request = _Request(source, sha, arguments)
        with self._lock:
            # The first script is sent as source: if the server did not know it, the next scripts would run before it.
            script = ("EVALSHA", sha) if self._pending else ("EVAL", source)
            if not self._pending:
                with translate_errors(self._connection):
                    self._socket = self._connection.connection_pool.get_connection()
            self._pending.append(request)
            try:
                self._socket.send_command(*script, 0, *arguments)
            except RedisError:
                self._drop()
        return lambda: self._answer(request)

    def _answer(self, request: _Request) -> Any:
        with self._lock:
            while request in self._pending:
                self._read()
        answer = request.answers[0] if request.answers else NoScriptError()
        if isinstance(answer, NoScriptError):
            return evaluate(self._connection, *request.script, (), request.arguments)
        if isinstance(answer, ResponseError):
            raise _translate(answer, address(self._connection)) from answer
        return answer

    def _read(self) -> None:
        """Read the answer to the first pending request."""
        try:
            answer = self._socket.read_response()
        except ResponseError as error:
            answer = error
        except RedisError:
            self._drop()
            return
        except BaseException:
            self._drop()
            raise
        self._pending.popleft().answers.append(answer)
        if not self._pending:
            self._connection.connection_pool.release(self._socket)

    def _drop(self) -> None:
        """Close the socket. Late answers may still arrive on the socket, so no other request can use it."""
        self._pending.clear()
        self._socket.disconnect()
        self._connection.connection_pool.release(self._socket)


def read_atomically(connection: Connection, commands: Sequence[Sequence[str]]) -> list[Any]:
    """Return the answers to reading commands at one moment. If a key has another type than its command reads, the
    exception takes the place of the answer."""
    if not commands:
        return []
    with translate_errors(connection), connection.pipeline(transaction=True) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not _is_wrong_type(answer):
                raise answer
    return answers


def key_names(connection: Connection, pattern: str) -> list[str]:
    """Return the names of the keys that match a pattern. A key that is added or deleted during the scan may be
    missing."""
    with translate_errors(connection):
        names = set(connection.scan_iter(match=pattern, count=_SCAN))
    return sorted(name.decode(errors="replace") for name in names)


def scan(connection: Connection, kind: str, name: str) -> dict[bytes, Any] | None:
    """Read a hash or a sorted set (`kind` "hash", "zset") in pieces; None if the key has another type. An element that
    is added or deleted during the scan may be missing."""
    scan_iter = connection.hscan_iter if kind == "hash" else connection.zscan_iter
    with translate_errors(connection):
        try:
            return dict(scan_iter(name, count=_SCAN))
        except ResponseError as error:
            if _is_wrong_type(error):
                return None
            raise


def _unreadable_error(server: str, reason: str) -> errors.Unreadable:
    return errors.Unreadable(
        f"Redis at {server} holds data that torchq did not write ({reason}): "
        "`torchq doctor` lists it, `torchq doctor --fix` repairs it"
    )


def _is_wrong_type(error: Exception) -> bool:
    return str(error).startswith("WRONGTYPE")


def evaluate_all(
    connection: Connection, source: str, sha: str, calls: Iterable[Sequence[str | bytes | int | float]]
) -> None:
    """Run a Lua script once per list of arguments, in their order. Raises the errors of `evaluate`.

    Several calls travel together, because a wait for each answer would cost more than the work. The server serves
    other clients between the calls."""
    with translate_errors(connection):
        for chunk in chunks(calls, _CALLS_PER_PIPELINE):
            with connection.pipeline(transaction=False) as pipeline:
                for arguments in chunk:
                    pipeline.evalsha(sha, 0, *arguments)
                answers: list[Any] = pipeline.execute(raise_on_error=False)
            for arguments, answer in zip(chunk, answers, strict=True):
                if isinstance(answer, NoScriptError):
                    connection.eval(source, 0, *arguments)
                elif isinstance(answer, Exception):
                    raise answer


def _translate(error: RedisError, server: str) -> errors.QueueError:
    message = _IN_PIPELINE.sub("", str(error))
    if isinstance(error, ServerReplaced):
        return errors.StoreLost(f"Redis at {server} may lack the newest writes: {message}")
    refusal = _REFUSALS.get(message.partition(" ")[0])
    if refusal is not None:
        return refusal(f"{message.partition(' ')[2]} (Redis at {server})")
    refusals = redis.AuthenticationError | redis.exceptions.NoPermissionError
    if isinstance(error, refusals) or any(part in str(error) for part in _NOT_ALLOWED):
        return errors.CredentialsRefused(
            f"Redis at {server} refuses these credentials (check the Redis URL): {message}"
        )
    if refused_write := server_checks.refused_write(error.status_code or message.partition(" ")[0], message):
        return errors.NotWritable(f"Redis at {server} {refused_write}")
    if isinstance(error, ResponseError) and any(part in message for part in _WRONG_CONTENT):
        return _unreadable_error(server, message)
    if isinstance(error, ResponseError):
        return errors.QueueError(f"Redis at {server} failed: {message}")
    return errors.StoreUnreachable(f"Redis at {server} does not answer: {message}")
