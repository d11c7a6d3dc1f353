"""The informer on each API server: its cache follows the writes of a client."""

import threading
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import PODS, TENANT_QUEUES, Resource
from embedded.apiserver import api_server as apiserver
from embedded.layout import Layout
from kube import client
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from kube.settings import ConnectionSettings, InformerSettings, RetrySettings
from tests.support.waiting import SECONDS

QUICK = InformerSettings(backoff_base=0.01, backoff_cap=0.05)


def summary(manifest: Manifest) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return metadata["name"], metadata["uid"], metadata.get("labels", {}).get("job", "")


def pod(name: str, job: str) -> Manifest:
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"job": job}},
        "spec": {"containers": [container]},
    }


def version(manifest: Manifest) -> int:
    return int(manifest["metadata"]["resourceVersion"])


def follow(cluster: KubernetesCluster, resource: Resource = PODS, **options: Any) -> Informer[tuple[str, str, str]]:
    return Informer(cluster, resource, trim=summary, index=lambda value: value[2] or None, settings=QUICK, **options)


def test_informer_reads_back_the_writes_of_a_client(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(PODS, pod("before", "x"), namespace)
    told: list[Any] = []
    with follow(cluster, namespace=namespace, on_change=lambda *change: told.append(change)) as informer:
        assert informer.wait_synced(SECONDS)
        made = cluster.create(PODS, pod("after", "x"), namespace)
        assert informer.wait_for(version(made), SECONDS)
        assert {value[0] for value in informer.indexed("x")} == {"before", "after"}
        moved = cluster.patch(PODS, "after", {"metadata": {"labels": {"job": "y"}}}, namespace)
        assert informer.wait_for(version(moved), SECONDS)
        assert [value[0] for value in informer.indexed("y")] == ["after"]
        assert informer.get(namespace, "after") == summary(moved)
        cluster.delete(PODS, "after", namespace, uid=moved["metadata"]["uid"], grace_period_seconds=0)
        last = cluster.create(PODS, pod("last", "z"), namespace)
        assert informer.wait_for(version(last), SECONDS)
        assert {value[0] for value in informer.values()} == {"before", "last"}
        assert informer.failing == ""
    # A server may write a pod once more before it deletes the pod. This write does not change the trimmed value.
    assert [(before and before[0], after and after[0]) for before, after in told if before != after] == [
        (None, "before"),
        (None, "after"),
        ("after", "after"),
        ("after", None),
        (None, "last"),
    ]


def test_object_that_no_longer_matches_the_selector_is_reported_as_deleted(
    cluster: KubernetesCluster, namespace: str
) -> None:
    made = cluster.create(PODS, pod("p", "x"), namespace)
    gone = threading.Event()

    def look(_: object, after: object) -> None:
        if after is None:
            gone.set()

    with follow(cluster, namespace=namespace, label_selector="job=x", on_change=look) as informer:
        assert informer.wait_synced(SECONDS)
        assert informer.values() == [summary(made)]
        cluster.patch(PODS, "p", {"metadata": {"labels": {"job": "y"}}}, namespace)
        assert gone.wait(SECONDS)
        assert informer.values() == []


def test_cluster_scoped_object_is_found_without_a_namespace(cluster: KubernetesCluster, namespace: str) -> None:
    queue = {
        "apiVersion": TENANT_QUEUES.api_version,
        "kind": TENANT_QUEUES.kind,
        "metadata": {"name": namespace},
        "spec": {"weight": 2},
    }
    with follow(cluster, TENANT_QUEUES) as informer:
        made = cluster.create(TENANT_QUEUES, queue)
        assert informer.wait_for(version(made), SECONDS)
        assert informer.get("", namespace) == summary(made)


def test_informer_reads_all_pages_of_a_list(cluster: KubernetesCluster, namespace: str) -> None:
    names = {f"p-{i}" for i in range(25)}
    for name in names:
        cluster.create(PODS, pod(name, "x"), namespace)
    paged = KubernetesCluster(cluster._transport, ConnectionSettings(page_size=4))
    with follow(paged, namespace=namespace) as informer:
        assert informer.wait_synced(SECONDS)
        assert {value[0] for value in informer.values()} == names


@pytest.mark.servers
def test_informer_continues_after_a_server_restart(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with apiserver.running(layout) as server:
        port = int(server.url.rpartition(":")[2])
        cluster = client.connect(
            ConnectionSettings(kubeconfig=str(layout.kubeconfig), retries=RetrySettings(attempts=1))
        )
        informer = follow(cluster)
        informer.start()
        assert informer.wait_synced(SECONDS)
        cluster.create(PODS, pod("first", "x"), "default")
    try:
        with apiserver.running(layout, port=port):
            made = cluster.create(PODS, pod("second", "x"), "default")
            assert informer.wait_for(version(made), SECONDS)
            assert {value[0] for value in informer.values()} == {"first", "second"}
            # The informer may have fetched a new list. The list is complete before the next watch delivers this pod.
            assert informer.wait_for(version(cluster.create(PODS, pod("third", "x"), "default")), SECONDS)
            assert informer.failing == ""
    finally:
        informer.stop()
        cluster.close()
