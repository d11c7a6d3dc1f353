"""The contract of code stores, over ConfigMaps of both API servers and over a folder."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.code.errors import StoreFailed
from coordinator.code.folder_store import FolderStore
from coordinator.code.stores import CodeStore
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator.code_stores import code, unpacked
from tests.support.coordinator.desk import manifest
from tests.support.waiting import until

Submit = Callable[[str], JobKey]


@pytest.fixture
def submit(cluster: KubernetesCluster, namespace: str) -> Submit:
    """Return a function that creates a job, which owns code."""

    def create(name: str) -> JobKey:
        metadata = cluster.create(TORCHJOBS, manifest(name), namespace)["metadata"]
        return JobKey(namespace, name, metadata["uid"])

    return create


@pytest.fixture(params=["config maps", "folder"])
def store(request: pytest.FixtureRequest, cluster: KubernetesCluster, tmp_path: Path) -> CodeStore:
    if request.param == "config maps":
        return ConfigMapStore(cluster)
    (tmp_path / "shared folder").mkdir()
    return FolderStore(tmp_path / "shared folder")


@pytest.fixture
def found(cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Return a function that returns the files that a pod gets."""
    return lambda source, archive, place: unpacked(cluster, namespace, source, archive.digest, tmp_path / place)


# The contract.


def test_a_pod_finds_what_was_kept(store: CodeStore, submit: Submit, found: Callable[..., Any]) -> None:
    small, large = code(b"print(1)"), code(b"print(2)", size=1_000_000)
    owner = submit("one")
    assert found(store.keep(small, owner), small, "small") == {"0.py": b"print(1)"}
    files = found(store.keep(large, owner), large, "large")
    assert (files["0.py"], len(files["random"])) == (b"print(2)", 1_000_000)


def test_the_first_job_finds_its_code_where_the_store_said_before(store: CodeStore, submit: Submit) -> None:
    archive = code(b"print(1)")
    assert store.keep(archive, submit("one")) == store.source(archive)


def test_code_that_is_kept_again_by_the_same_or_another_job_is_found(
    store: CodeStore, submit: Submit, found: Callable[..., Any]
) -> None:
    archive = code(b"print(1)")
    owner = submit("one")
    sources = [store.keep(archive, each) for each in (owner, owner, submit("two"))]
    for number, source in enumerate(sources):
        assert found(source, archive, str(number)) == {"0.py": b"print(1)"}


