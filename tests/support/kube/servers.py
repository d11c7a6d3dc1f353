"""API servers for the contract suites: the embedded server, and a real kube-apiserver where its binaries are
installed.
"""

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coordinator.local import die_with_parent
from crds.api_resources import CRDS, Resource
from embedded.apiserver.api_server import running
from embedded.apiserver.http import certificates
from embedded.apiserver.kinds.catalog import storage
from embedded.layout import Layout
from kube.api import Manifest
from tests.support import ports
from tests.support.waiting import patient, until

ASSETS = "KUBEBUILDER_ASSETS"
VOLCANO = "TORCHQ_TEST_VOLCANO"
_SECONDS = 60.0


@dataclass(frozen=True)
class Server:
    """A running API server, with plain HTTP requests for calls that `kube.api.Cluster` does not offer."""

    name: str
    url: str
    token: str
    kubeconfig: Path
    tls: ssl.SSLContext | None = None
    counts: Callable[[], Mapping[str, int]] | None = None
    """The numbers of stored objects, read without a request; None for a real server."""

    def may_have(self, resource: Resource) -> bool:
        """Return whether the server may have objects of a resource. The answer costs less than a list."""
        return self.counts is None or self.counts().get(storage(resource), 0) > 0

    @property
    def embedded(self) -> bool:
        return self.name == "embedded"

    def send(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Send a request and return the status code and the parsed body."""
        text = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=text)
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type, **headers}
        for name, value in sent.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=patient(30)) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _parsed(error.read())


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode()


@contextlib.contextmanager
def embedded(folder: Path) -> Iterator[Server]:
    """Run the embedded API server on a data folder."""
    with running(Layout(folder)) as server:
        counts = server._store.counts
        yield Server("embedded", server.url, server.token, server.kubeconfig, trusting(Layout(folder)), counts)


def trusting(layout: Layout) -> ssl.SSLContext:
    """Return the TLS context of a client that trusts only this embedded cluster."""
    return ssl.create_default_context(cadata=certificates.authority_pem(layout).decode())


@contextlib.contextmanager
def real(folder: Path) -> Iterator[Server]:
    """Run kube-apiserver and a temporary etcd on loopback; skip the test if a binary is missing."""
    with ports.reserve() as peer, ports.reserve() as client, ports.reserve() as secure:
        yield from _real(folder, peer, client, secure)


def _real(folder: Path, peer: int, client: int, secure: int) -> Iterator[Server]:
    assets = Path(os.environ.get(ASSETS) or "/nonexistent")
    if not (assets / "kube-apiserver").exists() or not (assets / "etcd").exists():
        pytest.skip(f"{ASSETS} names no folder with kube-apiserver and etcd")
    if not shutil.which("openssl"):
        pytest.skip("openssl is needed to make kube-apiserver's service account key")
    key, token = folder / "service-account.key", "contract-suite"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    etcd = [assets / "etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync",
            f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}"]  # fmt: skip
    apiserver = [assets / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{client}", "--bind-address=127.0.0.1",
                 f"--secure-port={secure}", f"--cert-dir={folder / 'certificates'}", "--authorization-mode=RBAC",
                 "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
                 f"--token-auth-file={folder / 'tokens.csv'}", "--service-account-issuer=https://127.0.0.1",
                 f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                 "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
                 "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--profiling=false"]  # fmt: skip
    with _process(etcd, folder / "etcd.log"), _process(apiserver, folder / "apiserver.log"):
        server = Server("real", f"https://127.0.0.1:{secure}", token, folder / "kubeconfig", _unverified())
        _wait_ready(server, folder / "apiserver.log")
        _write_kubeconfig(server, folder / "certificates" / "apiserver.crt")
        yield server


@contextlib.contextmanager
def controllers(server: Server, *names: str) -> Iterator[None]:
    """Run some controllers of a real kube-controller-manager; skip the test if its binary is missing."""
    binary, log = Path(os.environ[ASSETS]) / "kube-controller-manager", server.kubeconfig.with_name("controllers.log")
    if not binary.exists():
        pytest.skip(f"{ASSETS} names no folder with kube-controller-manager")
    options = [f"--kubeconfig={server.kubeconfig}", f"--controllers={','.join(names)}", "--leader-elect=false"]
    with _process([binary, *options, "--secure-port=0", "--bind-address=127.0.0.1"], log):
        yield


@contextlib.contextmanager
def scheduler(server: Server) -> Iterator[None]:
    """Run a real kube-scheduler with its default profile; skip the test if its binary is missing."""
    binary, log = Path(os.environ[ASSETS]) / "kube-scheduler", server.kubeconfig.with_name("scheduler.log")
    if not binary.exists():
        pytest.skip(f"{ASSETS} names no folder with kube-scheduler")
    options = [f"--kubeconfig={server.kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    with _process([binary, *options, "--bind-address=127.0.0.1"], log):
        yield


@contextlib.contextmanager
def volcano(server: Server) -> Iterator[None]:
    """Run Volcano's scheduler with its default configuration; skip the test if no variable names its program."""
    program, log = os.environ.get(VOLCANO), server.kubeconfig.with_name("volcano.log")
    if not program:
        pytest.skip(f"{VOLCANO} does not name the program of Volcano's scheduler (vc-scheduler)")
    gates = "--feature-gates=ResourceTopology=false"  # else it waits for a definition that nothing here needs
    with _process([program, f"--kubeconfig={server.kubeconfig}", "--leader-elect=false", gates], log):
        yield


def _write_kubeconfig(server: Server, authority: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "clusters": [{"name": "real", "cluster": {"server": server.url, "certificate-authority": str(authority)}}],
        "users": [{"name": "real", "user": {"token": server.token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
    }
    server.kubeconfig.write_text(json.dumps(config))


def _wait_ready(server: Server, log: Path) -> None:
    deadline = time.monotonic() + patient(_SECONDS)
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if server.send("GET", "/readyz")[0] == 200 and server.send("GET", "/api/v1/namespaces/default")[0] == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"kube-apiserver did not become ready:\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def _process(command: list[Any], log: Path) -> Iterator[None]:
    with open(log, "wb") as output:
        wrapped = die_with_parent.wrap_command(
            map(str, command), signal.SIGKILL
        )  # only SIGKILL ends one of the two processes without the other
        process = subprocess.Popen(wrapped, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(patient(20))


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def install(server: Server, definitions: Iterable[Manifest]) -> None:
    """Create definitions one by one. Each definition is created after the previous definition is served."""
    for definition in definitions:
        code, answer = server.send("POST", CRDS.path() + "?fieldValidation=Strict", definition)
        assert code == 201, answer
        _wait_established(server, definition["metadata"]["name"])


def _wait_established(server: Server, name: str) -> None:
    def look() -> dict[str, str]:
        _, found = server.send("GET", CRDS.path(name=name))
        return {each["type"]: each["status"] for each in (found.get("status", {}).get("conditions") or [])}

    until(look, lambda conditions: conditions.get("Established") == "True")
