"""The client against a scripted server: its requests, its results, and the error for each kind of failure."""

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from crds.api_resources import NODES, PODS, TORCHJOBS
from kube import client, errors
from kube.api import WatchEvent
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings, RetrySettings
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, ScriptedServer, listing, pod, status
from tests.support.waiting import SECONDS

FAST = RetrySettings(attempts=3, base_seconds=0.001, cap_seconds=0.002)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted.running() as running:
        yield running


@pytest.fixture
def cluster(server: ScriptedServer, tmp_path: Path) -> Iterator[KubernetesCluster]:
    path = scripted.kubeconfig(tmp_path, server.url)
    connected = client.connect(ConnectionSettings(kubeconfig=str(path), retries=FAST, page_size=2, read_timeout=5))
    yield connected
    connected.close()


def test_get_returns_the_object_and_sends_token_and_user_agent(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    server.play(Answer(body=pod("p")))
    assert cluster.get(PODS, "p", "a")["metadata"]["name"] == "p"
    request = server.requests[0]
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/a/pods/p")
    assert request.headers["Authorization"] == "Bearer a-token"
    assert request.headers["User-Agent"] == "torchq"


def test_client_reuses_its_connection_after_errors(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.play(Answer(body=pod("p")), status(404, "NotFound", name="q"), status(500), Answer(body=pod("p")), listing())
    cluster.get(PODS, "p", "a")
    with pytest.raises(errors.NotFound):
        cluster.get(PODS, "q", "a")
    cluster.get(PODS, "p", "a")
    with cluster.watch(PODS, resource_version="1") as events:
        assert list(events) == []
    assert len({request.connection for request in server.requests}) == 1


def test_create_sends_strict_validation_and_uses_the_namespace_of_the_object(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    server.play(Answer(201, pod("p")), Answer(201, pod("p")))
    cluster.create(PODS, pod("p"))
    cluster.create(PODS, pod("p"), "a", dry_run=True)
    first, second = server.requests
    assert (first.method, first.path, first.query) == (
        "POST",
        "/api/v1/namespaces/a/pods",
        {"fieldValidation": "Strict"},
    )
    assert first.headers["Content-Type"] == "application/json"
    assert first.body == pod("p")
    assert second.query == {"fieldValidation": "Strict", "dryRun": "All"}


def test_patch_with_a_mapping_sends_a_merge_patch_with_the_resource_version(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    server.play(Answer(body={}))
    change = {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
    cluster.patch(TORCHJOBS, "j", change, "a", subresource="status", resource_version="7")
    request = server.requests[0]
    assert request.path.endswith("/namespaces/a/torchjobs/j/status")
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert request.body == {**change, "metadata": {"labels": {"x": "y"}, "resourceVersion": "7"}}
    assert change["metadata"] == {"labels": {"x": "y"}}


def test_patch_with_a_sequence_sends_a_json_patch(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.play(Answer(body={}))
    cluster.patch(NODES, "n", [{"op": "remove", "path": "/spec/x"}])
    assert server.requests[0].path == "/api/v1/nodes/n"
    assert server.requests[0].headers["Content-Type"] == "application/json-patch+json"
    with pytest.raises(ValueError, match="merge patch only"):
        cluster.patch(NODES, "n", [], resource_version="7")


def test_delete_sends_propagation_policy_and_preconditions(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.play(Answer(body={}))
    cluster.delete(PODS, "p", "a", uid="u", grace_period_seconds=0)
    assert server.requests[0].body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
    }


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2Fb"])
def test_client_rejects_names_that_would_change_the_path(
    server: ScriptedServer, cluster: KubernetesCluster, name: str
) -> None:
    with pytest.raises(errors.Invalid) as raised:
        cluster.delete(PODS, name, "a")
    assert raised.value.causes[0].field == "metadata.name"
    with pytest.raises(errors.Invalid):
        cluster.get(PODS, "p", name)
    assert server.requests == []


def test_list_reads_all_pages(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    bare = {"metadata": {"name": "c"}}
    server.play(listing(pod("a"), pod("b"), resource_version="9", token="next"), listing(bare, resource_version="9"))
    found = cluster.list(PODS, "a", label_selector="x=y,z", field_selector="spec.nodeName=n")
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b", "c"]
    assert found.items[2]["kind"] == "Pod"
    assert found.resource_version == "9"
    selectors = {"labelSelector": "x=y,z", "fieldSelector": "spec.nodeName=n", "limit": "2"}
    assert [request.query for request in server.requests] == [selectors, {**selectors, "continue": "next"}]


def test_list_starts_over_when_pages_expire_and_finally_reads_without_pages(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    page, gone = listing(pod("a"), token="t"), status(410, "Expired")
    server.play(page, gone, page, gone, listing(pod("b"), pod("c"), pod("d"), resource_version="5"))
    assert len(cluster.list(PODS).items) == 3
    assert "limit" not in server.requests[-1].query
    server.play(page, gone)
    with pytest.raises(errors.Expired):
        list(cluster.pages(PODS))


def test_watch_yields_events_and_bookmarks(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}
    server.play(Answer(lines=[{"type": "ADDED", "object": pod("p")}, b"\n", bookmark]))
    with cluster.watch(PODS, "a", resource_version="5", label_selector="l", timeout_seconds=30) as events:
        assert [(event.kind, event.object["metadata"]["resourceVersion"]) for event in events] == [
            ("ADDED", "1"),
            ("BOOKMARK", "8"),
        ]
    assert server.requests[0].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "30",
        "labelSelector": "l",
    }


def test_watch_reads_events_that_are_split_across_chunks(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    text = (
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n{"type":"DELETED","object":{"metadata":{"name":"b"}}}\n'
    )
    server.play(Answer(lines=[text[i : i + 7] for i in range(0, len(text), 7)]))
    assert [event.kind for event in cluster.watch(PODS, resource_version="1")] == ["ADDED", "DELETED"]


def test_watch_raises_expired_for_a_410_response_or_error_event(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    server.play(Answer(410, gone), Answer(lines=[{"type": "ERROR", "object": gone}], hold=threading.Event()))
    with pytest.raises(errors.Expired, match="too old"):
        cluster.watch(PODS, resource_version="1")
    events = cluster.watch(PODS, resource_version="1")
    with pytest.raises(errors.Expired, match="too old"):
        next(events)
    assert events._response.closed


def test_watch_raises_unreachable_when_the_connection_breaks(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    server.play(Answer(lines=[{"type": "ADDED", "object": pod("p")}, b'{"type":"ADD'], cut=True))
    events = cluster.watch(PODS, resource_version="1")
    assert next(events).kind == "ADDED"
    with pytest.raises(
        errors.Unreachable, match=f"{server.url} does not answer: the connection broke within an answer"
    ):
        next(events)


def test_watch_can_be_closed_from_another_thread(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    never = threading.Event()
    server.play(Answer(lines=[{"type": "ADDED", "object": pod("p")}], hold=never))
    events = cluster.watch(PODS, resource_version="1")
    seen: list[WatchEvent] = []
    reader = threading.Thread(target=lambda: seen.extend(events))
    reader.start()
    server.wait_requests(1)
    events.close()
    reader.join(SECONDS)
    assert not reader.is_alive()
    assert list(events) == []


def test_logs_yields_the_log_in_pieces(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.play(Answer(lines=[b"one\n", b"two\n"]))
    with cluster.logs("p", "a", "main", follow=True) as pieces:
        assert b"".join(pieces) == b"one\ntwo\n"
    assert server.requests[0].path == "/api/v1/namespaces/a/pods/p/log"
    assert server.requests[0].query == {"container": "main", "follow": "true"}


@pytest.mark.parametrize(
    ("answer", "expected", "says"),
    [
        (status(400, "BadRequest", "bad"), errors.Invalid, "bad"),
        (status(401, "Unauthorized"), errors.Unauthorized, "credentials"),
        (status(401, "", "no token", name="torchq-recorder"), errors.Unauthorized, "get pods .*: no token$"),
        (status(403, "Forbidden", "no"), errors.Forbidden, r"get pods 'p' in namespace a: no"),
        (status(404, "NotFound", 'pods "p" not found', name="p"), errors.NotFound, '^pods "p" not found$'),
        (Answer(404, b"404 page not found"), errors.NotFound, "torchq crds"),
        (status(409, "AlreadyExists", "twice"), errors.AlreadyExists, "twice"),
        (status(409, "Conflict", "changed"), errors.Conflict, "changed"),
        (status(410, "Gone"), errors.Expired, "Gone"),
        (status(422, "Invalid", "wrong"), errors.Invalid, "wrong"),
        (status(429, "TooManyRequests"), errors.TooManyRequests, "overloaded"),
        (Answer(502, b"<html>proxy</html>"), errors.ServerError, "502: <html>proxy"),
        (Answer(302, b""), errors.ClusterError, "302"),
        (Answer(200, b"<html>log in</html>"), errors.ServerError, "not answer with JSON"),
        (Answer(200, b"[]"), errors.ServerError, "not answer with an object"),
        (Answer(0), errors.Unreachable, "does not answer"),
    ],
)
def test_each_failed_answer_raises_its_error(
    server: ScriptedServer, cluster: KubernetesCluster, answer: Answer, expected: type[Exception], says: str
) -> None:
    server.otherwise = answer
    with pytest.raises(expected, match=says) as raised:
        cluster.get(PODS, "p", "a")
    assert type(raised.value) is expected
    assert "a-token" not in str(raised.value)


def test_invalid_error_lists_the_wrong_fields(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    cause = {"field": "spec.containers", "message": "Required value", "reason": "FieldValueRequired"}
    server.play(status(422, "Invalid", "wrong", causes=[cause]))
    server.play(status(400, "BadRequest", 'strict decoding error: unknown field "spec.foo", duplicate field "spec.x"'))
    with pytest.raises(errors.Invalid) as raised:
        cluster.create(PODS, pod("p"))
    assert raised.value.causes == (errors.FieldCause("spec.containers", "Required value"),)
    with pytest.raises(errors.Invalid) as raised:
        cluster.create(PODS, pod("p"))
    assert raised.value.causes == (
        errors.FieldCause("spec.foo", "unknown field"),
        errors.FieldCause("spec.x", "duplicate field"),
    )


@pytest.mark.parametrize(
    "failure", [status(429), status(503), Answer(0), Answer(body=pod("p"), cut=True)], ids=["429", "503", "cut", "half"]
)
def test_client_retries_after_a_temporary_failure(
    server: ScriptedServer, cluster: KubernetesCluster, failure: Answer
) -> None:
    server.play(failure, failure, Answer(body=pod("p")))
    assert cluster.get(PODS, "p", "a") == pod("p")
    assert len(server.requests) == 3


def test_retried_create_raises_already_exists_if_the_first_answer_was_lost(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    server.play(Answer(0), status(409, "AlreadyExists"))
    with pytest.raises(errors.AlreadyExists):
        cluster.create(PODS, pod("p"))


def test_client_does_not_retry_requests_that_are_not_repeatable(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    nameless = {"metadata": {"generateName": "p-", "namespace": "a"}}
    server.play(Answer(0), status(500))
    with pytest.raises(errors.Unreachable):
        cluster.create(PODS, nameless)
    with pytest.raises(errors.ServerError):
        cluster.patch(PODS, "p", [{"op": "add", "path": "/x/-", "value": 1}], "a")
    assert len(server.requests) == 2


@pytest.mark.servers
def test_unreachable_error_names_the_server(tmp_path: Path) -> None:
    path = scripted.kubeconfig(tmp_path, "http://127.0.0.1:1")
    unreachable = client.connect(ConnectionSettings(kubeconfig=str(path), retries=FAST))
    with pytest.raises(errors.Unreachable, match=r"http://127\.0\.0\.1:1 does not answer: Connection refused"):
        unreachable.get(PODS, "p", "a")


def test_get_times_out_when_the_server_does_not_answer(server: ScriptedServer, tmp_path: Path) -> None:
    never = threading.Event()
    server.otherwise = Answer(hold=never)
    path = scripted.kubeconfig(tmp_path, server.url)
    cluster = client.connect(ConnectionSettings(kubeconfig=str(path), retries=FAST, read_timeout=0.05))
    with pytest.raises(errors.Unreachable, match="timed out"):
        cluster.get(PODS, "p", "a")
    never.set()
    cluster.close()


def test_client_waits_as_long_as_retry_after_says(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    busy = status(429)
    server.play(Answer(429, busy.body, {"Retry-After": "0.2"}), Answer(body=pod("p")))
    began = time.monotonic()
    cluster.get(PODS, "p", "a")
    assert time.monotonic() - began >= 0.2


def test_close_ends_the_wait_before_a_retry(
    server: ScriptedServer,
    cluster: KubernetesCluster,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.otherwise = Answer(429, status(429).body, {"Retry-After": "25"})
    raised: list[Exception] = []
    waiting = threading.Event()
    caplog.set_level(logging.DEBUG, "kube.transport")
    notice = logging.Handler()
    monkeypatch.setattr(notice, "emit", lambda _: waiting.set())
    monkeypatch.setattr(logging.getLogger("kube.transport"), "handlers", [notice])

    def ask() -> None:
        try:
            cluster.get(PODS, "p", "a")
        except errors.TooManyRequests as e:
            raised.append(e)

    asking = threading.Thread(target=ask)
    asking.start()
    assert waiting.wait(SECONDS)
    cluster.close()
    asking.join(SECONDS)
    assert raised
    assert len(server.requests) == 1


def test_watch_may_be_silent_for_longer_than_the_read_timeout(server: ScriptedServer, tmp_path: Path) -> None:
    later = threading.Event()
    server.play(Answer(lines=[later, {"type": "ADDED", "object": pod("p")}]))
    path = scripted.kubeconfig(tmp_path, server.url)
    cluster = client.connect(ConnectionSettings(kubeconfig=str(path), retries=FAST, read_timeout=0.1))
    timer = threading.Timer(0.3, later.set)
    timer.start()
    assert [event.kind for event in cluster.watch(PODS, resource_version="1")] == ["ADDED"]
    timer.join()
    cluster.close()


def test_closed_watch_yields_no_more_events_and_closes_its_connection(
    server: ScriptedServer, cluster: KubernetesCluster
) -> None:
    both = b"".join(orjson.dumps({"type": "ADDED", "object": pod(name)}) + b"\n" for name in "pq")
    server.play(Answer(lines=[both], hold=threading.Event()))
    events = cluster.watch(PODS, resource_version="1")
    assert next(events).object["metadata"]["name"] == "p"
    events.close()
    assert events._response.closed
    assert list(events) == []


def test_list_rejects_an_answer_that_is_not_a_list(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.otherwise = Answer(body={})
    with pytest.raises(errors.ServerError, match="list"):
        cluster.list(PODS)


def test_threads_can_share_a_client(server: ScriptedServer, cluster: KubernetesCluster) -> None:
    server.otherwise = lambda request: Answer(body=pod(request.path.rpartition("/")[2]))
    with ThreadPoolExecutor(8) as threads:
        names = [str(i) for i in range(200)]
        found = list(threads.map(lambda name: cluster.get(PODS, name, "a")["metadata"]["name"], names))
    assert found == names
    assert len({request.connection for request in server.requests}) <= 8
