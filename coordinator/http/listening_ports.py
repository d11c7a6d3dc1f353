"""Ports to listen on: the address of each port, and the error for a port that cannot be used.

One rule: a port that cannot be used ends the process with one message, which names the setting.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from coordinator.errors import CoordinatorError
from coordinator.http.bounded_server import HttpServer
from coordinator.port_settings import ANY_PORT

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@contextmanager
def listening(server: HttpServer, setting: str, address: str, port: int) -> Iterator[int]:
    """Let the server answer while the block runs; yield the port. Raises CoordinatorError if the port cannot be
    used."""
    with ExitStack() as running:
        try:
            bound = running.enter_context(server.running(address, 0 if port == ANY_PORT else port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise CoordinatorError(f"{setting} {address}:{port}: {reason}; choose another {setting}") from error
        yield bound


def url(address: str, port: int) -> str:
    """Return the URL of a port as this machine reaches it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_for_address(host: str, address: str) -> bool:
    """Return whether the Host header of a request fits the address of the server.

    The check is needed because a web page in a browser may make its own domain name point to a loopback address.
    """
    try:
        return address not in LOOPBACK or not host or urlsplit(f"//{host}").hostname in LOOPBACK
    except ValueError:
        return False
