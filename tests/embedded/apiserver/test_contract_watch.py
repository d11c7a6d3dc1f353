"""Watches through `kube.api.Cluster`: each event arrives exactly once, and a watch can be resumed at the point where it
ended.
"""

import itertools
from collections.abc import Iterator

import pytest

from crds.api_resources import PODS
from kube import errors
from kube.api import WatchEvent
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget


def _told(events: Iterator[WatchEvent], count: int) -> list[tuple[str, str]]:
    told = (event for event in events if event.kind != "BOOKMARK")
    return [(event.kind, event.object["metadata"]["name"]) for event in itertools.islice(told, count)]


def test_watch_starts_after_the_version_of_a_list(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget("before"), namespace)
    start = cluster.list(WIDGETS, namespace).resource_version
    watch = cluster.watch(WIDGETS, namespace, resource_version=start, timeout_seconds=20)
    cluster.create(WIDGETS, widget("a"), namespace)
    cluster.patch(WIDGETS, "a", {"spec": {"size": 2}}, namespace)
    cluster.patch(WIDGETS, "a", {"spec": {"size": 2}}, namespace)  # no change, hence no event
    cluster.delete(WIDGETS, "a", namespace)
    assert _told(watch, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    watch.close()


def test_watch_resumes_after_any_event(cluster: KubernetesCluster, namespace: str) -> None:
    start = cluster.list(WIDGETS, namespace).resource_version
    for name in ("a", "b", "c"):
        cluster.create(WIDGETS, widget(name), namespace)
    watch = cluster.watch(WIDGETS, namespace, resource_version=start, timeout_seconds=20)
    first = next(watch)
    watch.close()
    resumed = cluster.watch(
        WIDGETS, namespace, resource_version=first.object["metadata"]["resourceVersion"], timeout_seconds=20
    )
    assert _told(resumed, 2) == [("ADDED", "b"), ("ADDED", "c")]
    resumed.close()


def test_watch_of_a_namespace_omits_events_of_others(cluster: KubernetesCluster, namespace: str) -> None:
    start = cluster.list(WIDGETS, namespace).resource_version
    watch = cluster.watch(WIDGETS, namespace, resource_version=start, timeout_seconds=20)
    everywhere = cluster.watch(WIDGETS, resource_version=start, timeout_seconds=20)
    cluster.create(WIDGETS, widget("elsewhere"), "default")
    cluster.create(WIDGETS, widget("here"), namespace)
    assert _told(watch, 1) == [("ADDED", "here")]
    assert _told(everywhere, 2) == [("ADDED", "elsewhere"), ("ADDED", "here")]
    watch.close()
    everywhere.close()
    cluster.delete(WIDGETS, "elsewhere", "default")


def test_watch_with_a_selector_adds_and_deletes_objects_as_labels_change(
    cluster: KubernetesCluster, namespace: str
) -> None:
    cluster.create(WIDGETS, widget("a"), namespace)
    start = cluster.list(WIDGETS, namespace).resource_version
    watch = cluster.watch(WIDGETS, namespace, resource_version=start, label_selector="on=yes", timeout_seconds=20)
    cluster.create(WIDGETS, widget("b"), namespace)
    cluster.patch(WIDGETS, "a", {"metadata": {"labels": {"on": "yes"}}}, namespace)
    cluster.patch(WIDGETS, "a", {"spec": {"size": 2}}, namespace)
    left = cluster.patch(WIDGETS, "a", {"metadata": {"labels": {"on": "no"}}}, namespace)
    cluster.patch(WIDGETS, "a", {"metadata": {"labels": {"on": "yes"}}}, namespace)
    cluster.delete(WIDGETS, "a", namespace)
    events = list(itertools.islice((event for event in watch if event.kind != "BOOKMARK"), 5))
    assert [event.kind for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert events[2].object["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    watch.close()


def test_watch_without_events_ends_and_can_be_resumed(cluster: KubernetesCluster, namespace: str) -> None:
    start = cluster.list(WIDGETS, namespace).resource_version
    other = cluster.create(PODS, pod(), namespace)["metadata"]["resourceVersion"]
    events = list(cluster.watch(WIDGETS, namespace, resource_version=start, timeout_seconds=2))
    assert {event.kind for event in events} <= {"BOOKMARK"}
    reached = [int(event.object["metadata"]["resourceVersion"]) for event in events]
    assert all(int(start) <= version for version in reached)
    if reached:
        resumed = cluster.watch(WIDGETS, namespace, resource_version=str(reached[-1]), timeout_seconds=20)
        cluster.create(WIDGETS, widget("later"), namespace)
        assert _told(resumed, 1) == [("ADDED", "later")]
        resumed.close()
    assert int(other) > int(start)


def test_watch_from_an_unknown_version_raises_expired(
    cluster: KubernetesCluster, server: Server, namespace: str
) -> None:
    if not server.embedded:
        pytest.skip("a real server forgets after minutes")
    with pytest.raises(errors.Expired):
        next(cluster.watch(WIDGETS, namespace, resource_version="999999999", timeout_seconds=5))
