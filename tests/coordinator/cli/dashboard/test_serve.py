"""`torchq dashboard serve` as a process: logins, probes, its log, and its end."""

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from coordinator.cli.dashboard import serve
from coordinator.errors import SettingsError
from coordinator.query.remote_queries import NoRecorder
from coordinator.settings import Settings
from tests.support import ports
from tests.support.coordinator.dashboard_site import Browser, messages, secret_of
from tests.support.kube.servers import Server
from tests.support.waiting import patient, until

pytestmark = pytest.mark.servers


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=patient(5)) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.usefixtures("own_signals")
def test_people_log_in_and_a_stop_ends_their_pages_and_the_process(embedded_server: Server) -> None:
    command = [sys.executable, "-m", "coordinator.cli.main", "dashboard", "serve"]
    with ports.reserve() as port, ports.reserve() as probes:
        settings = {"TORCHQ_KUBECONFIG": str(embedded_server.kubeconfig), "TORCHQ_DASHBOARD_PORT": str(port)}
        environment = {**os.environ, **settings, "TORCHQ_METRICS_PORT": str(probes)}
        with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE) as process:
            try:
                until(lambda: is_ready(probes))
                browser = Browser(port)
                assert "not encrypted" in browser.get("/").text
                assert browser.post("/login", {"token": "forged"}).code == 403
                assert browser.post("/login", {"token": embedded_server.token}).code == 303
                page = browser.get("/").text
                assert "verb=" not in page, "actions are off"
                with browser.stream("/", secret_of(page)) as stream:
                    process.send_signal(signal.SIGTERM)
                    assert [line for line in messages(stream) if b"end" in line] == []
                _, log = process.communicate(timeout=patient(30))
            finally:
                process.kill()
    assert process.returncode == 0, log
    assert "login of torchq-local from 127.0.0.1" in log
    assert [secret for secret in (embedded_server.token, *browser.cookies.values()) if secret in log] == []


def test_the_token_for_coordinators_is_read_anew_and_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(SettingsError, match=r"dashboard_token_file: .*there is no such file"):
        serve._own_token(str(file), "")
    for token in ("first-token-of-some-length", "second-token-of-some-length"):
        file.write_text(token + "\n")
        assert serve._own_token(str(file), "") == {"Torchq-Token": token}


def test_without_a_recorder_pages_say_how_to_get_one() -> None:
    with pytest.raises(NoRecorder, match=r"recorder\.enabled"):
        serve._history(Settings(), None)  # type: ignore[arg-type]
