"""Garbage collection of the embedded server: dependents, namespaces and objects of deleted definitions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crds.api_resources import CRDS, NAMESPACES, PODS, Resource
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube import servers, widgets
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget
from tests.support.waiting import until

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def _is_gone(cluster: KubernetesCluster, resource: Resource, name: str, namespace: str = "") -> Callable[[], bool]:
    def gone() -> bool:
        try:
            cluster.get(resource, name, namespace)
        except errors.NotFound:
            return True
        return False

    return gone


def _owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {"apiVersion": o["apiVersion"], "kind": o["kind"], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": references}}


def test_dependents_are_deleted_with_their_owner(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    owner = embedded_cluster.create(WIDGETS, widget(), namespace)
    child = embedded_cluster.create(CONFIG_MAPS, _owned("child", owner), namespace)
    embedded_cluster.create(CONFIG_MAPS, _owned("grandchild", child), namespace)
    embedded_cluster.create(CONFIG_MAPS, _owned("stranger"), namespace)
    embedded_cluster.delete(WIDGETS, "w", namespace)
    until(_is_gone(embedded_cluster, CONFIG_MAPS, "grandchild", namespace))
    assert [item["metadata"]["name"] for item in embedded_cluster.list(CONFIG_MAPS, namespace).items] == ["stranger"]


def test_many_dependents_are_deleted_with_their_owner(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    owner = embedded_cluster.create(WIDGETS, widget(), namespace)
    for number in range(250):
        embedded_cluster.create(CONFIG_MAPS, _owned(f"child-{number}", owner), namespace)
    embedded_cluster.delete(WIDGETS, "w", namespace)
    until(lambda: embedded_cluster.list(CONFIG_MAPS, namespace).items == [])


def test_dependent_of_two_owners_stays_with_the_remaining_one(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    owners = [embedded_cluster.create(WIDGETS, widget(name), namespace) for name in ("a", "b")]
    embedded_cluster.create(CONFIG_MAPS, _owned("child", *owners), namespace)
    embedded_cluster.delete(WIDGETS, "a", namespace)

    def owner_names() -> list[str]:
        child = embedded_cluster.get(CONFIG_MAPS, "child", namespace)
        return [owner["name"] for owner in child["metadata"]["ownerReferences"]]

    until(lambda: owner_names() == ["b"])


def test_dependent_of_a_missing_owner_is_deleted(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    owner = embedded_cluster.create(WIDGETS, widget(), namespace)
    embedded_cluster.delete(WIDGETS, "w", namespace)
    embedded_cluster.create(CONFIG_MAPS, _owned("child", owner), namespace)
    until(_is_gone(embedded_cluster, CONFIG_MAPS, "child", namespace))


@pytest.mark.parametrize(("policy", "left"), [("Orphan", True), ("Foreground", False)])
def test_propagation_policy_decides_whether_dependents_stay(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str, policy: str, left: bool
) -> None:
    owner = embedded_cluster.create(WIDGETS, widget(), namespace)
    embedded_cluster.create(CONFIG_MAPS, _owned("child", owner), namespace)
    code, answer = embedded_server.send("DELETE", WIDGETS.path(namespace, "w"), {"propagationPolicy": policy})
    assert code == 200
    assert answer["metadata"]["finalizers"]
    until(_is_gone(embedded_cluster, WIDGETS, "w", namespace))
    names = [item["metadata"]["name"] for item in embedded_cluster.list(CONFIG_MAPS, namespace).items]
    assert names == (["child"] if left else [])
    if left:
        assert not embedded_cluster.get(CONFIG_MAPS, "child", namespace)["metadata"].get("ownerReferences")


def test_deleted_namespace_goes_after_its_objects_and_their_finalizers(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    embedded_cluster.create(CONFIG_MAPS, _owned("a"), namespace)
    held = widget()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    embedded_cluster.create(WIDGETS, held, namespace)
    embedded_cluster.delete(NAMESPACES, namespace)
    assert embedded_cluster.get(NAMESPACES, namespace)["status"]["phase"] == "Terminating"
    with pytest.raises(errors.Forbidden, match="being terminated"):
        embedded_cluster.create(CONFIG_MAPS, _owned("late"), namespace)
    until(_is_gone(embedded_cluster, CONFIG_MAPS, "a", namespace))
    assert not _is_gone(embedded_cluster, NAMESPACES, namespace)()
    embedded_cluster.patch(WIDGETS, "w", {"metadata": {"finalizers": None}}, namespace)
    until(_is_gone(embedded_cluster, NAMESPACES, namespace))


def test_empty_namespace_is_deleted(
    embedded_cluster: KubernetesCluster, embedded_server: Server, namespace: str
) -> None:
    embedded_cluster.delete(NAMESPACES, namespace)
    until(_is_gone(embedded_cluster, NAMESPACES, namespace))


def test_default_namespace_cannot_be_deleted(embedded_cluster: KubernetesCluster) -> None:
    with pytest.raises(errors.Forbidden):
        embedded_cluster.delete(NAMESPACES, "default")


@pytest.mark.servers
def test_deleted_definition_removes_its_objects(tmp_path: Path) -> None:
    with servers.embedded(tmp_path) as server:
        assert server.send("POST", CRDS.path(), widgets.DEFINITION)[0] == 201
        assert server.send("POST", WIDGETS.path("default"), widget())[0] == 201
        server.send("DELETE", CRDS.path(name="widgets.example.com"))
        until(lambda: server.send("GET", CRDS.path(name="widgets.example.com"))[0] == 404)
        assert server.send("GET", WIDGETS.path("default"))[0] == 404


@pytest.mark.servers
def test_garbage_collection_continues_after_a_restart(tmp_path: Path) -> None:
    with servers.embedded(tmp_path) as server:
        server.send("POST", CRDS.path(), widgets.DEFINITION)
        _, owner = server.send("POST", WIDGETS.path("default"), widget())
        server.send("POST", CONFIG_MAPS.path("default"), _owned("child", owner))
        server.send("POST", PODS.path("default"), {**pod(), "metadata": _owned("p", owner)["metadata"]})
        binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}}
        server.send("POST", PODS.path("default", "p", "binding"), {**binding, "metadata": {"name": "p"}})
        server.send("DELETE", WIDGETS.path("default", "w"))
    with servers.embedded(tmp_path) as server:
        until(lambda: server.send("GET", CONFIG_MAPS.path("default", "child"))[0] == 404)
        _, left = server.send("GET", PODS.path("default", "p"))
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
