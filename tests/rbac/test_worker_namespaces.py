"""A worker that may create pods in some namespaces only: the worker starts, and the status of a job in another
namespace has the reason.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from coordinator.cli import main
from coordinator.rbac import account_manifests, preflight
from coordinator.rbac.permissions import STANDING, WORKER
from coordinator.settings import Settings
from coordinator.worker.caches import WorkerCaches
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from tests.support.coordinator.desk import clear, manifest, task
from tests.support.rbac.access import TENANT, Access
from tests.support.rbac.scenes import Stage

SETTINGS = Settings(gang_scheduler="none", in_place="recreate")
ELSEWHERE = "default"


@pytest.fixture
def stage(
    access: Access, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> Iterator[Stage]:
    yield Stage(access, monkeypatch, caplog, tmp_path)
    clear(access.admin)


def printed(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main.main, ["rbac", *arguments], prog_name="torchq")
    assert result.exit_code == code, result.output
    return list(yaml.safe_load_all(result.output)) if code == 0 else []


def granted(documents: list[dict[str, Any]], name: str) -> set[tuple[str, str, str]]:
    [role] = [each for each in documents if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name]
    return {(rule["apiGroups"][0], rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]}


def test_the_two_roles_together_grant_what_the_single_role_grants() -> None:
    whole, split = printed("worker"), printed("worker", "--namespaces", "a,b")
    wide, narrow = granted(split, "torchq-worker"), granted(split, "torchq-worker-namespaced")
    assert wide | narrow == granted(whole, "torchq-worker")
    assert not wide & narrow


def test_the_cluster_wide_role_writes_only_the_status_of_jobs() -> None:
    writes = {asked for asked in granted(printed("worker", "--namespaces", "a"), "torchq-worker")
              if asked[2] not in ("get", "list", "watch")}  # fmt: skip
    assert writes == {(TORCHJOBS.group, "torchjobs/status", "patch")}


def test_each_namespace_gets_a_binding_of_the_account() -> None:
    documents = printed("--namespaces", "a, b,a")
    bound = [
        each for each in documents if each["metadata"]["name"] == "torchq-worker-namespaced" and "subjects" in each
    ]
    assert [(each["kind"], each["metadata"]["namespace"]) for each in bound] == [
        ("RoleBinding", "a"),
        ("RoleBinding", "b"),
    ]
    for each in bound:
        assert each["roleRef"] == {
            "apiGroup": account_manifests.RBAC,
            "kind": "ClusterRole",
            "name": "torchq-worker-namespaced",
        }
        assert each["subjects"] == [{"kind": "ServiceAccount", "name": "torchq-worker", "namespace": "torchq-system"}]
    others = [name for name in STANDING if name != "worker"]
    assert [each for each in printed(*others) if each not in documents] == []


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--namespaces", wrong) for wrong in ("", "a,", "a b", "A", "a/b", "x" * 64)),
        ("coordinator", "--namespaces", "a"),
        ("--tenant", "a", "--namespaces", "a"),
    ],
    ids=str,
)  # fmt: skip
def test_rbac_rejects_invalid_namespaces_arguments(arguments: tuple[str, ...]) -> None:
    printed(*arguments, code=2)


def test_a_namespaced_worker_starts_and_follows_the_cluster(access: Access, caplog: pytest.LogCaptureFixture) -> None:
    with access.narrowed(TENANT) as worker, caplog.at_level(logging.INFO):
        preflight.check(worker, WORKER, SETTINGS)
        caches = WorkerCaches(worker, SETTINGS)
        caches.start()
        try:
            caches.wait()
            assert not any(informer.failing for informer in caches.informers)
        finally:
            caches.stop()
    assert "torchq rbac worker --namespaces" in caplog.text


def test_a_namespaced_worker_creates_pods_in_a_granted_namespace(stage: Stage) -> None:
    with stage.access.narrowed(TENANT) as worker:
        assert stage.reconcile(stage.job(), worker=worker) == ""
    assert len(stage.admin.list(PODS, TENANT).items) == 1


def test_a_job_of_another_namespace_gives_pods_forbidden(stage: Stage) -> None:
    body = manifest("train", TENANT, {"Master": task()})
    key = JobKey(ELSEWHERE, "train", stage.admin.create(TORCHJOBS, body, ELSEWHERE)["metadata"]["uid"])
    with stage.access.narrowed(TENANT) as worker:
        said = stage.reconcile(key, worker=worker)
    found = stage.admin.get(TORCHJOBS, "train", ELSEWHERE)["status"]["conditions"]
    [admitted] = [each for each in found if each["type"] == "Admitted"]
    assert admitted["reason"] == "PodsForbidden"
    assert 'cannot create resource "pods"' in admitted["message"]
    assert f'in the namespace "{ELSEWHERE}"' in admitted["message"]
    assert "--namespaces" in admitted["message"]
    assert "Traceback" not in said
    assert stage.admin.list(PODS, ELSEWHERE).items == []
