"""The representations of the embedded server's answers (tables, metadata only, gzip), and request bodies in
protobuf.
"""

import contextlib
import gzip
import json
import urllib.request
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.api_resources import PODS, Resource
from embedded.apiserver.kinds.printing import ages, pod_columns
from embedded.apiserver.schema import json_paths
from embedded.apiserver.status_errors import StatusError
from embedded.apiserver.wire import encoding, protobuf
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, widget

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-2, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"),
     (10_799, "179m"), (10_800, "3h"), (28_740, "7h59m"), (28_800, "8h"), (172_799, "47h"), (172_800, "2d"),
     (176_400, "2d1h"), (691_200, "8d"), (63_071_999, "729d"), (63_072_000, "2y"), (63_158_400, "2y1d"),
     (252_288_000, "8y")],
)  # fmt: skip
def test_durations_are_written_as_kubectl_does(seconds: float, text: str) -> None:
    assert ages.human(seconds) == text


def test_missing_and_invalid_times_have_their_own_text() -> None:
    assert ages.ago(None, 0) == "<unknown>"
    assert ages.ago("yesterday", 0) == "<invalid>"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".a['b']", [1]),
        (r".a.c\.d", [2]),
        (".l[0].n", ["x"]),
        (".l[-1].n", ["y"]),
        (".l[*].n", ["x", "y"]),
        ('.l[?(@.t=="T")].n', ["y"]),
        (".a.nothing.deeper", []),
        (".l[9].n", []),
        (".a.b.c", []),
    ],
)
def test_column_path_finds_its_values(path: str, found: list[Any]) -> None:
    value = {"a": {"b": 1, "c.d": 2}, "l": [{"n": "x"}, {"n": "y", "t": "T"}]}
    assert json_paths.find(value, path) == found


@pytest.mark.parametrize("path", ["a b", ".a[", ".a[?(@.b>1)]", ".a[x]", "..a"])
def test_unsupported_column_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="has unsupported syntax"):
        json_paths.compile_path(path)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", "Object"),
        ("*/*", "Object"),
        (TABLE, "Table"),
        (f"{PROTOBUF},application/json", "Object"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "Object"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "PartialObjectMetadata"),
        ("application/json;q=0.1, application/json;as=Table;v=v1beta1;g=meta.k8s.io;q=0.9", "Table"),
    ],
)
def test_accept_header_selects_the_form(accept: str, form: str) -> None:
    assert encoding.negotiate(accept).form == form


@pytest.mark.parametrize("accept", [PROTOBUF, "text/html", "application/json;as=Table;v=v9;g=meta.k8s.io"])
def test_unsupported_accept_header_is_not_acceptable(embedded_server: Server, namespace: str, accept: str) -> None:
    code, status = embedded_server.send("GET", CONFIG_MAPS.path(namespace), Accept=accept)
    assert (code, status["reason"]) == (406, "NotAcceptable")


def _rows(table: Any) -> list[Any]:
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    return [row["cells"] for row in table["rows"]]


def test_table_has_pages_and_rows_with_the_requested_object(server: Server, namespace: str) -> None:
    for name in ("a", "b", "c"):
        server.send("POST", WIDGETS.path(namespace), widget(name))
    _, first = server.send("GET", WIDGETS.path(namespace) + "?limit=2", Accept=TABLE)
    assert [cells[0] for cells in _rows(first)] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert {row["object"]["kind"] for row in first["rows"]} == {"PartialObjectMetadata"}
    token = first["metadata"]["continue"]
    _, second = server.send("GET", f"{WIDGETS.path(namespace)}?limit=2&continue={token}", Accept=TABLE)
    assert [cells[0] for cells in _rows(second)] == ["c"]
    path = WIDGETS.path(namespace, "a")
    assert server.send("GET", path + "?includeObject=None", Accept=TABLE)[1]["rows"][0].get("object") is None
    assert server.send("GET", path + "?includeObject=Object", Accept=TABLE)[1]["rows"][0]["object"]["kind"] == "Widget"
    assert server.send("GET", path + "?includeObject=Some", Accept=TABLE)[0] == 400


def test_partial_object_metadata_omits_the_spec(server: Server, namespace: str) -> None:
    server.send("POST", WIDGETS.path(namespace), widget("a"))
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    _, one = server.send("GET", WIDGETS.path(namespace, "a"), Accept=accept)
    assert (one["kind"], one["metadata"]["name"], "spec" in one) == ("PartialObjectMetadata", "a", False)
    listed = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    _, many = server.send("GET", WIDGETS.path(namespace), Accept=listed)
    assert (many["kind"], [item["metadata"]["name"] for item in many["items"]]) == ("PartialObjectMetadataList", ["a"])


