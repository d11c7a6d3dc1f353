"""Watches through `kube.api.Cluster`: nothing missed, nothing twice, and an end that says where to go on."""

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


def test_a_watch_begins_where_the_list_ended(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget("before"), namespace)
    start = cluster.list(WIDGETS, namespace).resource_version
    watch = cluster.watch(WIDGETS, namespace, resource_version=start, timeout_seconds=20)
    cluster.create(WIDGETS, widget("a"), namespace)
    cluster.patch(WIDGETS, "a", {"spec": {"size": 2}}, namespace)
    cluster.patch(WIDGETS, "a", {"spec": {"size": 2}}, namespace)  # changes nothing, is told to nobody
    cluster.delete(WIDGETS, "a", namespace)
    assert _told(watch, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    watch.close()


def test_a_watch_resumes_after_any_event(cluster: KubernetesCluster, namespace: str) -> None:
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


def test_other_namespaces_are_not_told(cluster: KubernetesCluster, namespace: str) -> None:
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


def test_selected_objects_come_and_go(cluster: KubernetesCluster, namespace: str) -> None:
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


def test_a_quiet_watch_ends_by_itself_and_says_how_far_it_came(cluster: KubernetesCluster, namespace: str) -> None:
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


def test_a_forgotten_version_has_expired(cluster: KubernetesCluster, server: Server, namespace: str) -> None:
    if not server.embedded:
        pytest.skip("a real server forgets after minutes")
    with pytest.raises(errors.Expired):
        next(cluster.watch(WIDGETS, namespace, resource_version="999999999", timeout_seconds=5))
