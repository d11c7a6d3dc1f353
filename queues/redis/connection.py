"""The door to Redis: connections, and its errors in this room's words.

One rule: nothing else imports `redis`, and neither its exceptions nor a password pass this door.
"""

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from kube import handshakes
from queues import errors
from queues.redis import url as redis_url
from queues.redis.url import shown

Connection = redis.Redis
"""A Redis client over a pool of sockets; safe to share between threads. Answers are bytes."""

TIMEOUT_SECONDS = 5.0
"""How long to wait for a socket to connect and for an answer."""
RETRIES = 3
"""How often the client repeats a command after a connection error by itself; scripts are idempotent for that reason."""

_RETRY_PAUSE_SECONDS = (0.05, 0.5)
_HEALTH_CHECK_SECONDS = 30
_AT_A_TIME = 8
_SCAN = 1000
"""Elements per step of a scan: about a millisecond in which the server does nothing else."""
_REFUSALS: dict[str, type[errors.QueueError]] = {"STORELOST": errors.StoreLost, "STALEEPOCH": errors.StaleEpoch}
"""First words of the error replies that our scripts make, and what they mean."""
_NOT_ALLOWED = ("The user executing the script can't", "ACL failure in script")
"""Words of the error when a script asks for more than its account may: of Redis 7.0, and of newer ones and Valkey."""
_SPOILT = ("WRONGTYPE", "not an integer", "found invalid token", "Expected value but found")
"""Words of errors that a key or value of somebody else's causes in our commands and scripts."""


def connect(
    url: str, *, client_name: str, timeout: float | None = TIMEOUT_SECONDS, retries: int = RETRIES
) -> Connection:
    """A client for redis://, rediss:// or unix://; connects with the first command.

    `timeout` bounds the wait for an answer in seconds (None for clients that block on purpose); `retries` is how often
    a command is repeated after a connection error.
    Raises BadAddress for a URL it cannot use.
    """
    redis_url.check(url)
    base, cap = _RETRY_PAUSE_SECONDS
    try:
        return redis.Redis.from_url(
            url,
            **_kind(url),
            client_name=client_name,
            socket_timeout=timeout,
            socket_connect_timeout=min(timeout or TIMEOUT_SECONDS, TIMEOUT_SECONDS),
            health_check_interval=_HEALTH_CHECK_SECONDS,
            retry=Retry(ExponentialBackoff(cap=cap, base=base), retries),
            driver_info=None,  # no CLIENT SETINFO: accounts may not, and Redis 7.2 and newer would log each refusal
        )
    except ValueError as error:
        raise errors.BadAddress(f"Redis URL {shown(url)!r} is not valid ({type(error).__name__})") from None


class _TlsConnection(redis.SSLConnection):
    """One that leaves no socket open where the server goes away before the handshake."""

    def _connect(self) -> Any:
        try:
            return super()._connect()  # type: ignore[no-untyped-call]
        except (OSError, RedisError) as error:
            handshakes.close_lost(error)
            raise


def _kind(url: str) -> dict[str, Any]:
    return {"connection_class": _TlsConnection} if url.startswith("rediss://") else {}


def answers(url: str) -> bool:
    """Whether the Redis at a URL takes our commands. CredentialsRefused if it is there and does not know us."""
    client = connect(url, client_name="torchq-probe", timeout=1.0, retries=0)
    try:
        with translated(client):
            return bool(client.ping())
    except errors.CredentialsRefused:
        raise
    except errors.QueueError:
        return False
    finally:
        client.close()


def address(connection: Connection) -> str:
    """Where a client connects to, as a URL without its secrets."""
    place = connection.connection_pool.connection_kwargs
    database = place.get("db") or 0
    if "path" in place:
        return f"unix://{place['path']}?db={database}"
    scheme = "rediss" if issubclass(connection.connection_pool.connection_class, redis.SSLConnection) else "redis"
    return f"{scheme}://{place.get('host', 'localhost')}:{place.get('port', 6379)}/{database}"


def incarnation(connection: Connection) -> str:
    """The name that a server gives itself at its start; empty if it has none or may not say."""
    with translated(connection):
        try:
            return str(dict(connection.info("server")).get("run_id", ""))
        except ResponseError:
            return ""


@contextlib.contextmanager
def translated(connection: Connection) -> Iterator[None]:
    """Errors of the Redis library inside the block leave it as `queues.errors.QueueError`."""
    try:
        yield
    except RedisError as error:
        raise _translate(error, address(connection)) from error


