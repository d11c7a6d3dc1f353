"""HTTP requests to the embedded server: watch streams, slow readers, limits, kubectl."""

import base64
import json
import os
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import Resource
from embedded.apiserver.http import token
from embedded.apiserver.verbs import watch_streams
from tests.support.kube import servers
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, widget

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def _lines(server: Server, path: str) -> Iterator[dict[str, Any]]:
    request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=30, context=server.tls) as answer:
        for line in answer:
            yield json.loads(line)


def test_watch_without_a_version_starts_with_all_objects(embedded_server: Server, namespace: str) -> None:
    path = WIDGETS.path(namespace)
    for name in ("b", "a"):
        embedded_server.send("POST", path, widget(name))
    for start in ("", "&resourceVersion=0"):
        events = list(_lines(embedded_server, f"{path}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true{start}"))
        assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
        assert [event["object"]["metadata"].get("name") for event in events] == ["a", "b", None]


def test_watch_sends_bookmarks_only_on_request(embedded_server: Server, namespace: str) -> None:
    assert list(_lines(embedded_server, WIDGETS.path(namespace) + "?watch=1&timeoutSeconds=1")) == []


def test_watch_of_a_name_omits_other_objects(embedded_server: Server, namespace: str) -> None:
    path = WIDGETS.path(namespace)
    for name in ("a", "b"):
        embedded_server.send("POST", path, widget(name))
    events = list(_lines(embedded_server, f"{path}?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Da"))
    assert [event["object"]["metadata"]["name"] for event in events] == ["a"]


def test_watch_from_an_expired_version_sends_an_error_event(embedded_server: Server, namespace: str) -> None:
    (event,) = _lines(embedded_server, WIDGETS.path(namespace) + "?watch=1&resourceVersion=99999999")
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_streaming_list_ends_with_a_bookmark(embedded_server: Server, namespace: str) -> None:
    embedded_server.send("POST", WIDGETS.path(namespace), widget())
    query = "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    _, text = embedded_server.send("GET", WIDGETS.path(namespace) + query + "&allowWatchBookmarks=true")
    first, end, *_ = [json.loads(line) for line in text.splitlines()]
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "w")
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_slow_watcher_is_disconnected_and_delays_no_writer(
    embedded_server: Server, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_streams, "_MOST_BYTES", 4 * 1024 * 1024)
    host, _, port = embedded_server.url.removeprefix("https://").rpartition(":")
    path = CONFIG_MAPS.path(namespace)
    assert embedded_server.tls
    with (
        socket.create_connection((host, int(port))) as plain,
        embedded_server.tls.wrap_socket(plain, server_hostname=host) as slow,
    ):
        head = f"GET {path}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {embedded_server.token}\r\n\r\n"
        slow.sendall(head.encode())
        slow.recv(64)
        large = {"text": "x" * 500_000}
        for number in range(40):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}, "data": large}
            assert embedded_server.send("POST", path, body)[0] == 201
        received = 0
        slow.settimeout(20)
        try:
            while piece := slow.recv(1 << 20):
                received += len(piece)
        except ConnectionError:
            pass
        assert received < 40 * 500_000


