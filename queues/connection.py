"""The door to Redis: connections, and its errors in this room's words.

One rule: nothing else imports `redis`, and neither its exceptions nor a password pass this door.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from cluster import handshakes
from queues import errors, redis_url
from queues.redis_url import shown

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
_NOT_ALLOWED = "The user executing the script can't"
"""Words of the error when a script asks for more than its account may."""
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


def evaluate_later(
    connection: Connection, source: str, sha: str, arguments: Sequence[str | bytes | int | float]
) -> Callable[[], Any]:
    """Send the script, and give what waits for its answer; it must be called, and once. If anything goes wrong on the
    way, the script is run again from the start: scripts are idempotent."""
    with translated(connection):
        line = connection.connection_pool.get_connection()
    try:
        line.send_command("EVALSHA", sha, 0, *arguments)  # type: ignore[no-untyped-call]
    except RedisError:
        _drop(connection, line)
        return lambda: evaluate(connection, source, sha, (), arguments)

    def answer() -> Any:
        try:
            found = line.read_response()
        except ResponseError as error:
            connection.connection_pool.release(line)
            if isinstance(error, NoScriptError):
                return evaluate(connection, source, sha, (), arguments)
            raise _translate(error, address(connection)) from error
        except BaseException as error:
            _drop(connection, line)
            if isinstance(error, RedisError):
                return evaluate(connection, source, sha, (), arguments)
            raise
        connection.connection_pool.release(line)
        return found

    return answer


def _drop(connection: Connection, line: Any) -> None:
    """A line on which an answer may still come is of no use any more."""
    line.disconnect()
    connection.connection_pool.release(line)


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


def _translate(error: RedisError, where: str) -> errors.QueueError:
    message = str(error)
    refusal = _REFUSALS.get(message.partition(" ")[0])
    if refusal is not None:
        return refusal(f"{message.partition(' ')[2]} (Redis at {where})")
    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError) or _NOT_ALLOWED in message:
        return errors.CredentialsRefused(f"Redis at {where} refuses these credentials (check the Redis URL): {message}")
    if isinstance(error, ResponseError) and any(sign in message for sign in _SPOILT):
        return _unreadable(where, message)
    if isinstance(error, ResponseError):
        return errors.QueueError(f"Redis at {where} failed: {message}")
    return errors.StoreUnreachable(f"Redis at {where} does not answer: {message}")
