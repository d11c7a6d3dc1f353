"""Volcano's resources as the embedded cluster defines them, on any API server."""

from typing import Any

import pytest

from crds.api_resources import CRDS, GANG_QUEUES, POD_GROUPS
from embedded import volcano_crds
from kube import errors
from kube.client import KubernetesCluster
from tests.support.kube.servers import Server


@pytest.fixture
def nouns(cluster: KubernetesCluster) -> KubernetesCluster:
    """Return a cluster with Volcano's resources installed."""
    _settled(cluster)
    return cluster


def _settled(cluster: KubernetesCluster) -> None:
    """Install the definitions and wait until they are served. A real server needs a moment to serve them."""
    for _ in range(200):
        try:
            volcano_crds.install(cluster)
            cluster.list(POD_GROUPS)
            return
        except errors.NotFound:
            continue
    raise AssertionError("the definitions are not served")


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def test_second_install_changes_nothing(nouns: KubernetesCluster) -> None:
    def versions() -> dict[str, str]:
        found = [*nouns.list(CRDS).items, *nouns.list(GANG_QUEUES).items]
        return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}

    before = versions()
    volcano_crds.install(nouns)
    assert versions() == before
    default = nouns.get(GANG_QUEUES, "default")
    assert (default["spec"]["weight"], default["status"]["state"]) == (1, "Open")


def test_install_updates_an_old_definition(nouns: KubernetesCluster) -> None:
    name = "podgroups.scheduling.volcano.sh"
    nouns.patch(CRDS, name, [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}])
    volcano_crds.install(nouns)
    version = nouns.get(CRDS, name)["spec"]["versions"][0]
    assert [each["name"] for each in version["additionalPrinterColumns"]] == [
        "STATUS", "minMember", "RUNNINGS", "AGE", "QUEUE",
    ]  # fmt: skip


def test_pod_group_keeps_unknown_fields_and_takes_status_without_a_subresource(
    nouns: KubernetesCluster, namespace: str
) -> None:
    spec = {"minMember": 2, "minTaskMember": {"worker": 2}, "minResources": {"cpu": "2", "pods": 2}}
    made = nouns.create(POD_GROUPS, group("g", **spec, networkTopology={"mode": "hard"}), namespace)
    assert made["spec"] == {**spec, "networkTopology": {"mode": "hard"}, "queue": "default"}
    patch = {"metadata": {"uid": made["metadata"]["uid"]}, "status": {"phase": "Inqueue"}}
    changed = nouns.patch(POD_GROUPS, "g", patch, namespace)
    assert changed["status"] == {"phase": "Inqueue"}
    assert changed["metadata"]["generation"] == 2
    with pytest.raises(errors.NotFound):
        nouns.patch(POD_GROUPS, "g", patch, namespace, subresource="status")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"minMember": -1}, "spec.minMember"),
        ({"minTaskMember": {"worker": "two"}}, "spec.minTaskMember.worker"),
        ({"minResources": {"cpu": {}}}, "spec.minResources.cpu"),
    ],
)
def test_invalid_pod_group_is_refused(
    nouns: KubernetesCluster, namespace: str, spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(errors.Invalid) as refused:
        nouns.create(POD_GROUPS, group("bad", **spec), namespace)
    assert any(field in cause.field for cause in refused.value.causes)


def test_table_of_pod_groups_shows_status_and_counts(nouns: KubernetesCluster, server: Server, namespace: str) -> None:
    nouns.create(POD_GROUPS, group("g", minMember=3), namespace)
    nouns.patch(POD_GROUPS, "g", {"status": {"phase": "Running", "running": 3}}, namespace)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    code, table = server.send("GET", POD_GROUPS.path(namespace), Accept=accept)
    assert code == 200
    assert [column["name"] for column in table["columnDefinitions"][1:4]] == ["STATUS", "minMember", "RUNNINGS"]
    assert table["rows"][0]["cells"][:4] == ["g", "Running", 3, 3]
