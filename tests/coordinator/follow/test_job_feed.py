"""Feeds and waits: against the embedded API server, and against scripted answers of a server that fails."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.follow import job_feed
from coordinator.follow.endings import JobEnding
from coordinator.follow.job_feed import JobFeed, JobFeeds
from coordinator.follow.waiting import Waits
from crds.api_resources import TORCHJOBS
from crds.keys import JobKey
from kube import client, errors
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings, InformerSettings, RetrySettings
from tests.support.coordinator.desk import manifest
from tests.support.kube import scripted
from tests.support.kube.scripted import Answer, ScriptedServer, listing
from tests.support.metered import Client
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers


def make(cluster: KubernetesCluster, namespace: str, name: str) -> JobKey:
    return JobKey.of(cluster.create(TORCHJOBS, manifest(name), namespace))


def set_phase(cluster: KubernetesCluster, key: JobKey, phase: str, reason: str = "", **status: Any) -> None:
    when = "2026-01-01T00:00:00Z"
    condition = {"type": phase, "status": "True", "reason": reason, "message": "so", "lastTransitionTime": when}
    body = {"status": {"phase": phase, "conditions": [condition], **status}}
    cluster.patch(TORCHJOBS, key.name, body, key.namespace, subresource="status")


@pytest.fixture
def counting(embedded_cluster: KubernetesCluster) -> Client:
    return Client(embedded_cluster)


@pytest.fixture
def feeds(counting: Client) -> Iterator[JobFeeds]:
    with JobFeeds(counting) as opened:
        yield opened


# Against API servers.


def test_a_thousand_handles_cost_one_list_one_watch_and_no_poll(
    embedded_cluster: KubernetesCluster, namespace: str, counting: Client, feeds: JobFeeds
) -> None:
    keys = [make(embedded_cluster, namespace, f"job-{number}") for number in range(1000)]
    endings: list[JobEnding] = []
    threads = [
        threading.Thread(target=lambda part: endings.extend(Waits(feeds, part)), args=(part,))
        for part in (keys[:500], keys[250:])
    ]
    for thread in threads:
        thread.start()
    until(lambda: counting.request_counts["WATCH torchjobs"])
    for key in keys:
        set_phase(embedded_cluster, key, "Succeeded")
    for thread in threads:
        thread.join(SECONDS)
    assert len(endings) == 1250
    assert {ending.outcome for ending in endings} == {"Succeeded"}
    assert counting.request_counts == {"LIST torchjobs": 2, "WATCH torchjobs": 1}  # two pages


def test_a_cancelled_job_and_a_deleted_one_end_the_wait_and_a_later_job_of_the_name_does_not_answer(
    cluster: KubernetesCluster, namespace: str
) -> None:
    stopped, removed, open_job = (make(cluster, namespace, name) for name in ("stopped", "removed", "open"))
    with JobFeeds(cluster) as feeds, Waits(feeds, [stopped, removed, open_job]) as waits:
        set_phase(cluster, stopped, "Failed", "Cancelled")
        assert next(waits).outcome == "Cancelled"
        cluster.delete(TORCHJOBS, "removed", namespace)
        again = make(cluster, namespace, "removed")
        set_phase(cluster, again, "Succeeded", result='{"accuracy":0.5}')
        ending = next(waits)
        assert (ending.key, ending.outcome) == (removed, "Deleted")
        assert waits.waiting == [open_job]
        assert next(Waits(feeds, [removed])).outcome == "Deleted"
        (ending,) = Waits(feeds, [again], goal="Running")
        assert (ending.outcome, ending.result) == ("Succeeded", {"accuracy": 0.5})


def test_a_job_that_the_watch_has_not_shown_yet_is_not_taken_for_deleted(
    embedded_cluster: KubernetesCluster, namespace: str, feeds: JobFeeds
) -> None:
    feed = feeds.of(namespace)
    assert feed.find("none") is None
    for number in range(20):
        key = make(embedded_cluster, namespace, f"new-{number}")
        with feed.changes(key) as changes:
            state = next(changes)
            assert state is not None
            assert state["metadata"]["uid"] == key.uid


def test_a_wait_ends_with_the_first_job_or_at_its_timeout(
    embedded_cluster: KubernetesCluster, namespace: str, feeds: JobFeeds
) -> None:
    slow, quick = (make(embedded_cluster, namespace, name) for name in ("slow", "quick"))
    assert list(Waits(feeds, [slow, quick], timeout=0)) == []
    set_phase(embedded_cluster, quick, "Succeeded")
    ending = next(Waits(feeds, [slow, quick]))
    assert (ending.key, ending.outcome) == (quick, "Succeeded")


def test_a_feed_that_is_closed_ends_its_readers(
    embedded_cluster: KubernetesCluster, namespace: str, feeds: JobFeeds
) -> None:
    key = make(embedded_cluster, namespace, "train")
    read: list[Any] = []
    changes = feeds.of(namespace).changes(key)
    reader = threading.Thread(target=lambda: read.extend(changes))
    reader.start()
    until(lambda: read)
    feeds.close()
    reader.join(SECONDS)
    assert not reader.is_alive()
    assert [state["metadata"]["name"] for state in read] == ["train"]


# Against scripted answers.


@pytest.fixture
def scripted_server() -> Iterator[ScriptedServer]:
    with scripted.running() as running:
        yield running


@pytest.fixture
def feed(scripted_server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobFeed]:
    monkeypatch.setattr(job_feed, "SETTINGS", InformerSettings(backoff_base=0.001, backoff_cap=0.01))
    path = scripted.kubeconfig(tmp_path, scripted_server.url)
    connected = client.connect(ConnectionSettings(kubeconfig=str(path), retries=RetrySettings(attempts=1)))
    with JobFeed(connected, "a") as opened:
        yield opened
    connected.close()


def job(version: int, phase: str = "Queued", uid: str = "u1") -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "a", "uid": uid, "resourceVersion": str(version)}
    return {"apiVersion": TORCHJOBS.api_version, "kind": TORCHJOBS.kind, "metadata": metadata} | {
        "spec": {"torchTaskSpecs": {"Master": {"numTasks": 1, "template": {"spec": {}}}}},
        "status": {"phase": phase},
    }


def events(*lines: Any, cut: bool = False) -> Answer:
    return Answer(lines=list(lines), cut=cut, hold=None if cut else threading.Event())


KEY = JobKey("a", "train", "u1")


def phases(feed: JobFeed, last: object) -> list[str | None]:
    """Return the phases of the job until the phase `last`, or until the end of the job."""
    read: list[str | None] = []
    with feed.changes(KEY) as changes:
        for state in changes:
            read.append(None if state is None else state["status"]["phase"])
            if read[-1] == last:
                break
    return read


def test_a_watch_that_breaks_or_is_too_old_goes_on_and_misses_no_change(
    scripted_server: ScriptedServer, feed: JobFeed
) -> None:
    told = threading.Event()
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    scripted_server.play(
        listing(job(1), resource_version="1"),
        events(told, {"type": "MODIFIED", "object": job(2, "Admitted")}, cut=True),
        events(gone),
        listing(job(5, "Running"), resource_version="5"),
        events({"type": "DELETED", "object": job(6, "Running")}),
    )
    read: list[Any] = []
    reader = threading.Thread(target=lambda: read.extend(phases(feed, None)))
    reader.start()
    told.set()
    reader.join(SECONDS)
    assert not reader.is_alive()
    assert (read[0] in ("Queued", "Admitted", "Running", None), read[-1]) == (True, None)
    asked = [(each.query.get("watch"), each.query.get("resourceVersion")) for each in scripted_server.requests]
    assert asked == [(None, None), ("1", "1"), ("1", "2"), (None, None), ("1", "5")]


def test_a_feed_says_why_its_jobs_may_be_behind(scripted_server: ScriptedServer, feed: JobFeed) -> None:
    away = Answer(status=503, body={"kind": "Status", "code": 503, "message": "shutting down"})
    scripted_server.play(listing(job(1), resource_version="1"), *[away] * 100)
    assert feed.find("train")
    assert "shutting down" in until(lambda: feed.behind, bool)


def test_a_job_that_a_new_list_no_longer_has_is_deleted_though_another_has_its_name(
    scripted_server: ScriptedServer, feed: JobFeed
) -> None:
    scripted_server.play(
        listing(job(1), resource_version="1"),
        scripted.status(410, "Expired"),
        listing(job(9, "Succeeded", uid="u2"), resource_version="9"),
        events(),
    )
    assert phases(feed, None)[-1] is None


def test_manifests_have_no_templates(scripted_server: ScriptedServer, feed: JobFeed) -> None:
    scripted_server.play(listing(job(1), resource_version="1"), events())
    with feed.changes(KEY) as changes:
        state = next(changes)
    assert state is not None
    assert state["spec"]["torchTaskSpecs"] == {"Master": {"numTasks": 1}}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (scripted.status(403, "Forbidden", "no"), errors.Forbidden),
        (scripted.status(401, "Unauthorized", "no"), errors.Unauthorized),
        (Answer(0), errors.Unreachable),
    ],
)
def test_a_server_that_refuses_the_first_list_is_an_error(
    scripted_server: ScriptedServer, feed: JobFeed, answer: Answer, error: type[Exception]
) -> None:
    scripted_server.play(answer)
    with pytest.raises(error):
        feed.changes(KEY)
    assert feed.failed


def test_rights_that_are_withdrawn_end_a_wait_with_the_error(scripted_server: ScriptedServer, feed: JobFeed) -> None:
    scripted_server.play(listing(job(1), resource_version="1"), scripted.status(403, "Forbidden", "no"))
    with pytest.raises(errors.Forbidden):
        list(feed.changes(KEY))
