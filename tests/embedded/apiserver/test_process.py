"""The embedded server as a process: durability after a kill, refusals at start, shutdown."""

import contextlib
import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from crds.api_resources import CRDS, NAMESPACES, Resource
from embedded.apiserver.api_server import ApiServer, running
from embedded.apiserver.http import token
from embedded.layout import Layout
from kube import client, errors
from kube.settings import ConnectionSettings
from tests.support.kube import servers, widgets
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, widget
from tests.support.waiting import SECONDS, patient, until

pytestmark = pytest.mark.servers

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def _start(folder: Path, port: int = 0) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "embedded.apiserver.api_server", "--data", str(folder), "--port", str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def _process(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", Server]]:
    process = _start(folder)
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert "ready at" in line, process.communicate()[1]
        config = json.loads(Layout(folder).kubeconfig.read_text())
        url, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
        tls = servers.trusting(Layout(folder))
        yield process, Server("embedded", url, token, Layout(folder).kubeconfig, tls)
    finally:
        process.kill()
        process.communicate()


def _config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def test_acknowledged_writes_survive_a_kill(tmp_path: Path) -> None:
    answered: list[tuple[str, str]] = []
    with _process(tmp_path) as (process, server):
        assert server.send("POST", CRDS.path(), widgets.DEFINITION)[0] == 201

        def write(writer: int) -> None:
            with contextlib.suppress(OSError, ValueError):
                for number in itertools.count():
                    code, made = server.send("POST", CONFIG_MAPS.path("default"), _config_map(f"w{writer}-{number}"))
                    assert code == 201
                    answered.append((made["metadata"]["name"], made["metadata"]["resourceVersion"]))

        writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        until(lambda: len(answered) >= 200)
        process.send_signal(signal.SIGKILL)
        for writer in writers:
            writer.join()
    with _process(tmp_path) as (_, server):
        _, found = server.send("GET", CONFIG_MAPS.path("default"))
        kept = {(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in found["items"]}
        assert set(answered) <= kept
        newest = max(int(version) for _, version in answered)
        assert int(found["metadata"]["resourceVersion"]) >= newest
        _, made = server.send("POST", WIDGETS.path("default"), widget())
        assert int(made["metadata"]["resourceVersion"]) > newest


def test_watch_resumes_after_a_restart(tmp_path: Path) -> None:
    with _process(tmp_path) as (_, server):
        server.send("POST", CONFIG_MAPS.path("default"), _config_map("old"))
        _, made = server.send("POST", CONFIG_MAPS.path("default"), _config_map("new"))
        version = made["metadata"]["resourceVersion"]
    with _process(tmp_path) as (_, server):
        connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        watch = connected.watch(CONFIG_MAPS, "default", resource_version=version, timeout_seconds=20)
        server.send("POST", CONFIG_MAPS.path("default"), _config_map("newer"))
        assert next(watch).object["metadata"]["name"] == "newer"
        watch.close()
        with pytest.raises(errors.Expired):
            next(connected.watch(CONFIG_MAPS, "default", resource_version="1", timeout_seconds=5))
        connected.close()


def test_server_with_an_open_watch_stops_on_sigterm(tmp_path: Path) -> None:
    with _process(tmp_path) as (process, server):
        connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        start = connected.list(CONFIG_MAPS, "default").resource_version
        watch = connected.watch(CONFIG_MAPS, "default", resource_version=start, timeout_seconds=60)
        process.terminate()
        assert all(event.kind == "BOOKMARK" for event in watch)
        assert process.wait(patient(SECONDS)) == 0
        assert process.stderr
        assert process.stderr.read() == ""
        connected.close()


def test_start_error_names_the_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = _start(tmp_path, port)
        _, complaint = process.communicate(timeout=patient(20))
    assert process.returncode == 1
    assert complaint.count("\n") == 1
    assert f"port {port}" in complaint


def test_second_server_on_a_data_folder_refuses_to_start(tmp_path: Path) -> None:
    with _process(tmp_path):
        second = _start(tmp_path)
        _, complaint = second.communicate(timeout=patient(20))
    assert second.returncode == 1
    assert "another API server uses" in complaint


def test_secret_files_are_private_and_kept_over_restarts(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    with running(layout) as server:
        first = server.token
    with running(layout) as server:
        assert server.token == first
    keys = (layout.key("ca"), layout.key("server"))
    for path in (layout.token, layout.kubeconfig, layout.database, *keys):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_server_refuses_addresses_other_than_loopback(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.com"):
        with pytest.raises(token.NotLoopback):
            ApiServer(Layout(tmp_path), host)


def test_client_connects_with_the_written_kubeconfig(tmp_path: Path) -> None:
    with servers.embedded(tmp_path) as server:
        connected = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig), context=token.CONTEXT))
        assert {item["metadata"]["name"] for item in connected.list(NAMESPACES).items} >= {"default", "kube-system"}
        connected.close()
