"""The metrics of the embedded server: requests by client, and stored objects."""

from pathlib import Path

import pytest

from crds.api_resources import Resource
from embedded.apiserver.http.server_metrics import Metrics
from tests.support.kube import servers

pytestmark = pytest.mark.servers

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def test_requests_are_counted_by_client_verb_and_resource(tmp_path: Path) -> None:
    with servers.embedded(tmp_path) as server:
        path, agent = CONFIG_MAPS.path("default"), {"User-Agent": "someone/1.2 (linux)"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
        server.send("POST", path, body, **agent)
        server.send("POST", path, body, **agent)
        server.send("GET", path, **agent)
        server.send("GET", f"{path}?watch=1&timeoutSeconds=1", **agent)
        server.send("GET", f"{path}/one", **agent)
        server.send("DELETE", f"{path}/none", **agent)
        code, text = server.send("GET", "/metrics")
    assert code == 200
    asked = [line for line in text.splitlines() if 'client="someone"' in line]
    assert asked == [
        f'apiserver_request_total{{client="someone",verb="{verb}",resource="configmaps",subresource=""}} {count}'
        for verb, count in (("CREATE", 2), ("DELETE", 1), ("GET", 1), ("LIST", 1), ("WATCH", 1))
    ]
    assert 'apiserver_refused_total{code="409",reason="AlreadyExists"} 1' in text
    assert 'apiserver_storage_objects{resource="configmaps"} 1' in text
    assert "apiserver_watches 0" in text


def test_metrics_require_the_token(tmp_path: Path) -> None:
    with servers.embedded(tmp_path) as server:
        assert server.send("GET", "/metrics", Authorization="Bearer wrong")[0] == 401


def test_metrics_of_many_clients_are_bounded() -> None:
    metrics = Metrics()
    for number in range(1_000):
        metrics.count_request(f"client-{number}", "GET", "pods", "")
    assert len(metrics.requests) == 101
    assert metrics.requests["others", "GET", "pods", ""] == 900
