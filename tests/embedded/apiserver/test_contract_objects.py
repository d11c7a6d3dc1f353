"""Objects through `kube.api.Cluster`: the behaviour of any Kubernetes API server."""

from typing import Any

import pytest

from crds.api_resources import NAMESPACES, PODS, TENANT_QUEUES
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server
from tests.support.kube.widgets import WIDGETS, pod, widget


def test_create_sets_the_metadata_of_an_object(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    own = made["metadata"]
    assert own["uid"]
    assert int(own["resourceVersion"]) > 0
    assert own["creationTimestamp"].endswith("Z")
    assert own["generation"] == 1
    assert own["namespace"] == namespace
    assert cluster.get(WIDGETS, "w", namespace) == made


def test_create_with_an_existing_name_raises_already_exists(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(), namespace)
    with pytest.raises(errors.AlreadyExists):
        cluster.create(WIDGETS, widget(), namespace)


def test_generate_name_yields_unique_names_with_the_prefix(cluster: KubernetesCluster, namespace: str) -> None:
    body = widget("")
    body["metadata"]["generateName"] = "made-"
    names = {cluster.create(WIDGETS, body, namespace)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("made-") and len(name) == len("made-") + 5 for name in names)


def test_missing_object_raises_not_found(cluster: KubernetesCluster, namespace: str) -> None:
    with pytest.raises(errors.NotFound):
        cluster.get(WIDGETS, "nobody", namespace)
    with pytest.raises(errors.NotFound):
        cluster.patch(WIDGETS, "nobody", {"spec": {"size": 2}}, namespace)
    with pytest.raises(errors.NotFound):
        cluster.delete(WIDGETS, "nobody", namespace)


def test_create_in_a_missing_namespace_raises_not_found(cluster: KubernetesCluster) -> None:
    with pytest.raises(errors.NotFound, match="nowhere"):
        cluster.create(WIDGETS, widget(), "nowhere")


def test_change_of_spec_raises_version_and_generation(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    changed = cluster.patch(WIDGETS, "w", {"spec": {"size": 2}}, namespace)
    assert changed["spec"]["size"] == 2
    assert changed["metadata"]["generation"] == 2
    assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_change_of_labels_keeps_the_generation(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(), namespace)
    changed = cluster.patch(WIDGETS, "w", {"metadata": {"labels": {"a": "b"}}}, namespace)
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert changed["metadata"]["generation"] == 1


def test_patch_without_a_change_keeps_the_version(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    assert cluster.patch(WIDGETS, "w", {"spec": {"size": 1}}, namespace) == made


def test_patch_with_a_stale_version_raises_conflict(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    stale = made["metadata"]["resourceVersion"]
    cluster.patch(WIDGETS, "w", {"spec": {"size": 2}}, namespace, resource_version=stale)
    with pytest.raises(errors.Conflict):
        cluster.patch(WIDGETS, "w", {"spec": {"size": 3}}, namespace, resource_version=stale)


def test_merge_patch_removes_with_null_and_replaces_lists(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(colour="red", names=["a", "b"]), namespace)
    changed = cluster.patch(WIDGETS, "w", {"spec": {"limit": 9, "names": ["c"]}}, namespace)
    assert changed["spec"]["names"] == ["c"]
    changed = cluster.patch(WIDGETS, "w", {"spec": {"limit": None}}, namespace)
    assert "limit" not in changed["spec"]


def test_json_patch_applies_its_steps_or_is_refused(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(names=["a", "c"]), namespace)
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "add", "path": "/spec/names/1", "value": "b"},
        {"op": "replace", "path": "/spec/size", "value": 5},
    ]
    changed = cluster.patch(WIDGETS, "w", steps, namespace)
    assert (changed["spec"]["names"], changed["spec"]["size"]) == (["a", "b", "c"], 5)
    with pytest.raises(errors.Invalid):
        cluster.patch(WIDGETS, "w", [{"op": "test", "path": "/spec/size", "value": 1}], namespace)


def test_status_changes_only_through_its_subresource(cluster: KubernetesCluster, namespace: str) -> None:
    body = {**widget(), "status": {"phase": "Dreamt"}}
    assert "status" not in cluster.create(WIDGETS, body, namespace)
    changed = cluster.patch(
        WIDGETS, "w", {"spec": {"size": 7}, "status": {"phase": "Up"}}, namespace, subresource="status"
    )
    assert changed["status"] == {"phase": "Up"}
    assert changed["spec"]["size"] == 1
    assert changed["metadata"]["generation"] == 1
    changed = cluster.patch(WIDGETS, "w", {"spec": {"size": 2}, "status": {"phase": "Down"}}, namespace)
    assert changed["status"] == {"phase": "Up"}
    assert changed["spec"]["size"] == 2


def test_scale_subresource_reads_and_sets_the_size(server: Server, cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(WIDGETS, widget(), namespace)
    cluster.patch(WIDGETS, "w", {"status": {"ready": 3, "selector": "a=b"}}, namespace, subresource="status")
    path = WIDGETS.path(namespace, "w", "scale")
    _, scale = server.send("GET", path)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 3, "selector": "a=b"})
    scale["spec"]["replicas"] = 4
    code, after = server.send("PUT", path, scale)
    assert (code, after["spec"]["replicas"]) == (200, 4)
    assert server.send("PUT", path, scale)[0] == 409  # the resource version of the scale is outdated
    cluster.patch(WIDGETS, "w", {"spec": {"replicas": 6}}, namespace, subresource="scale")
    assert cluster.get(WIDGETS, "w", namespace)["spec"]["size"] == 6


def test_put_replaces_an_object_of_the_same_version(server: Server, cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(limit=50), namespace)
    path = WIDGETS.path(namespace, "w")
    replaced = {**made, "spec": {"size": 3}}
    code, after = server.send("PUT", path, replaced)
    assert (code, after["spec"]) == (200, {"size": 3, "mode": "plain"})
    assert server.send("PUT", path, replaced)[0] == 409
    del replaced["metadata"]["resourceVersion"]
    code, refusal = server.send("PUT", path, replaced)
    assert code == 422
    assert "metadata.resourceVersion" in refusal["message"]


def test_patch_cannot_change_metadata_of_the_server(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    wish = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 99}}
    assert cluster.patch(WIDGETS, "w", wish, namespace)["metadata"] == made["metadata"]
    with pytest.raises(errors.ClusterError):
        cluster.patch(WIDGETS, "w", {"metadata": {"name": "other"}}, namespace)


