"""Connections to an embedded server for tests that write the bytes of HTTP themselves.

One rule: each answer is read to its end, so that the next request on the connection gets its own answer. A connection
that carries a stream is not used again.
"""

import socket
import ssl

from tests.support.kube.servers import Server

SECONDS = 60.0


def connect(server: Server) -> ssl.SSLSocket:
    """Return a new TLS connection to the server."""
    assert server.tls is not None
    host, _, port = server.url.rpartition("//")[2].rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=SECONDS)
    try:
        return server.tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def exchange(stream: ssl.SSLSocket, sent: bytes) -> tuple[int, bytes, bool]:
    """Send bytes and return the code and body of the answer, and whether the connection stays open."""
    stream.sendall(sent)
    buffer = b""
    while b"\r\n\r\n" not in buffer:
        buffer += _more(stream)
    head, _, body = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        return int(first.split()[1]), body, False  # a watch or a log, which is not read to its end
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        body += _more(stream)
    return int(first.split()[1]), body, headers.get("connection", "keep-alive").lower() != "close"


def _more(stream: ssl.SSLSocket) -> bytes:
    piece = stream.recv(65536)
    if not piece:
        raise ConnectionError("the server closed the connection before its answer was complete")
    return piece
