"""The requests that restore a backup: which objects are refused or left alone, and a restore that is killed at any
call.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.cli.backup import restore_requests
from coordinator.cli.backup.restore_requests import Interrupted, Refused
from coordinator.cli.manifest_files import BadManifest
from crds import labels
from crds.api_resources import PODS, TENANT_QUEUES, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from tests.support.coordinator.backups import WHEN, Killed, Mortal, run, waiting
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import Desk, manifest


def ended(name: str, namespace: str, phase: str = "Succeeded", **spec: Any) -> Manifest:
    """Return a finished job as it stands in a backup."""
    condition = {"type": phase, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": WHEN}
    status = {"phase": phase, "completionTime": WHEN, "attempt": 2, "observedGeneration": 4}
    return waiting(name, namespace, **spec) | {
        "status": status | {"conditions": [condition | {"observedGeneration": 4}], "selector": f"uid=old-{name}"}
    }


def queue(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": TENANT_QUEUES.api_version,
        "kind": "TenantQueue",
        "metadata": {"name": name, "creationTimestamp": WHEN},
        "spec": {"weight": 1} | spec,
        "status": {"pending": 7},
    }


def test_a_finished_job_gets_its_end_and_its_old_spec(cluster: KubernetesCluster, namespace: str) -> None:
    body = ended("train", namespace, "Failed", backoffLimit=2)
    assert run(cluster, queue("a"), body) == [
        "tenantqueue a: restored",
        f"torchjob {namespace}/train: restored as it ended, Failed",
    ]
    found = cluster.get(TORCHJOBS, "train", namespace)
    generation, status = found["metadata"]["generation"], found["status"]
    assert (found["spec"].get("suspend", False), found["spec"]["backoffLimit"]) == (False, 2)
    assert (status["phase"], status["attempt"], status["completionTime"]) == ("Failed", 2, WHEN)
    assert (status["observedGeneration"], status["conditions"][0]["observedGeneration"]) == (generation, generation)
    assert status["selector"] == f"uid={found['metadata']['uid']}"
    assert status["restoredFrom"] == {"uid": "old-train", "created": WHEN}, "the history has one job"
    assert "status" not in cluster.get(TENANT_QUEUES, "a"), "the coordinator counts attempts anew"


def test_an_unfinished_job_waits_again_and_a_suspended_one_stays_suspended(
    cluster: KubernetesCluster, namespace: str
) -> None:
    told = run(cluster, waiting("train", namespace), waiting("paused", namespace, suspend=True))
    assert [each.rpartition(": ")[2] for each in told] == ["stays suspended", "waits again"]
    found = {item["metadata"]["name"]: item for item in cluster.list(TORCHJOBS, namespace).items}
    assert all("status" not in item for item in found.values()), "the admission belongs to the old cluster"
    assert {name: bool(item["spec"].get("suspend")) for name, item in found.items()} == {"train": False, "paused": True}


def test_objects_that_exist_are_left_as_they_are(cluster: KubernetesCluster, namespace: str) -> None:
    cluster.create(TENANT_QUEUES, queue("a", weight=5))
    cluster.create(TORCHJOBS, manifest("train"), namespace)
    before = cluster.get(TORCHJOBS, "train", namespace)
    assert run(cluster, queue("a"), ended("train", namespace)) == [
        "tenantqueue a: exists: left as it is, with another spec than in the backup",
        f"torchjob {namespace}/train: exists: left as it is",
    ]
    assert cluster.get(TORCHJOBS, "train", namespace) == before
    assert cluster.get(TENANT_QUEUES, "a")["spec"]["weight"] == 5


def test_jobs_that_were_about_to_be_deleted_are_not_restored(cluster: KubernetesCluster, namespace: str) -> None:
    over, leaving = ended("over", namespace, ttlSecondsAfterFinished=60), waiting("leaving", namespace)
    leaving["metadata"]["deletionTimestamp"] = WHEN
    told = run(cluster, over, leaving)
    assert sorted(told) == [
        f"torchjob {namespace}/leaving: not restored: it was being deleted",
        f"torchjob {namespace}/over: not restored: its ttlSecondsAfterFinished ended at 2026-01-01T00:01:00Z",
    ]
    assert cluster.list(TORCHJOBS, namespace).items == []


def test_nothing_is_created_if_the_server_refuses_one_object(cluster: KubernetesCluster, namespace: str) -> None:
    wrong, lost = waiting("wrong", namespace, backoffLimit=-1), waiting("lost", "no-such-namespace")
    good = [queue("a"), ended("good", namespace)]
    with pytest.raises(Refused) as refused:
        run(cluster, *good, wrong, lost)
    text = str(refused.value)
    assert text.startswith("the API server refuses 2 objects of the backup:")
    assert "FILE, item 3: " in text
    assert "spec.backoffLimit" in text
    assert "no-such-namespace" in text
    assert "create it first" in text
    assert cluster.list(TORCHJOBS, namespace).items == cluster.list(TENANT_QUEUES).items == []
    with pytest.raises(Refused, match="all others were restored"):
        run(cluster, *good, wrong, lost, skip_refused=True)
    assert [item["metadata"]["name"] for item in cluster.list(TORCHJOBS, namespace).items] == ["good"]


def test_a_dry_run_says_what_would_be_done(cluster: KubernetesCluster, namespace: str) -> None:
    assert run(cluster, waiting("train", namespace), dry_run=True) == [f"torchjob {namespace}/train: waits again"]
    assert cluster.list(TORCHJOBS, namespace).items == []


def test_the_command_notes_what_the_backup_lacks(torchq: Torchq, namespace: str, tmp_path: Path) -> None:
    request = {"apiVersion": TORCHJOBS.api_version, "kind": "ScaleIn", "metadata": {"name": "less"}}
    file = tmp_path / "backup.json"
    file.write_text(json.dumps({"kind": "List", "items": [waiting("train", namespace), request]}))
    said = torchq("restore", str(file))
    assert said.stdout == f"torchjob {namespace}/train: waits again\n"
    assert "note: there is no TenantQueue a; waiting jobs that name it: 1\n" in said.stderr
    assert "note: scale requests that are not restored: 1\n" in said.stderr
    assert "1 restored on torchq-local, 0 left as they are, 0 skipped" in said.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ('{"kind": "List", "items": [', "not JSON"),
        ("kind: [", "not YAML"),
        ("", "no TorchJob, no TenantQueue and no ModelVersion"),
        ('{"kind": "List", "items": []}', "no TorchJob, no TenantQueue and no ModelVersion"),
        ("- a\n", "not a Kubernetes object"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "backup"
    file.write_text(text)
    with pytest.raises(BadManifest, match=words) as refused:
        restore_requests.read([str(file)])
    assert str(refused.value).startswith(str(file))


def test_a_server_that_fails_midway_is_named_and_the_run_can_be_repeated(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    class Full:
        def create(self, resource: Any, body: Manifest, *arguments: Any, dry_run: bool = False) -> Manifest:
            if body["metadata"]["name"] == "second" and not dry_run:
                raise errors.Forbidden("exceeded quota: jobs")
            return embedded_cluster.create(resource, body, *arguments, dry_run=dry_run)

        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

    jobs = ended("first", namespace), waiting("second", namespace)
    with pytest.raises(Interrupted, match=r"torchjob .*second: exceeded quota: jobs\n1 of 2 objects were handled"):
        run(Full(), *jobs)
    assert run(embedded_cluster, *jobs) == [
        f"torchjob {namespace}/first: restored earlier",
        f"torchjob {namespace}/second: waits again",
    ]


@pytest.mark.parametrize("reacts", [False, True], ids=["at once", "after the worker"])
def test_no_finished_job_runs_if_the_command_is_killed_at_any_write(desk: Desk, namespace: str, reacts: bool) -> None:
    """The coordinator and a worker act on whatever the killed command has left; a second restore completes the job."""
    desk.queue("a")
    desk.begin()
    for writes in (1, 2, 3, 4):
        for after in (False, True):
            body = ended(f"train-{writes}-{after:d}", namespace)
            with pytest.raises(Killed):
                run(Mortal(desk.cluster, writes, after), body)
            if reacts and (writes, after) != (1, False):
                _settle(desk, namespace, body["metadata"]["name"])
            run(desk.cluster, body)
            key = _settle(desk, namespace, body["metadata"]["name"])
            found = desk.cluster.get(TORCHJOBS, key.name, namespace)
            assert (found["status"]["phase"], found["spec"].get("suspend", False)) == ("Succeeded", False)
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
            assert found["status"]["attempt"] == 2, "the job was never admitted again"
    assert desk.cluster.list(PODS, namespace).items == []


def _settle(desk: Desk, namespace: str, name: str) -> JobKey:
    """Run coordinator and worker until the job is suspended or has succeeded. Return its key."""
    key = JobKey(namespace, name, desk.cluster.get(TORCHJOBS, name, namespace)["metadata"]["uid"])
    desk.until(lambda: desk.phase(key) in ("Suspended", "Succeeded"))
    return key


def test_a_job_that_its_owner_resumed_before_it_got_its_end_is_left_alone(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    body = ended("train", namespace)
    with pytest.raises(Killed):
        run(Mortal(embedded_cluster, 1, after=True), body)
    embedded_cluster.patch(TORCHJOBS, "train", {"spec": {"suspend": False}}, namespace)
    (told,) = run(embedded_cluster, body)
    assert "exists: it was resumed before it got its end" in told
    assert "status" not in embedded_cluster.get(TORCHJOBS, "train", namespace)


def test_a_write_of_a_worker_in_between_costs_only_another_try(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    class Raced:
        raced = False

        def patch(self, *arguments: Any, **options: Any) -> Manifest:
            if options.get("resource_version") and not self.raced:
                self.raced = True
                embedded_cluster.patch(
                    TORCHJOBS,
                    "train",
                    {"status": {"phase": "Suspended", "tenantQueue": "a"}},
                    namespace,
                    subresource="status",
                )
            return embedded_cluster.patch(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

    run(Raced(), ended("train", namespace))
    status = embedded_cluster.get(TORCHJOBS, "train", namespace)["status"]
    assert (status["phase"], "tenantQueue" in status) == ("Succeeded", False)


def test_jobs_of_one_second_keep_their_order(embedded_cluster: KubernetesCluster, namespace: str) -> None:
    run(embedded_cluster, *(waiting(name, namespace) for name in ("m-10", "m-9", "a")))
    found = embedded_cluster.list(TORCHJOBS, namespace).items
    places = {item["metadata"]["annotations"][labels.SUBMITTED].partition(".")[2]: item for item in found}
    assert [places[place]["metadata"]["name"] for place in ("0", "1", "2")] == ["a", "m-9", "m-10"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            errors.Invalid("suspend may not change"),
            "its spec.suspend stays true: the CustomResourceDefinitions are older",
        ),
        (errors.NotFound("gone"), "restored as it ended, Succeeded, and deleted since"),
    ],
)
def test_what_happens_to_a_job_after_it_got_its_end_does_not_stop_the_others(
    embedded_cluster: KubernetesCluster, namespace: str, error: errors.ClusterError, words: str
) -> None:
    class Refusing:
        def patch(self, *arguments: Any, **options: Any) -> Manifest:
            if options.get("subresource") or options.get("dry_run"):
                return embedded_cluster.patch(*arguments, **options)
            raise error

        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

    first, second = run(Refusing(), ended("first", namespace), waiting("second", namespace))
    assert words in first
    assert second.endswith("waits again")
