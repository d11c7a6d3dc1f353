"""The client finds its server and its credentials, and explains what to do if it does not find them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from crds.api_resources import PODS
from kube import client, errors, requests
from kube.client import KubernetesCluster
from kube.official import authorization
from kube.settings import ConnectionSettings, RetrySettings
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, pod, status

URL = "http://127.0.0.1:1"
ONCE = RetrySettings(attempts=1)


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set a home without a kubeconfig and an environment without variables that name a server."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@contextlib.contextmanager
def connected(settings: ConnectionSettings | None = None) -> Iterator[KubernetesCluster]:
    with contextlib.closing(client.connect(settings)) as cluster:
        yield cluster


def test_explicit_kubeconfig_precedes_the_variable_and_the_home_folder(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nowhere / ".kube").mkdir()
    scripted.kubeconfig(nowhere / ".kube", "http://home:1").rename(nowhere / ".kube" / "config")
    with connected() as cluster:
        assert cluster.server == "http://home:1"
    (nowhere / "variable").mkdir()
    monkeypatch.setenv("KUBECONFIG", str(scripted.kubeconfig(nowhere / "variable", "http://variable:1")))
    with connected() as cluster:
        assert cluster.server == "http://variable:1"
    with connected(ConnectionSettings(kubeconfig=str(scripted.kubeconfig(nowhere, "http://explicit:1/")))) as cluster:
        assert cluster.server == "http://explicit:1"


def test_connect_uses_the_named_context(nowhere: Path) -> None:
    path = scripted.kubeconfig(nowhere, URL)
    config = orjson.loads(path.read_bytes())
    config["clusters"].append({"name": "there", "cluster": {"server": "http://there:1"}})
    config["contexts"].append({"name": "there", "context": {"cluster": "there", "user": "me"}})
    path.write_bytes(orjson.dumps(config))
    with connected(ConnectionSettings(kubeconfig=str(path), context="there")) as cluster:
        assert cluster.server == "http://there:1"
    with pytest.raises(errors.Misconfigured, match="nope"):
        client.connect(ConnectionSettings(kubeconfig=str(path), context="nope"))


def test_connect_in_a_pod_uses_the_service_account(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(errors.Misconfigured, match="service account"):
        client.connect()
    for constant, text in (("SERVICE_TOKEN_FILENAME", "a-token\n"), ("SERVICE_CERT_FILENAME", "a certificate")):
        path = nowhere / constant
        path.write_text(text)
        monkeypatch.setattr(f"kubernetes.config.incluster_config.{constant}", str(path))
    with connected() as cluster:
        assert cluster.server == "https://10.0.0.1:443"
        assert cluster._transport._authorization() == "bearer a-token"


def test_failed_renewal_of_credentials_raises_misconfigured() -> None:
    class Loader:
        def get_api_key_with_prefix(self, *_: str, **__: str) -> str:
            raise RuntimeError("the plugin said a-token")

    with pytest.raises(errors.Misconfigured, match="cannot renew the credentials: RuntimeError") as raised:
        authorization.Authorization(Loader())()
    assert "a-token" not in str(raised.value)


def test_token_file_of_the_kubeconfig_is_read_again(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorization, "_CREDENTIALS_SECONDS", 0.0)
    path = scripted.kubeconfig(nowhere, URL)
    config = orjson.loads(path.read_bytes())
    config["users"][0]["user"] = {"tokenFile": "token"}
    path.write_bytes(orjson.dumps(config))
    token = nowhere / "token"
    token.write_text("first\n")
    with connected(ConnectionSettings(kubeconfig=str(path))) as cluster:
        header = cluster._transport._authorization
        assert header() == "Bearer first"
        token.write_text("second\n")
        assert header() == "Bearer second"
        token.write_text("")
        assert header() == "Bearer second", "the file is being replaced"
        token.unlink()
        assert header() == "Bearer second", "the file is being replaced"


def test_a_kubeconfig_with_a_new_token_is_read_again_for_its_context_and_server_alone(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "_CREDENTIALS_SECONDS", 0.0)
    path = scripted.kubeconfig(nowhere, URL)
    config = orjson.loads(path.read_bytes())
    [user], [own] = config["users"], config["contexts"]

    def write(token: str) -> None:
        user["user"] = {"token": token}
        path.write_bytes(orjson.dumps(config))

    write("first")
    with connected(ConnectionSettings(kubeconfig=str(path))) as cluster:
        header = cluster._transport._authorization
        assert header() == "Bearer first"
        write("the second")
        assert header() == "Bearer the second"
        path.write_text("users: [")
        assert header() == "Bearer the second", "the file is being written"
        config["users"].append({"name": "other", "user": {"token": "of another cluster"}})
        config["contexts"].append({"name": "there", "context": {**own["context"], "user": "other"}})
        config["current-context"] = "there"
        write("a third one")
        assert header() == "Bearer a third one", "the context is the one of the start"
        config["clusters"][0]["cluster"]["server"] = "http://there:1"
        write("a fourth, for another server")
        assert header() == "Bearer a third one"


@pytest.mark.servers
def test_client_uses_the_credential_plugin_of_the_kubeconfig(nowhere: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "fresh"},
    }
    plugin = {"apiVersion": credential["apiVersion"], "command": "echo", "args": [orjson.dumps(credential).decode()]}
    with scripted.running() as server:
        server.otherwise = Answer(body=pod("p"))
        path = scripted.kubeconfig(nowhere, server.url)
        config = orjson.loads(path.read_bytes())
        config["users"][0]["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
        path.write_bytes(orjson.dumps(config))
        with connected(ConnectionSettings(kubeconfig=str(path), retries=ONCE)) as cluster:
            cluster.get(PODS, "p", "a")
        assert server.requests[0].headers["Authorization"] == "Bearer fresh"


@pytest.mark.servers
def test_the_credential_plugin_is_run_again_for_a_token_that_is_refused(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authorization, "_CREDENTIALS_SECONDS", 3600.0)
    version, printed = "client.authentication.k8s.io/v1", nowhere / "printed"

    def write(token: str) -> None:
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}}
        printed.write_bytes(orjson.dumps(credential))

    write("first")
    plugin = {"apiVersion": version, "command": "cat", "args": [str(printed)], "interactiveMode": "Never"}
    with scripted.running() as server:
        path = scripted.kubeconfig(nowhere, server.url)
        config = orjson.loads(path.read_bytes())
        config["users"][0]["user"] = {"exec": plugin}
        path.write_bytes(orjson.dumps(config))
        with connected(ConnectionSettings(kubeconfig=str(path), retries=ONCE)) as cluster:

            def ask(answer: Answer) -> str | None:
                server.otherwise = answer
                with contextlib.suppress(errors.Unauthorized):
                    cluster.get(PODS, "p", "a")
                return server.requests[-1].headers["Authorization"]

            refused = status(401, "Unauthorized")
            assert ask(refused) == "Bearer first"
            write("second")
            assert ask(refused) == "Bearer second"
            write("third")
            assert ask(refused) == "Bearer second", "it is not run for each refusal"
            monkeypatch.setattr(cluster._transport._authorization, "_forgotten_until", 0.0)
            ask(refused)
            printed.unlink()
            assert ask(Answer(body=pod("p"))) == "Bearer second", "the program has failed"


def test_connect_without_configuration_explains_how_to_name_one() -> None:
    with pytest.raises(errors.Misconfigured, match=r"--kubeconfig, set KUBECONFIG.*~/\.kube/config"):
        client.connect()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a-token",
        "a-token: [",
        "\x00a-token",
        "kind: Config",
        "clusters: 5\ntoken: a-token",
        "users: [{name: me, token: a-token}]\ncontexts: [{name: c, context: {user: me, cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: x}}]\ncurrent-context: c",
    ],
)
def test_error_names_a_broken_kubeconfig_without_its_secrets(nowhere: Path, text: str) -> None:
    path = nowhere / "broken"
    path.write_text(text)
    with pytest.raises(errors.Misconfigured, match=f"cannot use {path}") as raised:
        client.connect(ConnectionSettings(kubeconfig=str(path)))
    assert "a-token" not in str(raised.value)


def test_error_names_a_missing_kubeconfig() -> None:
    with pytest.raises(errors.Misconfigured, match="cannot use /no/where: there is no such file"):
        client.connect(ConnectionSettings(kubeconfig="/no/where"))


@pytest.mark.parametrize("url", ["nonsense://x", "http://x y"])
def test_client_does_not_retry_an_invalid_url(nowhere: Path, url: str) -> None:
    settings = ConnectionSettings(
        kubeconfig=str(scripted.kubeconfig(nowhere, url)), retries=RetrySettings(base_seconds=60)
    )
    with connected(settings) as cluster, pytest.raises(errors.Misconfigured, match=url):
        cluster.get(PODS, "p", "a")


def test_connect_warns_if_the_certificate_is_not_verified(nowhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = scripted.kubeconfig(nowhere, "https://127.0.0.1:1")
    config = orjson.loads(path.read_bytes())
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_bytes(orjson.dumps(config))
    with connected(ConnectionSettings(kubeconfig=str(path))):
        assert "the certificate of https://127.0.0.1:1 is not verified" in caplog.text


def test_missing_certificate_file_raises_misconfigured(nowhere: Path) -> None:
    path = scripted.kubeconfig(nowhere, "https://127.0.0.1:1")
    config = orjson.loads(path.read_bytes())
    config["clusters"][0]["cluster"]["certificate-authority"] = "/no/where.pem"
    path.write_bytes(orjson.dumps(config))
    with pytest.raises(errors.Misconfigured, match=r"/no/where\.pem"):
        client.connect(ConnectionSettings(kubeconfig=str(path), retries=ONCE))


@pytest.mark.servers
def test_client_ignores_the_proxy_of_the_environment_for_loopback(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with scripted.running() as server:
        server.otherwise = Answer(body=pod("p"))
        path = scripted.kubeconfig(nowhere, server.url)
        with connected(ConnectionSettings(kubeconfig=str(path), retries=ONCE)) as cluster:
            assert cluster.get(PODS, "p", "a") == pod("p")
        config = orjson.loads(path.read_bytes())
        config["clusters"][0]["cluster"]["proxy-url"] = "http://127.0.0.1:2"
        path.write_bytes(orjson.dumps(config))
        with (
            connected(ConnectionSettings(kubeconfig=str(path), retries=ONCE)) as cluster,
            pytest.raises(errors.Unreachable),
        ):
            cluster.get(PODS, "p", "a")


def test_the_token_of_another_account_goes_alone_to_the_same_server(nowhere: Path) -> None:
    path = scripted.kubeconfig(nowhere, f"{URL}/base")
    config = orjson.loads(path.read_bytes())
    config["users"][0]["user"] = {"token": "own-token", "username": "me", "password": "own-password"}
    path.write_bytes(orjson.dumps(config))
    connect_as = client.connect_others(ConnectionSettings(kubeconfig=str(path), retries=ONCE))
    first, second = connect_as("first"), connect_as("second")
    assert first.server == f"{URL}/base"
    headers = [each._transport._headers(requests.metrics())["Authorization"] for each in (first, second)]
    assert headers == ["Bearer first", "Bearer second"]
    assert "own-" not in repr(vars(first._transport._pool))
