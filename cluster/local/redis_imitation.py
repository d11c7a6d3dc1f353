"""An imitation of Redis in a Python process: `python -m cluster.local.redis_imitation --socket PATH`.

One rule: it stands in where no redis-server is on PATH and keeps nothing; only this module imports the library that it
is made of, which takes long to load.
"""

import argparse
import contextlib
import itertools
import os
import select
import socket
import sys
import threading
from pathlib import Path

from fakeredis._clients._tcp_server import TCPFakeRequestHandler, TcpFakeServer

from cluster import threads
from cluster.local.embedded_redis import answers
from cluster.stop import Stop

_POLL_SECONDS = 0.01
"""How long something the server sends of its own accord (a published message) may wait."""
_PIECE = 1 << 16


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
    parser = argparse.ArgumentParser(
        prog="python -m cluster.local.redis_imitation", description="An imitation of Redis."
    )
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
    threads.end_process_with_any()
    thread = threading.Thread(target=server.serve_forever, name="redis", daemon=True)
    thread.start()
    print(f"Redis imitation ready at unix://{path}", flush=True)
    stop.wait()
    server.shutdown()
    server.server_close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
