"""Jobs that are submitted together wait in the order of their files and documents. The order of their names does not
count.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from coordinator.cli import submission
from crds import labels
from crds.api_resources import TORCHJOBS
from crds.torchjob.torchjob import TorchJob
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import Desk, manifest

NAMES = [f"m-{number}" for number in (3, 1, 110, 2, 12, 20)]
"""Names in the order of the files, which is neither alphabetical nor numerical."""


def files(folder: Path) -> list[str]:
    """Write two files of several documents each and return their paths."""
    paths = [folder / "one.yaml", folder / "two.yaml"]
    for path, names in zip(paths, (NAMES[:4], NAMES[4:]), strict=True):
        path.write_text(yaml.safe_dump_all([manifest(name, "a") for name in names]))
    return [str(path) for path in paths]


@pytest.fixture
def one_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every job the same time of creation, however long the API server takes."""
    monkeypatch.setattr(TorchJob, "submission_time", property(lambda _: 1_764_000_000.0))


def in_order(desk: Desk) -> list[str]:
    views = {view.spec.name: view for view in desk.store.snapshot(100).queues}
    return [waiting.entry.key.name for waiting in views["a"].heads]


@pytest.mark.usefixtures("one_second")
def test_jobs_of_one_submit_wait_in_the_order_of_files_and_documents(
    desk: Desk, torchq: Torchq, tmp_path: Path
) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    torchq("submit", *files(tmp_path))
    desk.until(lambda: len(desk.waiting()) == len(NAMES), worker=False)
    assert in_order(desk) == NAMES
    listed = torchq("job", "list", "--no-headers").stdout.splitlines()
    assert [line.split()[1] for line in listed] == NAMES
    desk.lose()
    desk.begin(2)
    assert in_order(desk) == NAMES


@pytest.mark.usefixtures("one_second")
def test_jobs_of_kubectl_wait_after_those_of_submit_and_keep_their_place(
    desk: Desk, embedded_cluster: KubernetesCluster, namespace: str, torchq: Torchq, tmp_path: Path
) -> None:
    desk.queue("a", stopPolicy="Hold")
    desk.begin()
    for name in ("m-0", "m-1000"):
        desk.submit(name, namespace, "a")
    torchq("submit", *files(tmp_path))
    desk.until(lambda: len(desk.waiting()) == len(NAMES) + 2, worker=False)
    assert in_order(desk) == [*NAMES, "m-0", "m-1000"]
    versions = {each.key: each.version for each in desk.watches.jobs.values()}
    for name, annotation in (("m-1000", "0.0"), (NAMES[0], None)):
        patch = {"metadata": {"annotations": {labels.SUBMITTED: annotation}}}
        embedded_cluster.patch(TORCHJOBS, name, patch, namespace)
    desk.until(
        lambda: sum(each.version != versions[each.key] for each in desk.watches.jobs.values()) == 2, worker=False
    )
    desk.change(next(key for key in desk.waiting() if key.name == "m-1000"), backoffLimit=3)
    desk.until(lambda: not desk.term.flush(), worker=False)
    assert in_order(desk) == [*NAMES, "m-0", "m-1000"]


def test_documents_of_one_submit_share_a_time_and_are_numbered(tmp_path: Path) -> None:
    documents = submission.read(files(tmp_path), "team", "/home/me")
    placed = submission.in_sequence(documents, 1764000000123456)
    found = [each.body["metadata"]["annotations"][labels.SUBMITTED] for each in placed]
    assert found == [f"1764000000123456.{place}" for place in range(len(NAMES))]
    assert all(each.body["metadata"]["annotations"][labels.SUBMIT_DIRECTORY] == "/home/me" for each in placed)


@pytest.mark.parametrize("written", ["1.0", "nonsense", 7, None])
def test_submit_replaces_the_submission_annotation_of_a_file(tmp_path: Path, written: Any) -> None:
    body = manifest("again")
    body["metadata"]["annotations"] = {labels.SUBMITTED: written}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(body))
    [placed] = submission.in_sequence(submission.read([str(path)], "team", "/home/me"), 5)
    assert placed.body["metadata"]["annotations"][labels.SUBMITTED] == "5.0"