@contextlib.contextmanager
def understood(connection: Connection) -> Iterator[None]:
    """What cannot be parsed inside the block leaves it as `queues.errors.Unreadable`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _unreadable(address(connection), type(error).__name__) from error


def evaluate(
    connection: Connection, source: str, sha: str, keys: Sequence[str], arguments: Sequence[str | bytes | int | float]
) -> Any:
    """Run a Lua script by its SHA-1, sending its source if the server does not know it.

    An error reply of the script that begins with STORELOST or STALEEPOCH is raised as the error of that name.
    """
    with translated(connection):
        try:
            return connection.evalsha(sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return connection.eval(source, len(keys), *keys, *arguments)


class _Sent:
    """A script that was sent; it has no answer as long as none was read."""

    def __init__(self, source: str, sha: str, arguments: Sequence[str | bytes | int | float]) -> None:
        self.script = source, sha
        self.arguments = arguments
        self.answers: list[Any] = []


class Line:
    """A socket on which scripts are sent one after the other without waiting: the server works them off in that order.
    Safe to share between threads.

    If anything goes wrong on the way, each script is run again from the start when its answer is asked for: scripts are
    idempotent.
    """

    def __init__(self, connection: Connection) -> None:
        """It takes a socket of the connection's while answers are due."""
        self._connection = connection
        self._lock = threading.Lock()
        self._socket: Any = None
        self._due: deque[_Sent] = deque()

    def send(self, source: str, sha: str, arguments: Sequence[str | bytes | int | float]) -> Callable[[], Any]:
        """Send a script, and give what waits for its answer."""
        sent = _Sent(source, sha, arguments)
        with self._lock:
            # The first one brings its source: if the server did not know it, those sent next would come too early.
            script = ("EVALSHA", sha) if self._due else ("EVAL", source)
            if not self._due:
                with translated(self._connection):
                    self._socket = self._connection.connection_pool.get_connection()
            self._due.append(sent)
            try:
                self._socket.send_command(*script, 0, *arguments)
            except RedisError:
                self._drop()
        return lambda: self._answer(sent)

    def _answer(self, sent: _Sent) -> Any:
        with self._lock:
            while sent in self._due:
                self._read()
        found = sent.answers[0] if sent.answers else NoScriptError()
        if isinstance(found, NoScriptError):
            return evaluate(self._connection, *sent.script, (), sent.arguments)
        if isinstance(found, ResponseError):
            raise _translate(found, address(self._connection)) from found
        return found

    def _read(self) -> None:
        """The next answer is the first one's that is due."""
        try:
            found = self._socket.read_response()
        except ResponseError as error:
            found = error
        except RedisError:
            self._drop()
            return
        except BaseException:
            self._drop()
            raise
        self._due.popleft().answers.append(found)
        if not self._due:
            self._connection.connection_pool.release(self._socket)

    def _drop(self) -> None:
        """A socket on which an answer may still come is of no use any more."""
        self._due.clear()
        self._socket.disconnect()
        self._connection.connection_pool.release(self._socket)


def at_once(connection: Connection, commands: Sequence[Sequence[str]]) -> list[Any]:
    """The answers of reading commands at one moment. In place of an answer, an exception for a key of another kind than
    its command is for."""
    if not commands:
        return []
    with translated(connection), connection.pipeline(transaction=True) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not _is_wrong_kind(answer):
                raise answer
    return answers


def names(connection: Connection, pattern: str) -> list[str]:
    """The names of all keys that are there all the time while they are read; others may be missing."""
    with translated(connection):
        found = set(connection.scan_iter(match=pattern, count=_SCAN))
    return sorted(name.decode(errors="replace") for name in found)


def scanned(connection: Connection, kind: str, name: str) -> dict[bytes, Any] | None:
    """A hash or a sorted set ("hash", "zset") in pieces; None if the key holds something else. What is there all the
    time while it is read is not missed."""
    scan = connection.hscan_iter if kind == "hash" else connection.zscan_iter
    with translated(connection):
        try:
            return dict(scan(name, count=_SCAN))
        except ResponseError as error:
            if _is_wrong_kind(error):
                return None
            raise


def _unreadable(where: str, why: str) -> errors.Unreadable:
    return errors.Unreadable(
        f"Redis at {where} holds what torchq did not write there ({why}): "
        "`torchq doctor` says what, `torchq doctor --fix` mends it"
    )


def _is_wrong_kind(error: Exception) -> bool:
    return str(error).startswith("WRONGTYPE")


def evaluate_all(
    connection: Connection, source: str, sha: str, calls: Iterable[Sequence[str | bytes | int | float]]
) -> None:
    """Run a Lua script once for each list of arguments, in their order, several on the way at a time: to wait for each
    answer would cost more than the work. Others are served in between. Errors as of `evaluate`."""
    waiting = iter(calls)
    with translated(connection):
        while some := list(itertools.islice(waiting, _AT_A_TIME)):
            with connection.pipeline(transaction=False) as pipeline:
                for arguments in some:
                    pipeline.evalsha(sha, 0, *arguments)
                answers: list[Any] = pipeline.execute(raise_on_error=False)
            for arguments, answer in zip(some, answers, strict=True):
                if isinstance(answer, NoScriptError):
                    connection.eval(source, 0, *arguments)
                elif isinstance(answer, Exception):
                    raise answer


def _is_refusal(error: RedisError) -> bool:
    """Whether it says that the account is not known, or may not do this."""
    known = isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError)
    return known or any(words in str(error) for words in _NOT_ALLOWED)


def _translate(error: RedisError, where: str) -> errors.QueueError:
    message = str(error)
    refusal = _REFUSALS.get(message.partition(" ")[0])
    if refusal is not None:
        return refusal(f"{message.partition(' ')[2]} (Redis at {where})")
    if _is_refusal(error):
        return errors.CredentialsRefused(f"Redis at {where} refuses these credentials (check the Redis URL): {message}")
    if isinstance(error, ResponseError) and any(sign in message for sign in _SPOILT):
        return _unreadable(where, message)
    if isinstance(error, ResponseError):
        return errors.QueueError(f"Redis at {where} failed: {message}")
    return errors.StoreUnreachable(f"Redis at {where} does not answer: {message}")
