"""A connection that is reset before its TLS handshake leaves no socket behind."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from crds.api_resources import PODS
from embedded.apiserver.http import certificates
from embedded.layout import Layout
from kube import client, errors, handshakes
from kube.settings import ConnectionSettings, RetrySettings
from tests.support.kube import resets, scripted

pytestmark = pytest.mark.servers


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """Return the path of a certificate authority."""
    layout = Layout(tmp_path / "data")
    certificates.prepare(layout, datetime.now(UTC))
    return layout.certificate("ca")


@pytest.mark.parametrize("attempts", [1, 3])
def test_client_closes_sockets_that_are_reset_before_the_handshake(
    tmp_path: Path, authority: Path, monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    with resets.resetting(monkeypatch) as port:
        path = scripted.kubeconfig(tmp_path, f"https://127.0.0.1:{port}")
        config = orjson.loads(path.read_bytes())
        config["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
        path.write_bytes(orjson.dumps(config))
        settings = ConnectionSettings(kubeconfig=str(path), retries=RetrySettings(attempts=attempts))
        with contextlib.closing(client.connect(settings)) as cluster:
            with pytest.raises(errors.Unreachable, match="reset by peer") as got:
                cluster.get(PODS, "p", "a")
            with pytest.raises(errors.Unreachable, match="reset by peer") as watched:
                cluster.watch(PODS, resource_version="1")
            assert resets.open_sockets() == [], (got, watched)


def test_close_lost_finds_the_socket_through_wrapped_errors() -> None:
    with pytest.raises(RuntimeError) as raised:
        _lose()
    handshakes.close_lost(raised.value)
    assert resets.open_sockets() == []


def test_close_lost_keeps_a_socket_after_its_handshake(tmp_path: Path, authority: Path) -> None:
    class Speaking(ssl.SSLSocket):
        def fail(self) -> None:
            raise OSError("while it was read")

    trusting = ssl.create_default_context(cafile=authority)
    trusting.sslsocket_class = Speaking
    with _spoken(certificates.context(Layout(tmp_path / "data")), trusting) as (server, spoken):
        assert isinstance(spoken, Speaking)
        with pytest.raises(OSError, match="while it was read") as raised:
            spoken.fail()
        handshakes.close_lost(raised.value)
        spoken.sendall(b"still there")
        assert server.recv(100) == b"still there"


def _lose() -> None:
    """Start a handshake on a connection that is reset, because its server ends before it accepts the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
    with connection:
        try:
            ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")
        except OSError as error:
            raise RuntimeError("in other words") from error


@contextlib.contextmanager
def _spoken(serving: ssl.SSLContext, trusting: ssl.SSLContext) -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Yield both ends of a TLS connection."""
    here, there = socket.socketpair()
    ends: list[ssl.SSLSocket] = []
    thread = threading.Thread(target=lambda: ends.append(serving.wrap_socket(there, server_side=True)))
    thread.start()
    with trusting.wrap_socket(here, server_hostname="127.0.0.1") as client_end:
        thread.join()
        with ends[0]:
            yield ends[0], client_end