def test_too_large_body_is_refused(embedded_server: Server, namespace: str) -> None:
    data = {"text": "x" * (4 * 1024 * 1024)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    code, status = embedded_server.send("POST", CONFIG_MAPS.path(namespace), body)
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")


def test_deeply_nested_body_is_accepted_or_refused(embedded_server: Server, namespace: str) -> None:
    for depth in (300, 900, 2000):
        deep = b'{"spec":{"size":1,"loose":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}}"
        embedded_server.send("POST", WIDGETS.path(namespace), widget())
        code, _ = embedded_server.send("PATCH", WIDGETS.path(namespace, "w"), deep, "application/merge-patch+json")
        assert code in {200, 400}


def test_unsupported_options_are_refused_with_an_explanation(embedded_server: Server, namespace: str) -> None:
    path = WIDGETS.path(namespace, "w")
    embedded_server.send("POST", WIDGETS.path(namespace), widget())
    for content_type in ("application/strategic-merge-patch+json", "text/plain"):
        code, status = embedded_server.send("PATCH", path, {"spec": {"size": 2}}, content_type)
        assert code == 415
        assert "application/merge-patch+json" in status["message"]
    assert embedded_server.send("DELETE", path + "?dryRun=Some")[0] == 422
    assert embedded_server.send("GET", WIDGETS.path(namespace) + "?limit=x")[0] == 400
    assert embedded_server.send("GET", WIDGETS.path(namespace) + "?limit=1&continue=forgottenlongago")[0] == 410


def test_create_with_an_unknown_field_returns_a_warning(embedded_server: Server, namespace: str) -> None:
    request = urllib.request.Request(
        embedded_server.url + WIDGETS.path(namespace),
        method="POST",
        data=json.dumps(widget(foo=1)).encode(),
        headers={"Authorization": f"Bearer {embedded_server.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, context=embedded_server.tls) as answer:
        assert answer.headers["Warning"] == '299 - "unknown field \\"spec.foo\\""'


def test_discovery_lists_groups_and_resources(embedded_server: Server) -> None:
    _, groups = embedded_server.send("GET", "/apis")
    assert "example.com" in [group["name"] for group in groups["groups"]]
    _, resources = embedded_server.send("GET", "/apis/example.com/v1")
    names = {resource["name"]: resource for resource in resources["resources"]}
    assert set(names) == {"widgets", "widgets/status", "widgets/scale"}
    assert names["widgets"]["shortNames"] == ["wd"]
    _, core = embedded_server.send("GET", "/api/v1")
    assert {"pods", "pods/log", "pods/binding", "nodes/status"} <= {resource["name"] for resource in core["resources"]}
    assert embedded_server.send("GET", "/version")[1]["major"] == "1"
    assert embedded_server.send("GET", "/apis/nobody")[0] == 404


@pytest.mark.parametrize(
    ("header", "admitted"),
    [
        ("Bearer secret", True),
        ("bearer secret", True),
        ("Basic " + base64.b64encode(b"anybody:secret").decode(), False),
        ("Token secret", False),
        ("Bearer secrets", False),
        ("Bearer \udce4", False),
        ("secret", False),
        ("", False),
    ],
)
def test_authorization_header_must_carry_the_token(header: str, admitted: bool) -> None:
    assert token.admits(header, "secret") is admitted


def test_concurrent_updates_with_preconditions_are_never_lost(embedded_server: Server, namespace: str) -> None:
    embedded_server.send("POST", WIDGETS.path(namespace), widget(size=0))
    path = WIDGETS.path(namespace, "w")

    def count() -> None:
        done = 0
        while done < 10:
            _, read = embedded_server.send("GET", path)
            read["spec"]["size"] += 1
            code, _ = embedded_server.send("PUT", path, read)
            assert code in {200, 409}
            done += code == 200

    writers = [threading.Thread(target=count) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert embedded_server.send("GET", path)[1]["spec"]["size"] == 40


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.servers
def test_kubectl_applies_reads_and_deletes_an_object(tmp_path: Path) -> None:
    with servers.embedded(tmp_path / "data") as server:
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "KUBECONFIG": str(server.kubeconfig)}

        def kubectl(*arguments: str, body: Any = None) -> str:
            command = ["kubectl", *arguments]
            text = json.dumps(body) if body is not None else None
            return subprocess.run(
                command, input=text, env=environment, check=True, capture_output=True, text=True, timeout=60
            ).stdout

        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
        assert "created" in kubectl("apply", "--validate=false", "-f", "-", body=manifest)
        assert "unchanged" in kubectl("apply", "--validate=false", "-f", "-", body=manifest)
        assert json.loads(kubectl("get", "configmap", "c", "-o", "json"))["data"] == {"a": "1"}
        assert "deleted" in kubectl("delete", "configmap", "c")
