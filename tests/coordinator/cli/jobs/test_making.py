"""The creation of jobs by `torchq submit`: a second attempt, the replacement of a job, and Ctrl-C in the middle."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.api_resources import TORCHJOBS
from kube import errors
from kube.client import KubernetesCluster
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest

CREATE = KubernetesCluster.create
DELETE = KubernetesCluster.delete


@pytest.fixture
def jobs(tmp_path: Path) -> str:
    path = tmp_path / "jobs.yaml"
    path.write_text(yaml.safe_dump_all([manifest(f"job-{number}") for number in range(4)]))
    return str(path)


def names(cluster: KubernetesCluster, namespace: str) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.list(TORCHJOBS, namespace).items)


def test_a_second_try_names_the_commands_that_help(torchq: Torchq, jobs: str, namespace: str) -> None:
    torchq("submit", jobs)
    said = torchq("submit", jobs, code=1).stderr
    assert f"job {namespace}/job-0 already exists (Pending): --replace" in said
    assert f"torchq job delete {namespace}/job-0" in said
    assert "metadata.generateName" in said


def test_replace_deletes_the_jobs_of_these_names_first(
    torchq: Torchq, jobs: str, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    embedded_cluster.create(TORCHJOBS, manifest("job-2", "old"), namespace)
    result = torchq("submit", "--replace", jobs)
    assert result.stderr.splitlines() == [
        f"job {namespace}/job-2 deleted, to be replaced",
        "4 submitted on torchq-local",
    ]
    assert names(embedded_cluster, namespace) == [f"job-{number}" for number in range(4)]
    stored = embedded_cluster.get(TORCHJOBS, "job-2", namespace)
    assert stored["metadata"]["uid"] in result.stdout
    assert "queue" not in stored["spec"].get("schedulingPolicy", {})


def test_replace_deletes_nothing_if_a_job_is_not_valid(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    old = embedded_cluster.create(TORCHJOBS, manifest("train", "old"), namespace)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(manifest("train", backoffLimit=-1)))
    torchq("submit", "--replace", str(path), code=1)
    assert embedded_cluster.get(TORCHJOBS, "train", namespace)["metadata"]["uid"] == old["metadata"]["uid"]


def test_replace_waits_for_a_job_that_a_finalizer_keeps_and_says_so(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = manifest("train")
    old["metadata"]["finalizers"] = ["example.org/wait"]
    embedded_cluster.create(TORCHJOBS, old, namespace)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(manifest("train")))
    monkeypatch.setattr("coordinator.runs.launch.REPLACE_SECONDS", 0.0)
    said = torchq("submit", "--replace", str(path), code=1).stderr
    assert f"job {namespace}/train was deleted, and a finalizer keeps it: try again later" in said

    def pause(_: float) -> None:
        embedded_cluster.patch(TORCHJOBS, "train", {"metadata": {"finalizers": None}}, namespace)

    monkeypatch.setattr("coordinator.runs.launch.REPLACE_SECONDS", 60.0)
    monkeypatch.setattr("time.sleep", pause)
    torchq("submit", "--replace", str(path))
    assert names(embedded_cluster, namespace) == ["train"]


@pytest.mark.parametrize("named", [True, False], ids=["named", "generated"])
@pytest.mark.parametrize("made", [True, False], ids=["after the server has made it", "before"])
def test_ctrl_c_takes_back_what_was_made_also_a_job_whose_answer_never_came(
    torchq: Torchq,
    jobs: str,
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    made: bool,
    named: bool,
) -> None:
    if not named:
        Path(jobs).write_text(Path(jobs).read_text().replace("  name: job-", "  generateName: job-"))
    count = 0

    def interrupted(self: Any, resource: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += resource == TORCHJOBS and not options.get("dry_run")
        if count == 3 and resource == TORCHJOBS:
            if made:
                CREATE(self, resource, *arguments, **options)
            raise KeyboardInterrupt
        return CREATE(self, resource, *arguments, **options)

    monkeypatch.setattr(KubernetesCluster, "create", interrupted)
    result = torchq("submit", jobs, code=130)
    assert [handle.split("/")[1][:5] for handle in result.stdout.split()] == ["job-0", "job-1"]
    assert f"the {2 + made} that were are deleted again" in result.stderr
    assert names(embedded_cluster, namespace) == []


def test_a_second_ctrl_c_leaves_jobs_and_names_the_command_that_deletes_them(
    torchq: Torchq, jobs: str, embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, resource: Any, body: Any, *arguments: Any, **options: Any) -> Any:
        if (body.get("metadata") or {}).get("name") == "job-3" and not options.get("dry_run"):
            raise errors.Forbidden("exceeded quota")
        return CREATE(self, resource, body, *arguments, **options)

    def interrupted(self: Any, resource: Any, name: str, *arguments: Any, **options: Any) -> None:
        if name == "job-1":
            raise KeyboardInterrupt
        DELETE(self, resource, name, *arguments, **options)

    monkeypatch.setattr(KubernetesCluster, "create", full)
    monkeypatch.setattr(KubernetesCluster, "delete", interrupted)
    said = torchq("submit", jobs, code=1).stderr
    assert f"torchq job delete {namespace}/job-1 {namespace}/job-2" in said
    assert "exceeded quota" in said
    assert names(embedded_cluster, namespace) == ["job-1", "job-2"]
