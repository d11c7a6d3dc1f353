"""What a Python program is told if a cluster does not answer, or refuses the program."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import torchq
from tests.support import ports


class Door:
    """An API server that answers every request with one status, and a kubeconfig for it."""

    def __init__(self, folder: Path) -> None:
        self.code, self.message = 200, ""
        door = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(
                    {
                        "kind": "Status",
                        "apiVersion": "v1",
                        "status": "Failure",
                        "message": door.message,
                        "code": door.code,
                    }
                ).encode()
                self.send_response(door.code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.kubeconfig = kubeconfig(folder, f"http://127.0.0.1:{self.server.server_port}")


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "c", "user": {"token": "expired"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }))  # fmt: skip
    return path


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    found = Door(tmp_path)
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@pytest.fixture
def client(on_path: str, door: Door) -> Iterator[torchq.Client]:
    with torchq.Client(kubeconfig=door.kubeconfig) as found:
        yield found


def test_an_expired_token_and_a_missing_permission_have_errors_of_their_own(client: torchq.Client, door: Door) -> None:
    door.code, door.message = 401, "Unauthorized"
    with pytest.raises(torchq.Unauthorized, match="credentials"):
        client.jobs()
    door.code, door.message = 403, 'torchjobs is forbidden: User "u" cannot list resource "torchjobs"'
    with pytest.raises(torchq.Forbidden, match='User "u" cannot list resource "torchjobs"'):
        client.jobs()
    job = torchq.Job("default/train/1", client)
    with pytest.raises(torchq.Forbidden):
        job.wait()
    with pytest.raises(torchq.Forbidden):
        next(iter(job.logs(follow=True)))


def test_a_cluster_that_does_not_answer_is_named(on_path: str, tmp_path: Path) -> None:
    with ports.reserve() as port:
        url = f"https://127.0.0.1:{port}"
    with torchq.Client(kubeconfig=kubeconfig(tmp_path, url)) as client, pytest.raises(torchq.NoCluster, match=url):
        client.jobs()


def test_without_any_cluster_the_error_says_how_to_name_one(
    on_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KUBECONFIG", "TORCHQ_KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with torchq.Client() as client, pytest.raises(torchq.NoCluster, match=r"set KUBECONFIG, .*torchq local up"):
        client.jobs()


def test_a_kubeconfig_that_is_corrected_is_read_again_by_the_next_call(
    on_path: str, door: Door, tmp_path: Path
) -> None:
    door.code, door.message = 403, "let in"
    good = door.kubeconfig.read_text()
    door.kubeconfig.write_text("nonsense: [")
    with torchq.Client(kubeconfig=door.kubeconfig) as client:
        with pytest.raises(torchq.NoCluster):
            client.jobs()
        door.kubeconfig.write_text(good)
        with pytest.raises(torchq.Forbidden, match="let in"):
            client.jobs()
