"""A Redis for this machine: a redis-server on PATH, else an imitation in a Python process.

One rule: it listens on a socket in a folder of this user's and nowhere else, since whoever can write to it governs the
queues. Losing it is harmless (the cluster is the truth); a server keeps an append-only file all the same, the imitation
keeps nothing.

The imitation is a program of its own (`cluster.local.redis_imitation`).
"""

import contextlib
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cluster.local.layout import Layout

SERVERS = ("redis-server", "valkey-server")
_LONGEST_SOCKET_PATH = 100
"""Bytes; the system's limit is 107."""
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run a Redis, and where it will answer."""

    command: list[str]
    url: str


class RedisFailed(Exception):
    """The Redis cannot run; the message says why and what to do."""


def plan(layout: Layout, *, embedded: bool = False) -> Plan:
    """Prepare the folder of a data folder's Redis. `embedded` wants the imitation even where there is a server.

    The URL is the same at every start.
    """
    layout.redis.mkdir(parents=True, exist_ok=True, mode=0o700)
    layout.redis.chmod(0o700)
    path = socket_path(layout)
    server = None if embedded else next(filter(None, map(shutil.which, SERVERS)), None)
    command = _server(server, path, layout) if server else _imitation(path)
    return Plan(command, f"unix://{path}")


def socket_path(layout: Layout) -> Path:
    """Where the Redis listens: in its own folder, or, if that path is too long for a socket, in a short private one."""
    path = layout.redis.resolve() / "redis.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"torchq-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise RedisFailed(f"{folder} belongs to somebody else or is open to others; remove it or set TMPDIR")
    return folder / "redis.sock"


def answers(url: str, timeout: float = _ANSWER_SECONDS) -> bool:
    """Whether a Redis answers at a URL, whatever it says: one that asks for a password first is there."""
    with contextlib.suppress(OSError), _connected(url, timeout) as connection:
        connection.sendall(b"*1\r\n$4\r\nPING\r\n")
        return connection.recv(1) in (b"+", b"-")
    return False


def _connected(url: str, timeout: float) -> socket.socket:
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


def _server(program: str, path: Path, layout: Layout) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "dir": str(layout.redis.resolve()),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "hash-max-listpack-entries": "64",  # 512 queues in one list, looked through one by one, took half of its time
        "daemonize": "no",
    }
    return [program, *(word for name, value in options.items() for word in (f"--{name}", value))]


def _imitation(path: Path) -> list[str]:
    return [sys.executable, "-m", "cluster.local.redis_imitation", "--socket", str(path)]
