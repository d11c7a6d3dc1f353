"""The informer against a scripted server: each outcome of lists and watches, and the changes that it reports."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import PODS
from kube import client
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from kube.process.turns import Turns
from kube.settings import ConnectionSettings, InformerSettings, RetrySettings
from tests.support.clock import Clock
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, ReceivedRequest, ScriptedServer, listing, pod, status
from tests.support.waiting import SECONDS, until

Told = list[tuple[Any, Any]]

QUICK = InformerSettings(backoff_base=0.001, backoff_cap=0.01)
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted.running() as running:
        yield running


@pytest.fixture
def cluster(server: ScriptedServer, tmp_path: Path) -> Iterator[KubernetesCluster]:
    path = scripted.kubeconfig(tmp_path, server.url)
    connected = client.connect(ConnectionSettings(kubeconfig=str(path), retries=RetrySettings(attempts=1), page_size=2))
    yield connected
    connected.close()


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def start(cluster: KubernetesCluster, told: Told) -> Iterator[Callable[..., Informer[str]]]:
    started: list[Informer[str]] = []

    def begin(
        trim: Callable[[Manifest], str] = version_of, turns: Turns | None = None, **options: Any
    ) -> Informer[str]:
        options = {"settings": QUICK, "on_change": lambda before, after: told.append((before, after)), **options}
        informer = Informer(cluster, PODS, trim=trim, **options)
        started.append(informer)
        informer.start(turns)
        return informer

    yield begin
    for informer in started:
        informer.stop()
        assert informer._reflector._thread not in threading.enumerate()


def version_of(manifest: Manifest) -> str:
    """Return name and version of an object. These texts are the trimmed values of the tests."""
    return f"{manifest['metadata']['name']}:{manifest['metadata']['resourceVersion']}"


def event(kind: str, manifest: Manifest) -> dict[str, Any]:
    return {"type": kind, "object": manifest}


def bookmark(version: int) -> dict[str, Any]:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def watching(*lines: Any) -> Answer:
    """Return a watch that stays open after its lines."""
    return Answer(lines=list(lines), hold=threading.Event())


def test_informer_lists_in_pages_and_then_watches(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told
) -> None:
    server.play(
        listing(pod("a", 3), pod("b", 4), resource_version="9", token="t"), listing(pod("c", 5), resource_version="9")
    )
    server.play(
        watching(
            event("MODIFIED", pod("a", 10)), event("DELETED", pod("b", 11)), event("ADDED", pod("d", 12)), bookmark(20)
        )
    )
    informer = start(label_selector="app=x", namespace="a")
    assert informer.wait_for(20, SECONDS)
    assert sorted(informer.values()) == ["a:10", "c:5", "d:12"]
    assert informer.get("a", "a") == "a:10"
    assert informer.get("a", "b") is None
    assert told == [(None, "a:3"), (None, "b:4"), (None, "c:5"), ("a:3", "a:10"), ("b:4", None), (None, "d:12")]
    assert informer.resource_version == 20
    assert informer.failing == ""
    watched = server.requests[2]
    assert watched.path == "/api/v1/namespaces/a/pods"
    assert watched.query["resourceVersion"] == "9"
    assert watched.query["allowWatchBookmarks"] == "true"
    assert {request.query["labelSelector"] for request in server.requests} == {"app=x"}


def test_informer_is_synced_after_reporting_the_first_list(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told
) -> None:
    may_answer = threading.Event()
    synced: list[Told] = []
    server.play(Answer(body=listing(pod("a")).body, hold=may_answer), watching())
    informer = start(on_synced=lambda: synced.append(list(told)))
    assert not informer.synced
    assert not informer.wait_synced(0)
    may_answer.set()
    assert informer.wait_synced(SECONDS)
    server.wait_requests(2)
    assert synced == [[(None, "a:1")]]


@pytest.mark.parametrize("cut", [False, True], ids=["ended", "broken"])
def test_informer_resumes_at_the_version_where_the_watch_ended(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told, cut: bool
) -> None:
    server.play(listing(pod("a"), resource_version="5"))
    server.play(Answer(lines=[event("MODIFIED", pod("a", 6)), bookmark(8), b'{"type":"MODIFIED","obj'], cut=cut))
    server.play(watching(event("MODIFIED", pod("a", 9)), bookmark(10)))
    informer = start()
    assert informer.wait_for(10, SECONDS)
    assert [request.query.get("resourceVersion") for request in server.requests] == [None, "5", "8"]
    assert told == [(None, "a:1"), ("a:1", "a:6"), ("a:6", "a:9")]


@pytest.mark.parametrize("answer", [Answer(410, GONE), Answer(lines=[event("ERROR", GONE)])], ids=["http", "event"])
def test_informer_lists_again_and_reports_differences_when_the_version_expired(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told, answer: Answer
) -> None:
    server.play(listing(pod("same"), pod("changed"), pod("gone"), pod("other", uid="first"), resource_version="5"))
    server.play(answer)
    server.play(
        listing(pod("same"), pod("changed", 7), pod("other", 8, uid="second"), pod("new", 9), resource_version="9")
    )
    server.play(watching(bookmark(10)))
    informer = start()
    assert informer.wait_for(10, SECONDS)
    assert told[4:] == [
        ("gone:1", None),
        ("changed:1", "changed:7"),
        ("other:1", None),
        (None, "other:8"),
        (None, "new:9"),
    ]
    assert len(informer.values()) == 4


def test_informer_says_what_it_has_told_and_which_changes_come_from_a_list(
    server: ScriptedServer, start: Callable[..., Informer[str]]
) -> None:
    server.play(listing(pod("a"), resource_version="5"), watching(event("MODIFIED", pod("a", 6))))
    told: list[tuple[str | None, int, int, bool]] = []
    is_told = threading.Event()

    def note(_: str | None, after: str | None) -> None:
        is_told.wait(SECONDS)
        told.append((after, informer.told_version, informer.lists, informer.is_listing))

    informer = start(on_change=note)
    assert (informer.told_version, informer.lists) == (0, 0)
    is_told.set()
    assert until(lambda: informer.told_version == 6)
    assert told == [("a:1", 0, 0, True), ("a:6", 5, 1, False)]
    assert (informer.lists, informer.is_listing) == (1, False)


def test_event_with_another_uid_is_reported_as_deletion_and_addition(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told
) -> None:
    server.play(listing(pod("a", 1, uid="x")), watching(event("MODIFIED", pod("a", 2, uid="y")), bookmark(3)))
    assert start().wait_for(3, SECONDS)
    assert told == [(None, "a:1"), ("a:1", None), (None, "a:2")]


def test_informer_finds_values_by_index(server: ScriptedServer, start: Callable[..., Informer[str]]) -> None:
    server.play(listing(pod("a", job="x"), pod("b", job="x"), pod("c", job="y"), pod("d")))
    server.play(watching(event("MODIFIED", pod("a", 2, job="y")), event("DELETED", pod("b", 3, job="x"))))
    informer = start(
        trim=lambda manifest: manifest["metadata"]["name"] + ":" + manifest["metadata"]["labels"].get("job", ""),
        index=lambda value: value.partition(":")[2] or None,
    )
    assert informer.wait_for(3, SECONDS)
    assert informer.indexed("x") == []
    assert sorted(informer.indexed("y")) == ["a:y", "c:y"]
    assert informer._cache._groups.keys() == {"y"}


def test_informer_backs_off_when_the_server_closes_empty_watches(
    server: ScriptedServer, start: Callable[..., Informer[str]]
) -> None:
    server.play(listing(pod("a")))
    server.otherwise = Answer(lines=[])
    start(settings=InformerSettings(backoff_base=0.05, backoff_cap=10))
    server.wait_requests(3)
    # Waits of at least 25, 50, 100, 200 and 400 ms: no more than six watches within 0.775 s.
    with server.changed:
        assert not server.changed.wait_for(lambda: len(server.requests) > 7, timeout=0.7)


def test_informer_shows_failures_and_recovers(
    server: ScriptedServer, start: Callable[..., Informer[str]], told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def look(request: ReceivedRequest) -> Answer:
        seen.append(informer.failing)
        return status(503)

    may_begin = threading.Event()
    server.play(Answer(403, status(403, "Forbidden", "no pods for you").body, hold=may_begin))
    server.play(look, Answer(0), Answer(200, b"{}"), listing(pod("a"), resource_version="4"), watching(bookmark(5)))
    informer = start()
    may_begin.set()
    assert informer.wait_for(5, SECONDS)
    assert "no pods for you" in seen[0]
    assert informer.failing == ""
    assert told == [(None, "a:1")]
    assert "a-token" not in caplog.text


def test_informer_continues_after_a_callback_raises(
    server: ScriptedServer, start: Callable[..., Informer[str]], caplog: pytest.LogCaptureFixture
) -> None:
    server.play(listing(pod("a")), watching(event("ADDED", pod("b", 2)), event("ADDED", pod("c", 3)), bookmark(4)))
    seen: list[str | None] = []

    def fail(before: str | None, after: str | None) -> None:
        seen.append(after)
        raise RuntimeError("the reader's own mistake")

    assert start(on_change=fail).wait_for(4, 5)
    assert seen == ["a:1", "b:2", "c:3"]
    assert "the reader's own mistake" in caplog.text


def test_informer_skips_and_counts_unreadable_objects(
    server: ScriptedServer, start: Callable[..., Informer[str]], caplog: pytest.LogCaptureFixture
) -> None:
    def trim(manifest: Manifest) -> str:
        return str(manifest["metadata"]["labels"]["job"])

    server.play(
        listing(pod("a"), pod("b", job="x")),
        watching(event("ADDED", pod("c", 2)), event("ADDED", pod("d", 3, job="y"))),
    )
    informer = start(trim=trim)
    assert informer.wait_for(3, SECONDS)
    assert informer.values() == ["x", "y"]
    assert "Pod a/a" in caplog.text
    assert informer.errors.objects == 2


def test_unreadable_object_is_logged_once_and_counted_until_deletion(
    server: ScriptedServer, start: Callable[..., Informer[str]], caplog: pytest.LogCaptureFixture
) -> None:
    def trim(manifest: Manifest) -> str:
        return str(manifest["metadata"]["labels"]["job"])

    changes = [event("MODIFIED", pod("a", number)) for number in range(2, 12)]
    gone = [event("DELETED", pod("b", 12)), event("MODIFIED", pod("c", 13, job="x"))]
    server.play(
        listing(pod("a"), pod("b"), pod("c")),
        watching(*changes, *gone, event("ERROR", GONE)),
        listing(pod("d", 14, job="y"), resource_version="14"),
    )
    informer = start(trim=trim)
    assert informer.wait_for(14, SECONDS)
    assert informer.values() == ["y"]
    assert (informer.errors.objects, informer.errors.times) == (0, 13)
    lines = [each.getMessage() for each in caplog.records if "is skipped" in each.getMessage()]
    assert [each.split(" is ")[0] for each in lines] == ["Pod a/a", "Pod a/b", "Pod a/c"]


def test_informer_resyncs_while_the_watch_is_silent(
    server: ScriptedServer, start: Callable[..., Informer[str]]
) -> None:
    server.play(listing(pod("a")))
    server.otherwise = Answer(lines=[bookmark(3)])
    twice = threading.Semaphore(0)
    seen: list[list[str]] = []

    def resync(values: list[str]) -> None:
        seen.append(values)
        twice.release()

    start(on_resync=resync, settings=InformerSettings(resync_seconds=0.02, backoff_base=0.001, backoff_cap=0.01))
    assert twice.acquire(timeout=SECONDS)
    assert twice.acquire(timeout=SECONDS)
    assert seen[:2] == [["a:1"], ["a:1"]]
    assert server.requests[1].query["timeoutSeconds"] == "1"


def test_stop_interrupts_a_silent_watch(server: ScriptedServer, start: Callable[..., Informer[str]]) -> None:
    server.play(listing(), watching())
    informer = start()
    server.wait_requests(2)
    stopper = threading.Thread(target=informer.stop)
    stopper.start()
    stopper.join(SECONDS)
    assert not stopper.is_alive()


def test_stop_does_not_wait_for_the_remaining_pages_of_a_list(
    server: ScriptedServer, start: Callable[..., Informer[str]]
) -> None:
    may_answer = threading.Event()
    server.play(Answer(body=listing(pod("a"), token="t").body, hold=may_answer))
    server.otherwise = listing(pod("b"), token="t")
    informer = start()
    server.wait_requests(1)
    stopper = threading.Thread(target=informer.stop)
    stopper.start()
    assert informer._reflector._stopping.wait(SECONDS)
    may_answer.set()
    stopper.join(SECONDS)
    assert not stopper.is_alive()
    assert not informer.synced
    assert len(server.requests) == 1


def test_informer_can_be_stopped_by_a_callback_and_before_its_start(
    server: ScriptedServer, cluster: KubernetesCluster, start: Callable[..., Informer[str]]
) -> None:
    Informer(cluster, PODS, trim=version_of).stop()
    server.play(listing(pod("a")), watching())
    stopped = threading.Event()

    def stop(before: str | None, after: str | None) -> None:
        informer.stop()
        stopped.set()

    may_list = threading.Event()
    server.answers[0] = Answer(body=listing(pod("a")).body, hold=may_list)
    informer = start(on_change=stop)
    may_list.set()
    assert stopped.wait(SECONDS)
    informer._reflector._thread.join(SECONDS)
    assert not informer._reflector._thread.is_alive()


def test_a_watch_is_late_while_a_callback_hangs_and_never_while_it_waits_for_the_server(
    server: ScriptedServer, start: Callable[..., Informer[str]]
) -> None:
    clock, hung, silent, event_sent = Clock(), threading.Event(), threading.Event(), threading.Event()
    turns, hangs = Turns(clock), threading.Event()
    server.play(listing(), Answer(lines=[event_sent, event("ADDED", pod("p"))], hold=silent))

    def on_change(_before: str | None, _after: str | None) -> None:
        hangs.set()
        hung.wait(SECONDS)

    informer = start(turns=turns, on_change=on_change)
    [loop] = turns.loops
    try:
        assert informer.wait_synced(SECONDS)
        until(lambda: loop.waits_for == f"the API server {server.url}")
        clock.step(3_600)
        assert turns.late() == ()
        event_sent.set()
        assert hangs.wait(SECONDS)
        clock.step(31)
        assert turns.late() == ("watch/pods",)
    finally:
        hung.set()
    until(lambda: bool(loop.waits_for))
    assert turns.late() == ()
    informer.stop()
    clock.step(31)
    assert turns.late() == ()
