"""The copies of a job's files on one machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli.rpc import output_files
from coordinator.cli.rpc.call_context import OpenCall
from crds.api_resources import TORCHJOBS
from kube.client import KubernetesCluster
from tests.support.coordinator.desk import manifest
from torchq._errors import Invalid, NotFound, Refused


class Place:
    """A job on one machine, its folder of files, and the call that copies them."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, data: Path) -> None:
        uid = cluster.create(TORCHJOBS, manifest("train"), namespace)["metadata"]["uid"]
        self.folder = data / "outputs" / namespace / f"train-{uid}"
        self.target = data / "copies"
        self.handle = f"{namespace}/train/{uid}"
        session = SimpleNamespace(cluster=cluster, target=SimpleNamespace(data=data), namespace=namespace)
        self.access: Any = SimpleNamespace(session=session)

    def write(self, *names: str) -> None:
        for name in names:
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(name)

    def copy(self, **params: Any) -> list[str]:
        return output_files.download(self.access, {"job": self.handle, "to": str(self.target), **params}, OpenCall())


@pytest.fixture
def place(embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path) -> Place:
    return Place(embedded_cluster, namespace, tmp_path)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("**", ["a.pt", "steps/1/b.pt", "steps/c.txt"]),
        ("*.pt", ["a.pt"]),
        ("**/*.pt", ["a.pt", "steps/1/b.pt"]),
        ("steps", ["steps/1/b.pt", "steps/c.txt"]),
        ("none*", []),
    ],
)
def test_the_files_that_match_are_copied(place: Place, pattern: str, names: list[str]) -> None:
    place.write("a.pt", "steps/1/b.pt", "steps/c.txt")
    assert place.copy(pattern=pattern) == names
    assert sorted(str(each.relative_to(place.target)) for each in place.target.rglob("*") if each.is_file()) == names
    assert all((place.target / name).read_text() == name for name in names)


def test_links_that_lead_out_of_the_folder_are_left_out(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    place.write("a.pt")
    (place.folder / "out").symlink_to(tmp_path / "secret")
    (place.folder / "in").symlink_to(place.folder / "a.pt")
    assert place.copy() == ["a.pt", "in"]


@pytest.mark.parametrize("pattern", ["../*", "/etc/*", "", "a/../../b"])
def test_a_pattern_that_leads_out_of_the_folder_is_refused(place: Place, pattern: str) -> None:
    place.write("a.pt")
    with pytest.raises(Invalid, match="pattern: must be a pattern inside the job's folder"):
        place.copy(pattern=pattern)


def test_a_folder_that_does_not_exist_or_takes_no_files_is_named(place: Place) -> None:
    with pytest.raises(NotFound, match="the job has no files"):
        place.copy()
    place.write("a.pt")
    place.target.write_text("a file")
    with pytest.raises(Refused, match=r"copies/a.pt cannot be written: File exists|Not a directory"):
        place.copy()
