"""Strange numbers, words and bytes in each part of a request that a client writes. The server answers or refuses, and
never fails with an internal error.

One rule: each value of the table of values is tried in each place of the table of places. So a new place is tried with
all values.
"""

import json
import logging
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crds import generate
from crds.api_resources import CRDS, NODES, PODS, TORCHJOBS
from tests.support.fuzz.raw import connect, exchange
from tests.support.kube import servers
from tests.support.kube.servers import Server

MAPS = "/api/v1/namespaces/default/configmaps"
POD = PODS.path("default", "there")
NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "+1",
        "00",
        "-0",
        " 1",
        "1 ",
        "1_0",
        "0x10",
        "1e3",
        "1e999",
        "1.0",
        "NaN",
        "inf",
        "",
        "x",
        "null",
    ),
    *(str(2**31), str(2**32), str(2**63 - 1), str(2**63), str(-(2**63) - 1), str(2**64 - 1), str(2**64), "9" * 19),
    *("9" * 4300, "9" * 5000, "0" * 5000, "0" * 4999 + "1", "-" + "9" * 5000, "9" * 20_000),
    *("²", "٣", "٣٤٥", "१", "①", "Ⅷ", "1\u0661", "\U0001d7d7", "1\0", "1\n2", "\ufeff1", "\u20001", "a,b", "%", "true"),
)
RAW = ("%ff", "%ed%a0%80", "%00", "%", "%zz", "%c0%80", "+", "%F0%9F", "\u00e9")
"""Parts of a URL that are sent without quoting."""
READS: dict[str, str] = {
    "a list's resourceVersion": MAPS + "?resourceVersion={}",
    "the version of an exact list": MAPS + "?resourceVersionMatch=Exact&resourceVersion={}",
    "the version of a list not older": MAPS + "?resourceVersionMatch=NotOlderThan&resourceVersion={}",
    "an object's resourceVersion": MAPS + "/there?resourceVersion={}",
    "a watch's resourceVersion": MAPS + "?watch=1&timeoutSeconds=1&resourceVersion={}",
    "resourceVersionMatch": MAPS + "?resourceVersion=1&resourceVersionMatch={}",
    "limit": MAPS + "?limit={}",
    "continue": MAPS + "?limit=1&continue={}",
    "a list's timeoutSeconds": MAPS + "?timeoutSeconds={}",
    "watch": MAPS + "?timeoutSeconds=1&watch={}",
    "sendInitialEvents": MAPS + "?watch=1&timeoutSeconds=1&resourceVersionMatch=NotOlderThan&sendInitialEvents={}",
    "labelSelector": MAPS + "?labelSelector={}",
    "a label's bound": MAPS + "?labelSelector=" + quote("a>") + "{}",
    "fieldSelector": MAPS + "?fieldSelector=metadata.name%3D{}",
    "tailLines": POD + "/log?tailLines={}",
    "limitBytes": POD + "/log?limitBytes={}",
    "sinceSeconds": POD + "/log?sinceSeconds={}",
    "sinceTime": POD + "/log?sinceTime={}",
    "container": POD + "/log?container={}",
    "previous": POD + "/log?previous={}",
    "pretty": MAPS + "?pretty={}",
    "includeObject": MAPS + "?includeObject={}",
    "a name": MAPS + "/{}",
    "a namespace": "/api/v1/namespaces/{}/pods",
    "a resource": "/api/v1/namespaces/default/{}",
    "a version": "/api/{}/pods",
    "a group": "/apis/{}/v1",
    "a subresource": POD + "/{}",
    "a path": "/{}",
    "an OpenAPI path": "/openapi/v3/{}",
}
WRITES: dict[str, tuple[str, str]] = {
    "gracePeriodSeconds": ("DELETE", MAPS + "/none?gracePeriodSeconds={}"),
    "dryRun": ("DELETE", MAPS + "/none?dryRun={}"),
    "propagationPolicy": ("DELETE", MAPS + "/none?propagationPolicy={}"),
    "orphanDependents": ("DELETE", MAPS + "/none?orphanDependents={}"),
    "the grace of a collection": ("DELETE", MAPS + "?labelSelector=none%3Dnone&gracePeriodSeconds={}"),
    "a created object's dryRun": ("POST", MAPS + "?dryRun={}"),
    "fieldValidation": ("POST", MAPS + "?dryRun=All&fieldValidation={}"),
    "fieldManager": ("POST", MAPS + "?dryRun=All&fieldManager={}"),
    "force": ("PATCH", MAPS + "/there?dryRun=All&force={}"),
}
WORDS = ("\xff\xfe", "a/\xff", "bytes=0-", ";;;=", '"', "a/b;q=x", "*/*;q=9" * 100, "gzip;q=1e999",
         "application/json;as=Table;v=v1;g=" + "x" * 500)  # fmt: skip
HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent", "Range", "Expect", "If-Match", "Host", "Origin",
           "Content-Encoding", "Connection", "Upgrade", "X-Forwarded-For")  # fmt: skip
BODIES: dict[str, tuple[str, str, str]] = {
    "a deletion's grace": ("DELETE", MAPS + "/none", '{"gracePeriodSeconds":$}'),
    "a deletion's uid": ("DELETE", MAPS + "/there", '{"preconditions":{"uid":$,"resourceVersion":"0x"}}'),
    "a deletion's version": ("DELETE", MAPS + "/there?dryRun=All", '{"preconditions":{"resourceVersion":$}}'),
    "an eviction's grace": ("POST", POD + "/eviction?dryRun=All", '{"deleteOptions":{"gracePeriodSeconds":$}}'),
    "an object's version": ("PUT", MAPS + "/there?dryRun=All", '{"metadata":{"name":"there","resourceVersion":$}}'),
    "a new object's version": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","resourceVersion":$}}'),
    "a patch's version": ("PATCH", MAPS + "/there?dryRun=All", '{"metadata":{"resourceVersion":$}}'),
    "a generation": ("PATCH", MAPS + "/there?dryRun=All", '{"metadata":{"generation":$}}'),
    "a name": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":$}}'),
    "a made-up name": ("POST", MAPS + "?dryRun=All", '{"metadata":{"generateName":$}}'),
    "a creation time": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","creationTimestamp":$}}'),
    "a label": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","labels":{"a":$}}}'),
    "a finalizer": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","finalizers":[$]}}'),
    "an owner": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","ownerReferences":[{"uid":$}]}}'),
    "managed fields": ("POST", MAPS + "?dryRun=All", '{"metadata":{"name":"a","managedFields":[{"time":$}]}}'),
    "a Secret's data": ("POST", "/api/v1/namespaces/default/secrets?dryRun=All",
                        '{"metadata":{"name":"a"},"data":{"a":$}}'),
    "a grace of pods": ("POST", PODS.path("default") + "?dryRun=All", '{"metadata":{"name":"a"},"spec":'
                        '{"terminationGracePeriodSeconds":$,"containers":[{"name":"a","image":"b"}]}}'),
    "a request": ("POST", PODS.path("default") + "?dryRun=All", '{"metadata":{"name":"a"},"spec":'
                  '{"containers":[{"name":"a","image":"b","resources":{"requests":{"cpu":$}}}]}}'),
    "a port": ("POST", PODS.path("default") + "?dryRun=All", '{"metadata":{"name":"a"},"spec":'
               '{"containers":[{"name":"a","image":"b","ports":[{"containerPort":$}]}]}}'),
    "a pod's status": ("PATCH", POD + "/status?dryRun=All", '{"status":{"containerStatuses":[{"name":"c","ready":true,'
                       '"image":"","imageID":"","restartCount":$}]}}'),
    "a node's capacity": ("POST", NODES.path() + "?dryRun=All",
                          '{"metadata":{"name":"a"},"status":{"capacity":{"cpu":$}}}'),
    "a number of tasks": ("POST", TORCHJOBS.path("default") + "?dryRun=All",
                          '{"apiVersion":"train.distributed.io/v1alpha1","kind":"TorchJob","metadata":{"name":"a"},'
                          '"spec":{"torchTaskSpecs":{"Worker":{"numTasks":$,"template":{}}}}}'),
    "a backoffLimit": ("POST", TORCHJOBS.path("default") + "?dryRun=All",
                       '{"apiVersion":"train.distributed.io/v1alpha1","kind":"TorchJob","metadata":{"name":"a"},'
                       '"spec":{"backoffLimit":$,"torchTaskSpecs":{"Worker":{"template":{}}}}}'),
    "a scale": ("PUT", TORCHJOBS.path("default", "there", "scale") + "?dryRun=All",
                '{"metadata":{"name":"there"},"spec":{"replicas":$}}'),
    "a lease": ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All",
                '{"metadata":{"name":"a"},"spec":{"leaseDurationSeconds":$}}'),
    "a lease's time": ("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All",
                       '{"metadata":{"name":"a"},"spec":{"renewTime":$}}'),
    "a priority": ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses?dryRun=All",
                   '{"metadata":{"name":"a"},"value":$}'),
    "an event's count": ("POST", "/api/v1/namespaces/default/events?dryRun=All",
                         '{"metadata":{"name":"a"},"involvedObject":{},"count":$,"firstTimestamp":$}'),
    "a whole body": ("POST", MAPS + "?dryRun=All", "$"),
}  # fmt: skip
VALUES = (
    *(
        "1e999",
        "-1e999",
        "NaN",
        "Infinity",
        "1" * 400,
        "1" * 5000,
        "-" + "9" * 5000,
        "1e-999",
        "0.1",
        "-0.0",
        "-1",
        "0",
    ),
    *("9223372036854775808", "18446744073709551616", "true", "null", "[]", "{}", '""', '"x"', '"1e999"', '"9999"'),
    *(
        '"' + "9" * 5000 + '"',
        '"²"',
        '"٣"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\u0000"',
        '"\xed"',
        '"0001-01-01T00:00:00Z"',
    ),
    *(
        '"9999-12-31T23:59:59-23:59"',
        '"0001-01-01T00:00:00+23:59"',
        "[" * 600 + "]" * 600,
        '{"a":' * 600 + "1" + "}" * 600,
    ),
    *('"' + "a" * 300 + '"', "01", "+1", "1.", ".5", "1e", "0x1"),
)
KINDS_OF_PATCH = tuple(
    f"application/{kind}"
    for kind in ("merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
)
ON_PURPOSE = ("resourceVersion should not be set on objects to be created",)
"""Messages of refusals that kube-apiserver also answers with the code 500."""
Ask = Callable[..., tuple[int, bytes]]
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers.embedded(tmp_path_factory.mktemp("parameters") / "data") as found:
        for definition in generate.load():
            assert found.send("POST", CRDS.path(), definition)[0] == 201
        assert found.send("POST", MAPS, {"metadata": {"name": "there"}})[0] == 201
        spec = {"containers": [{"name": "c", "image": "x"}]}
        assert found.send("POST", PODS.path("default"), {"metadata": {"name": "there"}, "spec": spec})[0] == 201
        tasks = {name: {"numTasks": 1, "template": {"spec": spec}} for name in ("Master", "Worker")}
        job: dict[str, Any] = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "metadata": {"name": "there"}}
        job["spec"] = {"torchElasticPolicy": {}, "torchTaskSpecs": tasks}
        assert found.send("POST", TORCHJOBS.path("default"), job)[0] == 201
        yield found


