"""Code of the largest size with the greatest number of owners, on a real API server, whose limits count.

No garbage collector runs there, so the tests play the garbage collector.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from crds import labels
from crds.api_resources import CONFIG_MAPS, NAMESPACES, TORCHJOBS
from crds.keys import JobKey
from kube import client
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.settings import ConnectionSettings
from tests.support.coordinator.code_stores import code, unpacked
from tests.support.coordinator.desk import clear, manifest
from tests.support.kube.servers import Server

pytestmark = pytest.mark.apiserver
HOME = "largest-code"
SERVER_LIMIT = 1_048_576
"""The most bytes of content that an API server takes."""


@pytest.fixture
def real_cluster(real_server: Server) -> Iterator[KubernetesCluster]:
    cluster = client.connect(ConnectionSettings(kubeconfig=str(real_server.kubeconfig)))
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOME}})
    yield cluster
    clear(cluster)
    cluster.close()


@pytest.fixture(scope="module")
def archive() -> Archive:
    """Return random code of the largest size that may be packed."""
    found = code(b"print(1)", size=config_maps.LIMIT - 4_000)
    assert config_maps.LIMIT - 4_000 < len(found.content) <= config_maps.LIMIT
    return found


def submit(cluster: KubernetesCluster, name: str) -> JobKey:
    return JobKey(HOME, name, cluster.create(TORCHJOBS, manifest(name), HOME)["metadata"]["uid"])


def parts(cluster: KubernetesCluster) -> dict[str, Manifest]:
    found = cluster.list(CONFIG_MAPS, HOME, label_selector=labels.CODE).items
    return {item["metadata"]["name"]: item for item in found}


def counts(cluster: KubernetesCluster) -> dict[str, int]:
    return {name: len(item["metadata"]["ownerReferences"]) for name, item in parts(cluster).items()}


def add_gone_owners(cluster: KubernetesCluster, count: int) -> None:
    """Add jobs with names of the greatest length as owners. The jobs do not exist, but the garbage collector has not
    removed them yet.
    """
    for name, item in parts(cluster).items():
        gone = [JobKey(HOME, f"job-{number:036}", f"00000000-0000-0000-0000-{number:012}") for number in range(count)]
        owners = [*item["metadata"]["ownerReferences"], *map(config_maps.owner_reference, gone)]
        cluster.patch(CONFIG_MAPS, name, {"metadata": {"ownerReferences": owners}}, HOME)


def collect(cluster: KubernetesCluster) -> None:
    """Play the garbage collector: remove owners that do not exist, and delete ConfigMaps that have no other owner."""
    uids = {item["metadata"]["uid"] for item in cluster.list(TORCHJOBS, HOME).items}
    for name, item in parts(cluster).items():
        left = [owner for owner in item["metadata"]["ownerReferences"] if owner["uid"] in uids]
        if left:
            cluster.patch(CONFIG_MAPS, name, {"metadata": {"ownerReferences": left}}, HOME)
        else:
            cluster.delete(CONFIG_MAPS, name, HOME, uid=item["metadata"]["uid"])


def test_the_largest_code_has_the_most_owners_then_another_copy_and_goes_with_the_last(
    real_cluster: KubernetesCluster, archive: Archive, tmp_path: Path
) -> None:
    store = ConfigMapStore(real_cluster)
    first, second = (config_maps.source(archive, copy) for copy in (1, 2))
    names, others = (config_maps.names(archive, copy) for copy in (1, 2))
    assert len(names) == 6
    assert store.keep(archive, submit(real_cluster, "a")) == first
    add_gone_owners(real_cluster, config_maps.MOST_OWNERS - 2)
    assert store.keep(archive, submit(real_cluster, "b")) == first, "the job gets the last place for an owner"
    assert counts(real_cluster) == dict.fromkeys(names, config_maps.MOST_OWNERS)
    for item in parts(real_cluster).values():
        del item["metadata"]["managedFields"]
        assert len(json.dumps(item, separators=(",", ":"))) <= 1_000_000 < SERVER_LIMIT
    assert store.keep(archive, submit(real_cluster, "c")) == second
    assert counts(real_cluster) == dict.fromkeys(names, config_maps.MOST_OWNERS) | dict.fromkeys(others, 1)
    for number, source in enumerate((first, second)):
        files = unpacked(real_cluster, HOME, source, archive.digest, tmp_path / str(number))
        assert len(files["random"]) == config_maps.LIMIT - 4_000
    for name in ("a", "c"):
        real_cluster.delete(TORCHJOBS, name, HOME)
    collect(real_cluster)
    assert counts(real_cluster) == dict.fromkeys(names, 1), "the second copy was deleted with its only owner"
    real_cluster.delete(TORCHJOBS, "b", HOME)
    collect(real_cluster)
    assert parts(real_cluster) == {}
    assert store.keep(archive, submit(real_cluster, "d")) == first, "new code is stored, since the old code is gone"
    assert counts(real_cluster) == dict.fromkeys(names, 1)