def test_large_answer_is_compressed_if_the_client_accepts_gzip(embedded_server: Server, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "x" * 200_000}}
    assert embedded_server.send("POST", CONFIG_MAPS.path(namespace), body)[0] == 201
    for wanted in ("gzip", "identity"):
        request = urllib.request.Request(embedded_server.url + CONFIG_MAPS.path(namespace, "c"))
        request.add_header("Authorization", f"Bearer {embedded_server.token}")
        request.add_header("Accept-Encoding", wanted)
        with urllib.request.urlopen(request, context=embedded_server.tls) as answer:
            raw = answer.read()
            assert (answer.headers["Content-Encoding"] == "gzip") is (wanted == "gzip")
        assert json.loads(gzip.decompress(raw) if wanted == "gzip" else raw)["data"] == body["data"]


def _state(**state: Any) -> dict[str, Any]:
    return {"name": "c", "state": state}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Running", "containerStatuses": [_state(waiting={"reason": "BackOff"})]}, "BackOff"),
        ({"phase": "Failed", "containerStatuses": [_state(terminated={"exitCode": 3})]}, "ExitCode:3"),
        ({"phase": "Failed", "containerStatuses": [_state(terminated={"exitCode": 0, "signal": 9})]}, "Signal:9"),
        ({"phase": "Succeeded", "containerStatuses": [_state(terminated={"reason": "Completed"})]}, "Completed"),
        ({"phase": "Pending", "initContainerStatuses": [_state(running={})]}, "Init:0/1"),
        ({"phase": "Pending", "initContainerStatuses": [_state(terminated={"exitCode": 1})]}, "Init:ExitCode:1"),
        ({"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}, "SchedulingGated"),
    ],
)  # fmt: skip
def test_pod_column_shows_the_status(status: dict[str, Any], word: str) -> None:
    spec = {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}
    assert pod_columns.status_of({"metadata": {}, "spec": spec, "status": status}) == word


def test_pod_column_shows_a_deleted_pod_as_terminating() -> None:
    leaving = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    assert pod_columns.status_of({**leaving, "status": {"phase": "Running"}}) == "Terminating"
    assert pod_columns.status_of({**leaving, "status": {"phase": "Succeeded"}}) == "Succeeded"


def _wire(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


def _body(kind: str, content: bytes) -> bytes:
    return b"k8s\x00" + _wire(1, _wire(1, b"v1") + _wire(2, kind.encode())) + _wire(2, content)


def test_protobuf_bodies_are_read_or_refused(embedded_server: Server, namespace: str) -> None:
    metadata = _wire(1, b"c") + _wire(2, b"") + _wire(11, _wire(1, b"a") + _wire(2, b"b")) + _wire(8, b"")
    content = _wire(1, metadata) + _wire(2, _wire(1, b"key") + _wire(2, b"value")) + _wire(4, 0)
    read = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}},
            "data": {"key": "value"}, "immutable": False}  # fmt: skip
    assert protobuf.read(_body("ConfigMap", content)) == read
    path = CONFIG_MAPS.path(namespace)
    assert embedded_server.send("POST", path, _body("ConfigMap", content), PROTOBUF)[0] == 201
    deletion = _body("DeleteOptions", _wire(1, 0) + _wire(5, b"All"))
    assert protobuf.read(deletion)["gracePeriodSeconds"] == 0
    assert embedded_server.send("DELETE", f"{path}/c", deletion, PROTOBUF)[0] == 200
    assert embedded_server.send("GET", f"{path}/c")[1]["data"] == {"key": "value"}
    assert embedded_server.send("POST", PODS.path(namespace), _body("Pod", content), PROTOBUF)[0] == 415
    for broken in (
        b"",
        b"{}",
        b"k8s\x00\xff",
        _body("ConfigMap", b"\x0a\x7f"),
        _body("ConfigMap", b"\x0a\x02\x0a\x7f"),
    ):
        assert embedded_server.send("POST", path, broken, PROTOBUF)[0] in {400, 415}, broken


@given(st.binary(max_size=60), st.sampled_from(["ConfigMap", "Service", "Secret", "Eviction"]))
def test_any_bytes_in_a_protobuf_body_are_read_or_refused(content: bytes, kind: str) -> None:
    with contextlib.suppress(StatusError):
        assert protobuf.read(_body(kind, content))["kind"] == kind