@pytest.fixture(scope="module")
def connection(server: Server) -> Iterator[Ask]:
    """Yield a function that sends a request on a reused connection and returns the answer."""
    kept: list[ssl.SSLSocket] = []

    def ask(method: str, target: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        sent = {"Host": "x", "Authorization": f"Bearer {server.token}", "Content-Length": str(len(body)), **headers}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name.replace('_', '-')}: {text}" for name, text in sent.items())]
        text = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
        if not kept:
            kept.append(connect(server))
        try:
            code, answer, stays = exchange(kept[0], text)
        except OSError:  # the server closed the connection after the previous answer
            kept.pop().close()
            kept.append(connect(server))
            code, answer, stays = exchange(kept[0], text)
        if not stays:
            kept.pop().close()
        return code, answer

    yield ask
    for each in kept:
        each.close()


@pytest.fixture(autouse=True)
def nothing_failed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail the test if the server logged an error. The server logs the traceback of each unexpected exception as an
    error.
    """
    yield
    for phase in ("setup", "call"):
        assert [each.getMessage() for each in caplog.get_records(phase) if each.levelno >= logging.ERROR] == []


class Judge:
    """Collects wrong answers, so that a test reports all of them together."""

    def __init__(self) -> None:
        self.wrong: list[tuple[Any, ...]] = []

    def __call__(self, answer: tuple[int, bytes], *asked: str) -> None:
        code, body = answer
        fine = code < 500 or code == 504 or any(text.encode() in body for text in ON_PURPOSE)
        if not fine or (code >= 400 and len(body) > 64 * 1024):
            self.wrong.append((*(each[:60] for each in asked), code, body[:300]))


@pytest.fixture
def judged() -> Iterator[Judge]:
    judge = Judge()
    yield judge
    assert judge.wrong == []


@pytest.mark.parametrize("place", READS)
def test_read_with_a_strange_parameter_is_answered_or_refused(connection: Ask, judged: Judge, place: str) -> None:
    for value in NUMBERS:
        if "?" not in READS[place] and len(value) > 8000:
            continue
        judged(connection("GET", READS[place].format(quote(value, safe=""))), place, value)
    for value in RAW:
        judged(connection("GET", READS[place].format(value)), place, value)


@pytest.mark.parametrize("place", WRITES)
def test_write_with_a_strange_option_is_answered_or_refused(connection: Ask, judged: Judge, place: str) -> None:
    method, target = WRITES[place]
    for value in (*map(quote, NUMBERS), *RAW):
        headers = {"Content_Type": KINDS_OF_PATCH[0]} if method == "PATCH" else {}
        body = b"" if method == "DELETE" else b'{"metadata":{"name":"a"}}'
        judged(connection(method, target.format(value), body, **headers), place, value)


@pytest.mark.parametrize("header", HEADERS)
def test_request_with_a_strange_header_is_answered_or_refused(
    server: Server, connection: Ask, judged: Judge, header: str
) -> None:
    texts = [each.encode().decode("latin-1") for each in NUMBERS if len(each) < 8000]
    for value in (*texts, *WORDS):
        if any(ord(letter) < 32 for letter in value):
            continue
        for method, target, body in (("GET", MAPS, b""), ("POST", MAPS + "?dryRun=All", b'{"metadata":{"name":"a"}}'),
                                     ("PATCH", MAPS + "/there?dryRun=All", b"{}")):  # fmt: skip
            judged(connection(method, target, body, **{header: value}), f"{method} {header}", value)
    assert server.send("GET", "/metrics")[0] == 200


@pytest.mark.parametrize("length", [*(each for each in NUMBERS if len(each) < 8000 and each.isprintable()), "2, 2"])
def test_request_with_an_invalid_content_length_is_refused(server: Server, length: str) -> None:
    if length in ("0", "1", "-0", "00", " 1", "1 ", "+1"):
        pytest.skip("is a length, or is trimmed to one")
    if length.isascii() and length.isdigit() and len(length) < 5000:
        pytest.skip("is a body that is yet to come")
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
    with connect(server) as stream:
        code, body, _ = exchange(stream, f"{head}Content-Length: {length}\r\n\r\n{{}}".encode())
    assert 400 <= code < 500, (length[:40], code, body)


@pytest.mark.parametrize("place", BODIES)
def test_body_with_a_strange_value_is_answered_or_refused(connection: Ask, judged: Judge, place: str) -> None:
    method, target, text = BODIES[place]
    for value in VALUES:
        body = text.replace("$", value).encode("latin-1" if "\xed" in value else "utf-8")
        for kind in KINDS_OF_PATCH if method == "PATCH" else ("application/json", "application/yaml"):
            where = target + ("&fieldManager=a" if "apply" in kind else "")
            judged(connection(method, where, body, Content_Type=kind), f"{place} {kind}", value)


@quick
@given(place=st.sampled_from([*READS]), value=st.text(max_size=30) | st.binary(max_size=20) | st.integers().map(str))
def test_read_with_any_text_is_answered_or_refused(
    connection: Ask, judged: Judge, place: str, value: str | bytes
) -> None:
    text = quote(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value, safe="")
    judged(connection("GET", READS[place].format(text)), place, text)


def test_refusal_of_a_resource_version_explains_the_problem(server: Server) -> None:
    for path in (
        MAPS + "?resourceVersion={}",
        MAPS + "/there?resourceVersion={}",
        MAPS + "?watch=1&resourceVersion={}",
    ):
        for value in ("9" * 5000, "²", "٣", "-1"):
            code, status = server.send("GET", path.format(quote(value)))
            assert (code, status["reason"]) == (400, "BadRequest"), (path, value[:9], status)
            assert "resource" in status["message"].lower()
            assert len(json.dumps(status)) < 1000


@quick
@given(body=st.binary(max_size=200))
def test_any_bytes_as_protobuf_are_answered_or_refused(connection: Ask, judged: Judge, body: bytes) -> None:
    for sent in (body, b"k8s\0" + body):
        answer = connection("POST", MAPS + "?dryRun=All", sent, Content_Type="application/vnd.kubernetes.protobuf")
        judged(answer, "protobuf", repr(sent))