def test_many_clients_keep_the_same_code_at_once(store: CodeStore, submit: Submit, found: Callable[..., Any]) -> None:
    archive = code(b"print(1)", size=1_500_000)
    jobs = [submit(f"job{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        sources = list(threads.map(lambda job: store.keep(archive, job), jobs))
    assert found(sources[0], archive, "first")["0.py"] == b"print(1)"
    assert len({str(source) for source in sources}) == 1


def test_the_largest_archive_is_kept(store: CodeStore, submit: Submit, found: Callable[..., Any]) -> None:
    archive = code(size=min(store.limit, 4 << 20) - 2_000)
    assert len(found(store.keep(archive, submit("one")), archive, "large")["random"]) > 4_000_000


# ConfigMaps.


def owners(cluster: KubernetesCluster, namespace: str) -> dict[str, list[str]]:
    """Return the names of the owners of each ConfigMap with code."""
    items = cluster.list(CONFIG_MAPS, namespace, label_selector=labels.CODE).items
    return {
        item["metadata"]["name"]: [owner["name"] for owner in item["metadata"].get("ownerReferences", [])]
        for item in items
    }


def test_each_part_is_immutable_and_owned_by_every_job_that_uses_it(
    cluster: KubernetesCluster, namespace: str, submit: Submit
) -> None:
    archive = code(b"", size=1_000_000)
    store = ConfigMapStore(cluster)
    for name in ("one", "two"):
        store.keep(archive, submit(name))
    parts = config_maps.names(archive, 1)
    assert owners(cluster, namespace) == {part: ["one", "two"] for part in parts}
    for part in parts:
        item = cluster.get(CONFIG_MAPS, part, namespace)
        assert item["immutable"] is True
        assert item["metadata"]["labels"] == {labels.CODE: archive.short}
        with pytest.raises(errors.Invalid):
            cluster.patch(CONFIG_MAPS, part, {"binaryData": {"part": "AAAA"}}, namespace)


def test_a_full_copy_is_followed_by_the_next(
    cluster: KubernetesCluster, namespace: str, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_maps, "MOST_OWNERS", 2)
    archive = code(b"", size=1_000_000)
    store = ConfigMapStore(cluster)
    jobs = [submit(name) for name in ("a", "b", "c", "d", "e")]
    sources = [store.keep(archive, job) for job in jobs]
    assert sources == [config_maps.source(archive, copy) for copy in (1, 1, 2, 2, 3)]
    expected = {1: ["a", "b"], 2: ["c", "d"], 3: ["e"]}
    assert owners(cluster, namespace) == {
        name: users for copy, users in expected.items() for name in config_maps.names(archive, copy)
    }
    assert store.keep(archive, jobs[2]) == config_maps.source(archive, 2), (
        "a job that already owns a copy gets no other copy"
    )


def test_a_copy_is_full_if_one_of_its_parts_is(
    cluster: KubernetesCluster, namespace: str, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collection removes the owners of one part after the owners of another part."""
    monkeypatch.setattr(config_maps, "MOST_OWNERS", 2)
    archive = code(b"", size=1_000_000)
    store = ConfigMapStore(cluster)
    for name in ("a", "b"):
        store.keep(archive, submit(name))
    [first, second] = config_maps.names(archive, 1)
    left = cluster.get(CONFIG_MAPS, first, namespace)["metadata"]["ownerReferences"][1:]
    cluster.patch(CONFIG_MAPS, first, {"metadata": {"ownerReferences": left}}, namespace)
    assert store.keep(archive, submit("c")) == config_maps.source(archive, 2)
    assert owners(cluster, namespace)[second] == ["a", "b"]


def test_a_config_map_with_the_most_owners_is_smaller_than_a_megabyte() -> None:
    archive = code(size=2 * config_maps.PART_BYTES)
    largest = config_maps.manifests(archive, 999, "n" * 63)[0]
    job = JobKey("n" * 63, "j" * 40, "0" * 36)
    largest["metadata"]["ownerReferences"] = [config_maps.owner_reference(job)] * config_maps.MOST_OWNERS
    assert len(json.dumps(largest)) <= 1_000_000


class Meddler:
    """A cluster that runs a function once before a request of one kind."""

    def __init__(self, cluster: KubernetesCluster, verb: str, meddle: Callable[[], object]) -> None:
        self._cluster, self._verb, self._meddle = cluster, verb, meddle
        self._done = False

    def __getattr__(self, name: str) -> Any:
        if name == self._verb and not self._done:
            self._done = True
            self._meddle()
        return getattr(self._cluster, name)


COMES, GOES = "another client comes", "the last owner goes"


@pytest.mark.parametrize(
    ("verb", "event"), [("get", COMES), ("get", GOES), ("create", COMES), ("patch", COMES), ("patch", GOES)]
)
def test_whatever_happens_before_a_request_the_job_owns_its_code(
    cluster: KubernetesCluster, namespace: str, submit: Submit, found: Callable[..., Any], verb: str, event: str
) -> None:
    archive = code(b"print(1)", size=1_000_000)
    [first, second] = config_maps.names(archive, 1)
    other, mine = submit("other"), submit("mine")
    store = ConfigMapStore(cluster)
    store.keep(archive, other)

    def meddle() -> None:
        if event == COMES:
            store.keep(archive, submit("third"))
        else:
            for name in (first, second):
                cluster.delete(CONFIG_MAPS, name, namespace)

    if verb == "create":
        for name in (first, second):
            cluster.delete(CONFIG_MAPS, name, namespace)
    source = ConfigMapStore(Meddler(cluster, verb, meddle), pause=lambda _: None).keep(archive, mine)  # type: ignore[arg-type]
    assert found(source, archive, "mine")["0.py"] == b"print(1)"
    expected = {"mine", "third"} if event == COMES else {"mine"}
    assert all(expected <= set(users) for users in owners(cluster, namespace).values()), "no owner is lost"


def test_the_last_owner_takes_the_code_along(
    embedded_cluster: KubernetesCluster, namespace: str, embedded_server: object
) -> None:
    archive = code(b"", size=1_000_000)
    store = ConfigMapStore(embedded_cluster)
    for name in ("one", "two"):
        metadata = embedded_cluster.create(TORCHJOBS, manifest(name), namespace)["metadata"]
        store.keep(archive, JobKey(namespace, name, metadata["uid"]))
    embedded_cluster.delete(TORCHJOBS, "one", namespace)
    until(lambda: owners(embedded_cluster, namespace), lambda seen: set(map(tuple, seen.values())) == {("two",)})
    embedded_cluster.delete(TORCHJOBS, "two", namespace)
    until(lambda: owners(embedded_cluster, namespace), lambda seen: seen == {})


def test_a_config_map_with_other_content_is_refused_with_the_command_that_helps(
    cluster: KubernetesCluster, namespace: str, submit: Submit
) -> None:
    archive = code(b"print(1)")
    forged = config_maps.manifests(archive, 1, namespace)[0]
    cluster.create(CONFIG_MAPS, {**forged, "binaryData": {"part": "AAAA"}}, namespace)
    name = forged["metadata"]["name"]
    with pytest.raises(StoreFailed, match=f"kubectl -n {namespace} delete configmap {name}"):
        ConfigMapStore(cluster).keep(archive, submit("one"))


class Restless:
    """A cluster whose ConfigMap another client changes before every patch."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def patch(self, *_: Any, **__: Any) -> Manifest:
        raise errors.Conflict("somebody was faster")


def test_a_part_that_changes_again_and_again_is_named(
    embedded_cluster: KubernetesCluster, namespace: str, embedded_server: object
) -> None:
    archive: Archive = code(b"print(1)")
    jobs = []
    for name in ("one", "two"):
        metadata = embedded_cluster.create(TORCHJOBS, manifest(name), namespace)["metadata"]
        jobs.append(JobKey(namespace, name, metadata["uid"]))
    ConfigMapStore(embedded_cluster).keep(archive, jobs[0])
    pauses: list[float] = []
    store = ConfigMapStore(Restless(embedded_cluster), pause=pauses.append)  # type: ignore[arg-type]
    with pytest.raises(StoreFailed, match="changed 60 times in a row"):
        store.keep(archive, jobs[1])
    assert max(pauses) == 0.5


# Folders.


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"the code store .*gone cannot be used \(No such file or directory\)"):
        FolderStore(tmp_path / "gone").keep(code(b""), JobKey("a", "b", "c"))


def test_a_folder_has_whole_files_only(tmp_path: Path) -> None:
    archive = code(b"print(1)")
    path = tmp_path / f"{archive.digest}.tar.gz"
    path.write_bytes(archive.content[:10])
    FolderStore(tmp_path).keep(archive, JobKey("a", "b", "c"))
    assert path.read_bytes() == archive.content
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
