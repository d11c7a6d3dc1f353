"""`torchq dashboard` on a user's machine: its port, the browser that it opens, its end, and a cluster that is down."""

import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.cli.dashboard import by_hand
from crds.api_resources import TORCHJOBS
from kube import client
from kube.settings import ConnectionSettings
from tests.support.coordinator.dashboard_site import Browser
from tests.support.coordinator.desk import manifest
from tests.support.kube.servers import Server
from tests.support.waiting import patient, until

pytestmark = pytest.mark.servers
URL = re.compile(r"http://127\.0\.0\.1:(\d+)(/open\?code=\S+)")


@contextlib.contextmanager
def running(server: Server, *arguments: str) -> "Iterator[tuple[subprocess.Popen[str], int, str]]":
    """Run the command; yield its process, its port, and the path with the code."""
    command = [sys.executable, "-m", "coordinator.cli.main", "dashboard", "--no-open", *arguments]
    environment = {**os.environ, "TORCHQ_KUBECONFIG": str(server.kubeconfig)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout is not None
            found = URL.search(line := process.stdout.readline())
            assert found is not None, line
            yield process, int(found[1]), found[2]
        finally:
            process.kill()


def run(server: Server, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main.main, arguments, env={"TORCHQ_KUBECONFIG": str(server.kubeconfig)})
    return result.exit_code, result.output


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_shows_pages_and_a_signal_ends_it_quietly(embedded_server: Server, number: signal.Signals) -> None:
    with running(embedded_server) as (process, port, path):
        browser = Browser(port)
        assert browser.get(path).code == 303
        page = browser.get("/").text
        assert "torchq-local" in page
        assert "namespace default" in page
        process.send_signal(number)
        out, err = process.communicate(timeout=patient(30))
    assert (process.returncode, out, err) == (0, "", "")


def test_a_namespace_that_is_not_there_is_told(embedded_server: Server) -> None:
    with running(embedded_server, "-n", "nowhere") as (process, _, _):
        process.terminate()
        assert "note: there is no namespace nowhere; until there is," in process.communicate(timeout=patient(30))[1]


def test_a_token_that_ends_is_told_on_live_pages_until_the_kubeconfig_has_a_new_one(
    embedded_server: Server, tmp_path: Path
) -> None:
    good, rejected = embedded_server.kubeconfig.read_text(), "does not accept these credentials"
    config = yaml.safe_load(good)
    for user in config["users"]:
        user["user"] = {"token": "an-ended-one"}
    path = tmp_path / "kubeconfig"
    path.write_text(good)
    with contextlib.closing(client.connect(ConnectionSettings(kubeconfig=str(path)))) as cluster:
        cluster.create(TORCHJOBS, manifest("asked", "default"), "default")
    pages = ("/", "/jobs/default/asked", "/usage")
    with running(replace(embedded_server, kubeconfig=path)) as (_, port, code):
        browser = Browser(port)
        browser.get(code)
        for text, is_good in ((good, True), (yaml.safe_dump(config), False), (good, True)):
            path.write_text(text)
            for each in pages:
                until(lambda each=each, is_good=is_good: (rejected in browser.get(each).text) != is_good)  # type: ignore[misc]
                answer = browser.get(each).text
                assert "an-ended-one" not in answer
                assert f'data-page="{each}' in answer, "the page moves, and so is right again without a reload"


def test_a_port_in_use_is_named_and_without_one_the_next_is_taken(embedded_server: Server) -> None:
    with socket.socket() as taken:
        taken.bind((by_hand.ADDRESS, 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, output = run(embedded_server, "dashboard", "--no-open", "--port", str(port))
        assert (code, f"port {port} cannot be used: Address already in use; choose another --port" in output) == (
            1,
            True,
        )
    with running(embedded_server) as (_, first, _), running(embedded_server) as (_, second, _):
        assert first != second


def test_a_cluster_that_is_down_is_told_as_by_every_command(embedded_server: Server, tmp_path: Path) -> None:
    config = yaml.safe_load(embedded_server.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    result = CliRunner().invoke(main.main, ["dashboard", "--no-open"], env={"TORCHQ_KUBECONFIG": str(path)})
    assert result.exit_code == 1
    assert "the Kubernetes API server https://127.0.0.1:1 does not answer" in result.output


def test_a_local_cluster_needs_no_token_for_a_login(embedded_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.cli.session.Session.is_embedded", True)
    code, output = run(embedded_server, "dashboard", "token")
    assert (code, "a local cluster needs no token" in output) == (1, True)


class FakeBrowser:
    """A browser that notes what it is asked to open."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def open(self, address: str) -> bool:
        self.opened.append(address)
        return True


def test_no_argument_of_a_browser_has_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeBrowser()
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "get", lambda: fake)
    tmp_path.chmod(0o700)
    assert by_hand._open_browser("http://127.0.0.1:8470/open?code=a&b", tmp_path)
    [address] = fake.opened
    assert "code" not in address
    page = Path(unquote(urlsplit(address).path))
    assert 'content="0; url=http://127.0.0.1:8470/open?code=a&amp;b"' in page.read_text()
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("variables", [{}, {"DISPLAY": ":0"}], ids=["no screen", "a browser for terminals"])
def test_a_machine_without_a_browser_is_no_error(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("false"))
    assert not by_hand._open_browser("http://127.0.0.1:8470/", tmp_path)
    assert [*tmp_path.iterdir()] == []
