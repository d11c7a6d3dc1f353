"""Hostile requests to the embedded API server: the answer is a Status, the cost is bounded, and other requests are
served at the same time.
"""

import contextlib
import gzip
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crds import generate
from crds.api_resources import CRDS, PODS, TENANT_QUEUES, TORCHJOBS
from embedded.apiserver import api_server as apiserver
from embedded.apiserver.http import listener
from embedded.apiserver.schema.schema import compile_schema
from embedded.apiserver.storage import journal
from embedded.apiserver.storage.journal import Change, Journal
from embedded.apiserver.storage.objects import seal
from embedded.apiserver.verbs import watch_streams
from embedded.layout import Layout
from tests.support.kube import servers
from tests.support.kube.servers import Server

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = TORCHJOBS.path("default")
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
SECONDS = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with servers.embedded(folder) as found:
        for definition in generate.load():
            assert found.send("POST", CRDS.path(), definition)[0] == 201
        assert found.send("POST", MAPS, config_map("there", {"a": "x" * 1000}))[0] == 201
        yield found


def config_map(name: str, data: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a Pod."""
    container = {"name": "c", "image": "x", "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def job(name: str, **spec: Any) -> dict[str, Any]:
    """Return a TorchJob."""
    template = {"spec": {"containers": [{"name": "torch", "image": "x"}]}}
    return {
        "apiVersion": TORCHJOBS.api_version,
        "kind": "TorchJob",
        "metadata": {"name": name},
        "spec": {"torchTaskSpecs": {"Master": {"template": template}}, **spec},
    }


def nested(body: dict[str, Any], levels: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    """Return the body with its "DEEP" replaced by nested values."""
    return json.dumps(body).replace('"DEEP"', opening * levels + "1" + closing * levels).encode()


def refused(answer: tuple[int, Any], *codes: int) -> dict[str, Any]:
    """Check the code and form of a refusal, and return its Status."""
    code, status = answer
    assert code in (codes or range(400, 500)), answer
    assert status["kind"] == "Status"
    assert status["message"]
    assert len(json.dumps(status)) < 200_000
    return dict(status)


DEEP_POD = pod("deep", affinity={"x": "DEEP"})
BODIES: dict[str, tuple[bytes | dict[str, Any], tuple[int, ...]]] = {
    "more than 3 MB": (b" " * (3 * 1024 * 1024 + 1), (413,)),
    "100,000 lists": (b"[" * 100_000 + b"]" * 100_000, (400,)),
    "300 maps": (nested(DEEP_POD, 300), (400,)),
    "900 lists in maps": (nested(DEEP_POD, 900, '[{"a":', "}]"), (400,)),
    "40,000 annotations": (config_map("a", annotations={f"k{n}": "v" for n in range(40_000)}), (422,)),
    "NaN": (b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"x":NaN}', (400,)),
    "infinity": (b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"x":1e309}', (400,)),
    "no UTF-8": (b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"data":{"a":"\xff"}}', (400,)),
    "half a surrogate": (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n"},"data":{"a":"\\ud800"}}',
        (400,),
    ),
    "NUL in the name": (config_map("a\0b"), (422,)),
    "metadata that is a string": (b'{"apiVersion":"v1","kind":"ConfigMap","metadata":"x"}', (400, 422)),
    "nothing": (b"", (400, 422)),
    "null": (b"null", (400, 422)),
    "an empty map": (b"{}", (400, 422)),
}


@pytest.mark.parametrize("case", BODIES)
def test_hostile_body_is_refused(server: Server, case: str) -> None:
    body, codes = BODIES[case]
    path = PODS.path("default") if isinstance(body, bytes) and b'"Pod"' in body else MAPS
    refused(server.send("POST", path, body), *codes)


@pytest.mark.parametrize("number", ["9223372036854775808", "18446744073709551616", "1" * 400, "1e400", "-1", "0.5"])
def test_number_beyond_its_bounds_is_refused(server: Server, number: str) -> None:
    body = json.dumps(job("numbers")).replace('"template"', f'"numTasks":{number},"template"').encode()
    refused(server.send("POST", JOBS, body), 400, 422)


def test_refusal_and_warnings_list_only_some_of_many_unknown_fields(server: Server) -> None:
    body = job("unknown", **{f"u{n}": 1 for n in range(20_000)})
    refused(server.send("POST", JOBS + "?fieldValidation=Strict", body), 400)
    # Each warning is a header, and clients read about 100 headers.
    assert server.send("POST", JOBS + "?dryRun=All", body)[0] == 201


PATCHES: dict[str, tuple[list[dict[str, Any]], tuple[int, ...]]] = {
    "too many operations": ([{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, (413,)),
    "copies that double": (
        [
            {"op": "add", "path": "/data", "value": ["x" * 40]},
            *[{"op": "copy", "from": "/data", "path": "/data/-"}] * 60,
        ],
        (422,),
    ),
    "an object copied into itself": ([{"op": "copy", "from": "", "path": "/data/x"}] * 60, (422,)),
    "additions at growing depth": (
        [{"op": "add", "path": "/data" + "/a" * n, "value": {}} for n in range(1, 600)]
        + [{"op": "test", "path": "/data", "value": 1}],
        (400, 422),
    ),
    "an index of 5,000 digits": (
        [{"op": "add", "path": "/data", "value": [1]}, {"op": "add", "path": "/data/" + "9" * 5000, "value": 1}],
        (422,),
    ),
    "a path of 400,000 steps": ([{"op": "add", "path": "/a" * 400_000, "value": 1}], (422,)),
    "invalid operations": ([{}, {"op": ["x"], "path": {}}], (400, 422)),
}


@pytest.mark.parametrize("case", PATCHES)
def test_hostile_patch_is_refused(server: Server, case: str) -> None:
    operations, codes = PATCHES[case]
    refused(server.send("PATCH", MAPS + "/there", operations, JSON_PATCH), *codes)
    assert server.send("GET", MAPS + "/there")[1]["data"] == {"a": "x" * 1000}


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=" + ",".join(f"!k{n}" for n in range(5000)),
        "labelSelector=" + "a%20" * 2000 + "(",
        "labelSelector=a%3C" + "9" * 6000,
        "fieldSelector=" + "x" * 7000,
        "limit=" + "9" * 5000,
        "limit=x",
        "watch=1&timeoutSeconds=x",
        "labelSelector=" + "x" * 100_000,
    ],
    ids=lambda query: query[:20],
)
def test_hostile_query_is_refused(server: Server, query: str) -> None:
    refused(server.send("GET", f"{MAPS}?{query}"), 400, 410)


@pytest.mark.parametrize(
    "options",
    [
        {"gracePeriodSeconds": 10**30},
        {"gracePeriodSeconds": "x"},
        {"preconditions": 5},
        {"preconditions": {"uid": "other"}},
        {"propagationPolicy": 5},
    ],
    ids=str,
)
def test_deletion_with_hostile_options_is_refused(server: Server, options: dict[str, Any]) -> None:
    refused(server.send("DELETE", MAPS + "/there", options), 400, 409, 422)
    assert server.send("GET", MAPS + "/there")[0] == 200


BOMB = 'a: &a ["l","l","l"]\n' + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


@pytest.mark.parametrize("text", [BOMB, "a: " + "[" * 100_000, "a: b\n" * 100_000], ids=["bomb", "deep", "large"])
def test_hostile_yaml_is_refused(server: Server, text: str) -> None:
    refused(server.send("POST", MAPS, text.encode(), "application/yaml"), 400, 415)


def test_compressed_body_that_is_too_large_or_invalid_is_refused(server: Server) -> None:
    packed = gzip.compress(b" " * 10_000_000)
    refused(server.send("POST", MAPS, packed, **{"Content-Encoding": "gzip"}), 413)
    refused(server.send("POST", MAPS, b"no gzip", **{"Content-Encoding": "gzip"}), 400)


RULES: tuple[Any, ...] = (
    5,
    [{"rule": 5}],
    [{"rule": "(" * 100_000}],
    [{"rule": "self.all(x, " * 300 + "true" + ")" * 300}],
)


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: str(rules)[:20])
def test_hostile_definition_is_refused(server: Server, rules: Any) -> None:
    definition = generate.load()[1]
    definition["metadata"]["name"] = "strange.train.distributed.io"
    definition["spec"]["names"] = {
        "kind": "Strange",
        "listKind": "Stranges",
        "plural": "strange",
        "singular": "strange",
    }
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["x-kubernetes-validations"] = rules
    refused(server.send("POST", CRDS.path(), definition), 400, 422)


@pytest.mark.parametrize("pattern", [r"^(a+)+$", r"^(a|a)*$", r"^([a-z]+\.)*[a-z]+$", "a*a*a*a*a*a*a*b"])
def test_pattern_is_matched_without_backtracking(pattern: str) -> None:
    # A backtracking engine would need years for each of these patterns.
    matches = compile_schema({"type": "string", "pattern": pattern}).limits
    assert matches is not None
    assert matches.matches is not None
    assert not matches.matches("a" * 2000 + "!")


def test_refusal_of_an_invalid_queue_names_the_field(server: Server) -> None:
    body = {
        "apiVersion": TORCHJOBS.api_version,
        "kind": "TenantQueue",
        "metadata": {"name": "q"},
        "spec": {"weight": 0},
    }
    status = refused(server.send("POST", TENANT_QUEUES.path(), body), 422)
    assert "spec.weight" in status["message"]


PATHS = (
    "/",
    "/api",
    "/apis",
    "/version",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/nowhere",
    "/healthz/../api",
    MAPS,
    MAPS + "?watch=1",
    MAPS + "/there",
    PODS.path("default", "x", "log"),
    CRDS.path(),
)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_request_without_the_token_is_unauthorized(server: Server, method: str) -> None:
    for given in ("", "Bearer", "Bearer x", server.token, f"bearer {server.token}x", f"Basic {server.token}"):
        connection = connect(server)
        for path in PATHS:
            connection.request(method, path, headers={"Authorization": given} if given else {})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 401, (method, path, given)
        connection.close()


def test_health_paths_need_no_token(server: Server) -> None:
    connection = connect(server)
    for path in ("/healthz", "/livez", "/readyz"):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b"ok")
    connection.close()


def address(server: Server) -> tuple[str, int]:
    host, _, port = server.url.rpartition("//")[2].rpartition(":")
    return host, int(port)


def connect(server: Server) -> http.client.HTTPSConnection:
    host, port = address(server)
    return http.client.HTTPSConnection(host, port, timeout=SECONDS, context=server.tls)


@contextlib.contextmanager
def raw(server: Server) -> Iterator[ssl.SSLSocket]:
    """Open a TLS connection without an HTTP client."""
    assert server.tls is not None
    with (
        socket.create_connection(address(server), timeout=SECONDS) as plain,
        server.tls.wrap_socket(plain, server_hostname=address(server)[0]) as secure,
    ):
        yield secure


HEAD = b"POST " + MAPS.encode() + b" HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % n for n in range(5000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nX: "
        + b"y" * 12_000
        + b"\r\n\r\n",  # one TLS record, sent completely before the server answers
        HEAD + b"Content-Length: -5\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    ],
    ids=["words", "version", "path", "NUL", "headers", "header", "negative", "two lengths", "length and chunks"],
)
def test_invalid_http_is_answered_with_a_status(server: Server, sent: bytes) -> None:
    with raw(server) as connection:
        answer = b""
        with contextlib.suppress(
            ConnectionError, ssl.SSLEOFError
        ):  # the server may answer before the whole request is sent
            connection.sendall(sent)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert json.loads(body)["kind"] == "Status"


def test_connections_without_the_token_are_closed_at_the_deadline(
    folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ANONYMOUS_SECONDS", 0.2)
    with raw(server) as silent, raw(server) as slow, raw(server) as known:
        known.sendall(
            b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n\r\n"
        )
        assert known.recv(100).startswith(b"HTTP/1.1 200")
        slow.sendall(HEAD + b"Content-Length: 500\r\n")
        for connection in (silent, slow):
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100) == b""
        known.sendall(
            b"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + server.token.encode() + b"\r\n\r\n"
        )
        assert known.recv(100)


def test_server_listens_on_loopback_only(server: Server) -> None:
    _, port = address(server)
    listening = [
        fields[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(table).exists()
        for fields in map(str.split, Path(table).read_text().splitlines()[1:])
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
    ]
    assert [each.partition(":")[0] for each in listening] == ["0100007F"]
    with pytest.raises(ValueError, match="loopback"):
        apiserver.ApiServer(Layout(Path("nowhere")), host="0.0.0.0")


def test_files_of_the_server_are_private(folder: Path, server: Server) -> None:
    assert folder.stat().st_mode & 0o077 == 0
    secret = [folder / "token", folder / "kubeconfig", folder / "objects.sqlite", *folder.glob("tls/*.key")]
    assert [path.name for path in secret if path.stat().st_mode & 0o077] == []


def test_slow_watchers_do_not_delay_other_watchers(server: Server) -> None:
    """The test opens sixteen watches that read nothing, and one watch that reads and receives all events."""
    ask = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(raw(server)).sendall(ask)
        reader = stack.enter_context(raw(server))
        reader.sendall(ask)
        for number in range(20):
            assert server.send("POST", MAPS, config_map(f"flood-{number}", {"a": "x" * 300_000}))[0] == 201
        seen = b""
        while b"flood-19" not in seen[-400_000:]:
            piece = reader.recv(1 << 20)
            assert piece
            seen += piece
    assert server.send("GET", MAPS + "/flood-19")[0] == 200


def stored(version: int, size: int = 10) -> Change:
    """Return a change of an object of this size."""
    manifest = {"metadata": {"name": "a", "uid": "u"}, "data": "x" * size}
    return Change("MODIFIED", seal(manifest, version), None)


def test_journal_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_BYTES", 5000)
    kept = Journal(0)
    for version in range(1, 11):
        kept.publish(stored(version, 1000))
    assert [change.object.version for change in kept.since(6, 10)] == [7, 8, 9, 10]
    assert len(kept) == 4


def test_large_watch_event_is_sent_in_pieces() -> None:
    raw_bytes = b"{" + b" " * (3 * watch_streams._PIECE) + b"}"
    parts = list(watch_streams._parts("ADDED", raw_bytes))
    assert max(map(len, parts)) <= watch_streams._PIECE
    assert b"".join(parts) == b'{"type":"ADDED","object":' + raw_bytes + b"}\n"