def test_dry_run_changes_nothing(cluster: KubernetesCluster, namespace: str) -> None:
    assert cluster.create(WIDGETS, widget(), namespace, dry_run=True)["spec"]["mode"] == "plain"
    with pytest.raises(errors.NotFound):
        cluster.get(WIDGETS, "w", namespace)
    made = cluster.create(WIDGETS, widget(), namespace)
    assert cluster.patch(WIDGETS, "w", {"spec": {"size": 9}}, namespace, dry_run=True)["spec"]["size"] == 9
    assert cluster.get(WIDGETS, "w", namespace) == made
    with pytest.raises(errors.AlreadyExists):
        cluster.create(WIDGETS, widget(), namespace, dry_run=True)
    cluster.delete(WIDGETS, "w", namespace, uid=made["metadata"]["uid"], dry_run=True)
    assert cluster.get(WIDGETS, "w", namespace) == made
    with pytest.raises(errors.NotFound):
        cluster.delete(WIDGETS, "nobody", namespace, dry_run=True)


def test_delete_requires_the_uid_of_its_precondition(cluster: KubernetesCluster, namespace: str) -> None:
    made = cluster.create(WIDGETS, widget(), namespace)
    with pytest.raises(errors.Conflict):
        cluster.delete(WIDGETS, "w", namespace, uid="00000000-0000-0000-0000-000000000000")
    cluster.delete(WIDGETS, "w", namespace, uid=made["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        cluster.get(WIDGETS, "w", namespace)


def test_finalizers_delay_a_deletion(cluster: KubernetesCluster, namespace: str) -> None:
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(WIDGETS, body, namespace)
    cluster.delete(WIDGETS, "w", namespace)
    held = cluster.get(WIDGETS, "w", namespace)
    assert held["metadata"]["deletionTimestamp"]
    with pytest.raises(errors.Invalid, match="finalizers"):
        cluster.patch(WIDGETS, "w", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}, namespace)
    cluster.patch(WIDGETS, "w", {"metadata": {"finalizers": None}}, namespace)
    with pytest.raises(errors.NotFound):
        cluster.get(WIDGETS, "w", namespace)


def test_label_selectors_filter_a_list(cluster: KubernetesCluster, namespace: str) -> None:
    for name, labels in (("a", {"tier": "x", "rank": "1"}), ("b", {"tier": "y"}), ("c", {"rank": "2"})):
        cluster.create(WIDGETS, widget(name, labels=labels), namespace)

    def chosen(selector: str) -> list[str]:
        return [item["metadata"]["name"] for item in cluster.list(WIDGETS, namespace, label_selector=selector).items]

    assert chosen("tier=x") == ["a"]
    assert chosen("tier!=x") == ["b", "c"]
    assert chosen("tier in (x,y)") == ["a", "b"]
    assert chosen("tier notin (x)") == ["b", "c"]
    assert chosen("rank") == ["a", "c"]
    assert chosen("!rank") == ["b"]
    assert chosen("tier=x,rank=1") == ["a"]
    with pytest.raises(errors.Invalid):
        chosen("tier in x")


def test_field_selectors_filter_a_list(cluster: KubernetesCluster, namespace: str) -> None:
    for name in ("a", "b"):
        cluster.create(PODS, pod(name), namespace)
    assert [p["metadata"]["name"] for p in cluster.list(PODS, namespace, field_selector="metadata.name=b").items] == [
        "b"
    ]
    assert len(cluster.list(PODS, namespace, field_selector="status.phase=Pending,spec.nodeName=").items) == 2
    assert cluster.list(PODS, namespace, field_selector="status.phase!=Pending").items == []
    with pytest.raises(errors.Invalid):
        cluster.list(PODS, namespace, field_selector="spec.containers=x")


def test_pages_of_a_list_show_one_snapshot(server: Server, cluster: KubernetesCluster, namespace: str) -> None:
    for number in range(5):
        cluster.create(WIDGETS, widget(f"w{number}"), namespace)
    path = WIDGETS.path(namespace)
    _, first = server.send("GET", f"{path}?limit=2")
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.delete(WIDGETS, "w4", namespace)
    cluster.create(WIDGETS, widget("w9"), namespace)
    names, page = [item["metadata"]["name"] for item in first["items"]], first
    while page["metadata"].get("continue"):
        _, page = server.send("GET", f"{path}?limit=2&continue={page['metadata']['continue']}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [f"w{number}" for number in range(5)]


def test_delete_collection_deletes_the_selected_objects(
    server: Server, cluster: KubernetesCluster, namespace: str
) -> None:
    for name, labels in (("a", {"go": "yes"}), ("b", {"go": "yes"}), ("c", {"go": "no"})):
        cluster.create(WIDGETS, widget(name, labels=labels), namespace)
    assert server.send("DELETE", WIDGETS.path(namespace) + "?labelSelector=go%3Dyes")[0] == 200
    assert [item["metadata"]["name"] for item in cluster.list(WIDGETS, namespace).items] == ["c"]


def test_cluster_scoped_object_has_no_namespace(cluster: KubernetesCluster, namespace: str) -> None:
    body = {"apiVersion": TENANT_QUEUES.api_version, "kind": "TenantQueue", "metadata": {"name": namespace}}
    made = cluster.create(TENANT_QUEUES, {**body, "spec": {"weight": 5}})
    assert "namespace" not in made["metadata"]
    assert cluster.get(TENANT_QUEUES, namespace)["spec"]["weight"] == 5
    cluster.delete(TENANT_QUEUES, namespace)


def test_default_namespaces_exist(cluster: KubernetesCluster) -> None:
    names = {item["metadata"]["name"] for item in cluster.list(NAMESPACES).items}
    assert {"default", "kube-system"} <= names


def test_wrong_verbs_paths_and_formats_are_refused(server: Server, namespace: str) -> None:
    path = WIDGETS.path(namespace)
    assert server.send("POST", PODS.path(namespace, "p"), pod())[0] == 405
    assert server.send("GET", f"/apis/example.com/v1/namespaces/{namespace}/gadgets")[0] == 404
    assert server.send("POST", path, b"size: 1", "text/plain")[0] == 415
    assert server.send("POST", path, b"{")[0] == 400
    assert server.send("POST", path, {**widget(), "kind": "Gadget"})[0] == 422
    assert server.send("POST", path, {**widget(), "apiVersion": "example.com/v2"})[0] == 400
    wandered = widget()
    wandered["metadata"]["namespace"] = "default"
    assert server.send("POST", path, wandered)[0] == 400


def test_request_with_a_wrong_token_is_unauthorized(server: Server) -> None:
    code, status = server.send("GET", NAMESPACES.path(), Authorization="Bearer wrong")
    assert (code, status["kind"], status["reason"]) == (401, "Status", "Unauthorized")
    assert server.send("GET", "/readyz")[0] == 200
