"""A Redis for this machine: a redis-server on PATH, else an imitation in a Python process.

One rule: it listens on a socket in a folder of this user's and nowhere else, since whoever can write to it governs the
queues. Losing it is harmless (the cluster is the truth); a server keeps an append-only file all the same, the imitation
keeps nothing.

The imitation runs as `python -m cluster.local.embedded_redis --socket PATH`.
"""

import argparse
import contextlib
import hashlib
import itertools
import os
import select
import shutil
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fakeredis._clients._tcp_server import TCPFakeRequestHandler, TcpFakeServer

from cluster.local.layout import Layout
from cluster.stop import Stop

SERVERS = ("redis-server", "valkey-server")
_LONGEST_SOCKET_PATH = 100
"""Bytes; the system's limit is 107."""
_ANSWER_SECONDS = 1.0
_POLL_SECONDS = 0.01
"""How long something the server sends of its own accord (a published message) may wait."""
_PIECE = 1 << 16


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
        "daemonize": "no",
    }
    return [program, *(word for name, value in options.items() for word in (f"--{name}", value))]


def _imitation(path: Path) -> list[str]:
    return [sys.executable, "-m", "cluster.local.embedded_redis", "--socket", str(path)]


class _Session(TCPFakeRequestHandler):  # type: ignore[misc]  # the library is not typed for us
    """One client's connection. The library's own closes it after every error reply, and feeds commands line by line."""

    def handle(self) -> None:
        """Pass on what the client sends, and send what there is for it, until it goes."""
        client, shutdown = self.current_client, self.server._shutdown_event
        with contextlib.suppress(ConnectionError):
            while not shutdown.is_set():
                while client.can_read():
                    self._reply()
                readable, _, _ = select.select([self.connection], [], [], _POLL_SECONDS)
                if readable:
                    data = self.connection.recv(_PIECE)
                    if not data:
                        return
                    self._feed(data)

    def _feed(self, data: bytes) -> None:
        try:
            self.current_client.get_socket().sendall(data)
        except Exception as e:
            self.writer.dump(e)
            raise ConnectionError("the client does not speak the protocol") from e

    def _reply(self) -> None:
        try:
            answer = self.current_client.read_response()
        except Exception as e:  # a command's error is its answer
            answer = e
        self.writer.dump(answer)


class Imitation(TcpFakeServer):  # type: ignore[misc]  # the library is not typed for us
    """fakeredis on a socket of the file system.

    The library tells TCP clients apart by their addresses; clients of such a socket have none and get numbers. A file
    socket also knows no Nagle's algorithm, which over TCP makes every transaction take 40 ms.
    """

    address_family = socket.AF_UNIX

    def __init__(self, path: Path) -> None:
        self._numbers = itertools.count(1)
        self._path = path
        path.unlink(missing_ok=True)
        super().__init__(str(path))
        self.RequestHandlerClass = _Session
        self.daemon_threads = True

    def server_bind(self) -> None:
        """Bind, for this user only."""
        before = os.umask(0o077)
        try:
            super().server_bind()
        finally:
            os.umask(before)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """The next client, with a number for an address."""
        connection, _ = super().get_request()
        return connection, ("unix", next(self._numbers))

    def server_close(self) -> None:
        """Stop listening and remove the socket."""
        super().server_close()
        self._path.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the imitation until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m cluster.local.embedded_redis", description="An embedded Redis.")
    parser.add_argument("--socket", type=Path, required=True, help="path of the socket to listen on")
    path: Path = parser.parse_args(arguments).socket
    if answers(f"unix://{path}"):
        print(f"redis: another Redis listens on {path}; stop it first", file=sys.stderr)
        return 1
    stop = Stop()
    stop.listen()
    try:
        server = Imitation(path)
    except OSError as e:
        print(f"redis: cannot listen on {path}: {e}", file=sys.stderr)
        return 1
    thread = threading.Thread(target=server.serve_forever, name="redis", daemon=True)
    thread.start()
    print(f"Redis imitation ready at unix://{path}", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
