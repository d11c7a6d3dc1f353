"""A connection to an embedded server on which a test writes the bytes of HTTP itself.

One rule: an answer is read whole, so that the next request on the connection gets its own; a connection that carries a
stream is not used again.
"""

import socket
import ssl

from tests.support.kube.servers import Server

SECONDS = 60.0


def connected(server: Server) -> ssl.SSLSocket:
    """A new connection."""
    assert server.tls is not None
    host, _, port = server.url.rpartition("//")[2].rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=SECONDS)
    try:
        return server.tls.wrap_socket(plain, server_hostname=host)
    except BaseException:
        plain.close()
        raise


def exchanged(stream: ssl.SSLSocket, sent: bytes) -> tuple[int, bytes, bool]:
    """Send bytes; the answer's code and body, and whether the connection stays open."""
    stream.sendall(sent)
    buffer = b""
    while b"\r\n\r\n" not in buffer:
        buffer += _more(stream)
    head, _, body = buffer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        return int(first.split()[1]), body, False  # a watch or a log, whose end is not waited for
    length = int(headers.get("content-length", "0"))
    while len(body) < length:
        body += _more(stream)
    return int(first.split()[1]), body, headers.get("connection", "keep-alive").lower() != "close"


def _more(stream: ssl.SSLSocket) -> bytes:
    piece = stream.recv(65536)
    if not piece:
        raise ConnectionError("the server closed the connection before its answer was complete")
    return piece
