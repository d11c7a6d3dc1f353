"""The embedded server's certificate: which clients trust it, when it is renewed, and which requests are authorized."""

import ipaddress
import ssl
import stat
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from crds.api_resources import NAMESPACES
from embedded.apiserver.http import certificates
from embedded.layout import Layout
from kube import client, errors
from kube.settings import ConnectionSettings, RetrySettings
from tests.support.kube import servers
from tests.support.kube.servers import Server

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _serial(layout: Layout, name: str) -> int:
    return x509.load_pem_x509_certificate(layout.certificate(name).read_bytes()).serial_number


def _prepared(layout: Layout, now: datetime) -> tuple[int, int]:
    certificates.prepare(layout, now)
    return _serial(layout, "ca"), _serial(layout, "server")


def test_certificates_are_created_once_and_renewed_before_they_expire(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    authority, server = _prepared(layout, NOW)
    assert _prepared(layout, NOW + timedelta(days=certificates.SERVER_DAYS - certificates.RENEWAL_DAYS - 1)) == (
        authority,
        server,
    )
    same, newer = _prepared(layout, NOW + timedelta(days=certificates.SERVER_DAYS - certificates.RENEWAL_DAYS + 1))
    assert (same, newer != server) == (authority, True)
    other, newest = _prepared(layout, NOW + timedelta(days=certificates.AUTHORITY_DAYS - 1))
    assert other != authority
    assert newest not in {server, newer}
    assert certificates.context(layout)


@pytest.mark.parametrize("broken", ["missing", "empty", "another's"])
@pytest.mark.parametrize("name", ["ca", "server"])
def test_unusable_certificate_is_replaced(tmp_path: Path, broken: str, name: str) -> None:
    layout, stranger = Layout(tmp_path / "a"), Layout(tmp_path / "b")
    before = _prepared(layout, NOW)
    certificates.prepare(stranger, NOW)
    match broken:
        case "missing":
            layout.key(name).unlink()
        case "empty":
            layout.certificate(name).write_text("")
        case _:
            layout.key(name).write_bytes(stranger.key(name).read_bytes())
    after = _prepared(layout, NOW)
    assert after[1] != before[1]
    assert (after[0] != before[0]) is (name == "ca")
    assert certificates.context(layout)


def test_certificate_covers_loopback_only_and_its_key_is_private(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    certificates.prepare(layout, NOW)
    for name in ("ca", "server"):
        assert stat.S_IMODE(layout.key(name).stat().st_mode) == 0o600
    found = x509.load_pem_x509_certificate(layout.certificate("server").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    assert all(address.is_loopback for address in addresses)
    assert ipaddress.ip_address("127.0.0.1") in addresses
    assert "localhost" in names.get_values_for_type(x509.DNSName)


@pytest.mark.servers
def test_only_clients_with_the_kubeconfig_trust_the_server(tmp_path: Path) -> None:
    with servers.embedded(tmp_path / "one") as server, servers.embedded(tmp_path / "two") as other:
        for name in ("127.0.0.1", "localhost"):
            url = server.url.replace("127.0.0.1", name)
            with urllib.request.urlopen(url + "/readyz", context=server.tls) as answer:
                assert answer.read() == b"ok"
        for stranger in (ssl.create_default_context(), other.tls):
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                urllib.request.urlopen(server.url + "/readyz", context=stranger)
        text = server.kubeconfig.read_text().replace(server.url, other.url)
        (tmp_path / "wrong").write_text(text)
        settings = ConnectionSettings(kubeconfig=str(tmp_path / "wrong"), retries=RetrySettings(attempts=1))
        connected = client.connect(settings)
        with pytest.raises(errors.Misconfigured, match="not trusted"):
            connected.list(NAMESPACES)
        connected.close()


@pytest.mark.servers
def test_certificate_survives_a_restart(tmp_path: Path) -> None:
    with servers.embedded(tmp_path):
        before = Layout(tmp_path).certificate("server").read_bytes()
    with servers.embedded(tmp_path) as server:
        assert Layout(tmp_path).certificate("server").read_bytes() == before
        assert server.send("GET", "/version")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api",
        "/apis",
        "/api/v1",
        "/version",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/api/v1",
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/p/log",
        "/api/v1/pods?watch=1",
        "/apis/example.com/v1/widgets",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/nothing",
        "/healthz/etcd",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_paths_other_than_health_require_the_token(embedded_server: Server, path: str, method: str) -> None:
    for token in ("", "Bearer", "Bearer wrong", f"Basic {embedded_server.token}"):
        code, status = embedded_server.send(method, path, {}, Authorization=token)
        assert (code, status["kind"], status["reason"], status["code"]) == (401, "Status", "Unauthorized", 401)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_paths_need_no_token(embedded_server: Server, path: str) -> None:
    assert embedded_server.send("GET", path, Authorization="") == (200, "ok")


def test_server_does_not_answer_plain_http(embedded_server: Server) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(embedded_server.url.replace("https:", "http:") + "/readyz", timeout=30)
