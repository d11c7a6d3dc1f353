"""Connections without the token are limited in number and time; connections with the token are not affected."""

import contextlib
import http.client
import json
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded.apiserver import api_server as apiserver
from embedded.apiserver.api_server import ApiServer
from embedded.apiserver.http import client_guard, listener
from embedded.layout import Layout
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.waiting import SECONDS, until

MAPS = "/api/v1/namespaces/default/configmaps"
FEW = 16
"""The descriptors that a small server may open beyond the reserved descriptors and the descriptors of an idle
server.
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ApiServer]:
    with apiserver.running(Layout(tmp_path / "data")) as found:
        yield found


@pytest.fixture
def server(running: ApiServer, tmp_path: Path) -> Server:
    trusting = servers.trusting(Layout(tmp_path / "data"))
    return Server("embedded", running.url, running.token, running.kubeconfig, trusting)


def address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.rpartition("//")[2].rpartition(":")
    return host, int(port)


def plain(server: Server) -> socket.socket:
    return socket.create_connection(address(server), timeout=SECONDS)


def secure(server: Server) -> ssl.SSLSocket:
    assert server.tls is not None
    connection = plain(server)
    try:
        return server.tls.wrap_socket(connection, server_hostname=address(server)[0])
    except BaseException:
        connection.close()
        raise


def asked(path: str, token: str = "", more: str = "") -> bytes:
    shown = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{shown}{more}\r\n".encode()


def ends(connection: socket.socket) -> bool:
    """Read until the server closes the connection, then return True."""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while connection.recv(65536):
            pass
    return True


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def hello(server: Server) -> bytes:
    """Return the first bytes of a client's TLS handshake."""
    assert server.tls is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        server.tls.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_oldest_connection_without_the_token_is_closed_at_the_limit(
    running: ApiServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MOST_ANONYMOUS", 4)
    with contextlib.ExitStack() as stack:
        watching = stack.enter_context(secure(server))
        watching.sendall(asked(MAPS + "?watch=1", server.token))
        assert watching.recv(15) == b"HTTP/1.1 200 OK"
        idle = [stack.enter_context(plain(server)) for _ in range(20)]
        assert all(ends(each) for each in idle[:16])
        assert server.send("POST", MAPS, config_map("seen"))[0] == 201
        seen = b""
        while b'"seen"' not in seen:
            piece = watching.recv(65536)
            assert piece
            seen += piece


@pytest.mark.parametrize(
    "begun",
    ["nothing", "half a TLS handshake", "no request", "half a header", "half a body", "a wrong token", "no goodbye"],
)
def test_connection_without_the_token_is_closed_at_the_deadline(
    running: ApiServer, server: Server, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    monkeypatch.setattr(listener, "ANONYMOUS_SECONDS", 0.3)
    with plain(server) if begun in ("nothing", "half a TLS handshake") else secure(server) as connection:
        match begun:
            case "half a TLS handshake":
                connection.sendall(hello(server)[:50])
            case "half a header":
                connection.sendall(asked(MAPS)[:-4])
            case "half a body":
                connection.sendall(asked(MAPS, more="Content-Length: 50\r\n") + b"{")
            case "a wrong token":
                connection.sendall(asked(MAPS, "wrong"))
            case "no goodbye":
                connection.sendall(asked(MAPS))
                until(lambda: not running._listener._open)  # although the client keeps the connection open
        assert ends(connection)
    until(lambda: not running._listener._open)
    assert not running._listener._anonymous


def test_connection_with_a_slow_request_is_closed_at_the_deadline(
    running: ApiServer, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ANONYMOUS_SECONDS", 0.3)
    with secure(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")

        def closed() -> bool:
            try:
                connection.sendall(b"X: y\r\n")
            except OSError:
                return True
            return False

        until(closed)


@pytest.mark.parametrize("path", ["/healthz", "/api", MAPS])
def test_connection_without_the_token_is_closed_after_one_answer(server: Server, path: str) -> None:
    with secure(server) as connection:
        connection.sendall(asked(path) * 3)
        answers = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while piece := connection.recv(65536):
                answers += piece
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in answers


def test_connection_with_the_token_stays_open(
    server: Server, monkeypatch: pytest.MonkeyPatch, running: ApiServer
) -> None:
    monkeypatch.setattr(listener, "ANONYMOUS_SECONDS", 0.2)
    connection = http.client.HTTPSConnection(*address(server), timeout=SECONDS, context=server.tls)
    headers = {"Authorization": f"Bearer {server.token}"}
    connection.request("GET", MAPS, headers=headers)
    connection.getresponse().read()
    kept = connection.sock
    with plain(server) as silent:
        assert ends(silent)  # now the connection with the token is older than the limit
    connection.request("GET", MAPS, headers=headers)
    assert connection.getresponse().read()
    assert connection.sock is kept
    connection.close()


def test_bytes_of_a_request_without_the_token_are_bounded(server: Server) -> None:
    headers = b"".join(b"X%d: %s\r\n" % (number, b"y" * 60_000) for number in range(100))
    assert len(headers) > 2 * client_guard._ANONYMOUS_BYTES
    with secure(server) as connection, contextlib.suppress(ConnectionError, ssl.SSLError):
        connection.sendall(b"GET / HTTP/1.1\r\n" + headers)
        assert connection.recv(100) == b""
    body = config_map("large") | {"data": {"a": "x" * 1_000_000, "b": "x" * 1_000_000}}
    assert server.send("POST", MAPS + "?dryRun=All", body)[0] in (
        201,
        422,
    )  # the token is in the first bytes of this request


@pytest.mark.servers
def test_idle_connections_leave_descriptors_for_requests_with_the_token(tmp_path: Path) -> None:
    """Open 300 idle connections, half of them during a TLS handshake, to a process with few descriptors."""
    few = 64 + listener._RESERVED
    script = (
        "import resource, runpy, sys; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({few}, {few})); "
        "runpy.run_module('embedded.apiserver.api_server', run_name='__main__')"
    )
    command = [sys.executable, "-c", script, "--data", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "ready at" in process.stdout.readline(), process.communicate()[1]
        config = json.loads(Layout(tmp_path).kubeconfig.read_text())
        url, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
        server = Server("embedded", url, token, Layout(tmp_path).kubeconfig, servers.trusting(Layout(tmp_path)))
        with contextlib.ExitStack() as stack:
            started = hello(server)
            for number in range(300):
                connection = stack.enter_context(plain(server))
                if number % 2:
                    connection.sendall(started)
            for number in range(20):
                assert server.send("POST", MAPS, config_map(f"m{number}"))[0] == 201
    finally:
        process.terminate()
        said = process.communicate(timeout=SECONDS)[1]
    assert "Traceback" not in said
    assert said.count("WARNING") == 1, "the warning is logged once a minute"


@pytest.mark.servers
def test_raise_limit_raises_the_descriptors_to_the_hard_limit(tmp_path: Path) -> None:
    script = (
        "import resource; from embedded.apiserver.http import listener; "
        "hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 4096) % 2**31; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard)); listener.raise_limit(); "
        "assert listener.descriptors() == hard, listener.descriptors()"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert listener.descriptors() == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
