"""A TLS proxy for a server without TLS: a port whose connections are decrypted and passed on to a unix socket.

One rule: server and client each present a certificate, both signed by the same authority, as a Redis server with
`tls-auth-clients yes` demands. A connection ends when either side ends; all connections end with the block.
"""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

_PIECE = 1 << 16


@contextlib.contextmanager
def listening(port: int, folder: Path, target: Path) -> Iterator[None]:
    """Accept connections on a loopback port, with the certificates `ca.crt` and `server.crt` of a folder."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", port)) as door:
        taking = threading.Thread(target=_take, args=(door, context, target), name="tls", daemon=True)
        taking.start()
        try:
            yield
        finally:
            door.shutdown(socket.SHUT_RDWR)
            taking.join()


def _take(door: socket.socket, context: ssl.SSLContext, target: Path) -> None:
    while True:
        try:
            raw, _ = door.accept()
        except OSError:  # the listening socket was closed
            return
        threading.Thread(target=_serve, args=(raw, context, target), name="tls", daemon=True).start()


def _serve(raw: socket.socket, context: ssl.SSLContext, target: Path) -> None:
    with (
        raw,
        contextlib.suppress(OSError),
        context.wrap_socket(raw, server_side=True) as client,
        socket.socket(socket.AF_UNIX) as server,
    ):
        server.connect(str(target))
        while _pass(client, server):
            pass


def _pass(client: ssl.SSLSocket, server: socket.socket) -> bool:
    """Pass on the data that one side has sent. Return False once this side has closed the connection."""
    readable = [client] if client.pending() else select.select([client, server], [], [])[0]
    for source in readable:
        data = source.recv(_PIECE)
        (server if source is client else client).sendall(data)
        if not data:
            return False
    return True
