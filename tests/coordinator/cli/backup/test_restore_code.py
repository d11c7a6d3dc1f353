"""The code of `torchq run` jobs in a backup: the code is restored, with the new job as its owner, before the job may
run.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.cache import own_installation
from coordinator.cli.backup import saved
from coordinator.cli.backup.code import CodeName
from coordinator.cli.backup.restore_requests import Interrupted, Refused
from coordinator.cli.manifest_files import BadManifest
from coordinator.code import config_maps
from coordinator.code.archive import Archive
from coordinator.code.config_map_store import ConfigMapStore
from coordinator.runs import manifest
from coordinator.runs.manifest import RunCode
from coordinator.runs.request import parse
from crds import labels
from crds.api_resources import CONFIG_MAPS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.api import Cluster, Manifest
from kube.client import KubernetesCluster
from queues.installation import Installation
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.coordinator import code_stores
from tests.support.coordinator.backups import WHEN, Killed, Mortal, run
from tests.support.coordinator.command import Torchq
from tests.support.waiting import until

CODE = code_stores.code(b"print(1)")
LARGE = code_stores.code(b"print(2)", size=config_maps.PART_BYTES)


def old_run(name: str, namespace: str, archive: Archive = CODE, *, copy: int = 1, **policy: Any) -> Manifest:
    """Return an admitted job of `torchq run` as it stands in a backup."""
    request = parse(
        {"name": name, "namespace": namespace, "folder": "/x", "image": "i", "command": ["python", "train.py"]}
    )
    code = RunCode(archive.digest, config_maps.source(archive, copy), code_stores.UNPACK)
    body = manifest.build(request, name, code, "")
    if policy:
        body["spec"]["schedulingPolicy"] = policy
    body["metadata"] |= {"uid": f"old-{name}", "creationTimestamp": WHEN}
    return body | {"status": {"phase": "Running", "admission": {"queue": "a", "attempt": 1, "epoch": 1}}}


def old_code(namespace: str, archive: Archive = CODE, copy: int = 1, *owners: str) -> list[Manifest]:
    """Return the ConfigMaps of code as they stand in a backup."""
    found = config_maps.manifests(archive, copy, namespace)
    references = [config_maps.owner_reference(JobKey(namespace, each, f"old-{each}")) for each in owners or ("train",)]
    return [
        each | {"metadata": each["metadata"] | {"uid": "old", "resourceVersion": "5", "ownerReferences": references}}
        for each in found
    ]


def owners(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    """Return the uids of the owners of each ConfigMap with code."""
    return {
        item["metadata"]["name"]: sorted(each["uid"] for each in item["metadata"].get("ownerReferences") or ())
        for item in cluster.list(CONFIG_MAPS, namespace).items
        if config_maps.is_name(item["metadata"]["name"])
    }


def awaits_code(job: Manifest) -> bool:
    return labels.CODE_PENDING in job["metadata"]["annotations"]


def hold(job: Manifest) -> bool | None:
    found: bool | None = (job["spec"].get("schedulingPolicy") or {}).get("hold")
    return found


@pytest.mark.parametrize("archive", [CODE, LARGE], ids=["one part", "two parts"])
def test_a_job_gets_its_code_back_with_itself_as_the_owner(
    cluster: KubernetesCluster, namespace: str, tmp_path: Path, archive: Archive
) -> None:
    assert run(cluster, *old_code(namespace, archive), old_run("train", namespace, archive)) == [
        f"torchjob {namespace}/train: waits again"
    ]
    job = cluster.get(TORCHJOBS, "train", namespace)
    names = config_maps.names(archive, 1)
    assert owners(cluster, namespace) == {name: [job["metadata"]["uid"]] for name in names}
    assert (hold(job), awaits_code(job)) == (None, False)
    files = code_stores.unpacked(cluster, namespace, config_maps.source(archive, 1), archive.digest, tmp_path)
    assert files["0.py"] in (b"print(1)", b"print(2)")


def test_a_suspended_job_and_one_on_hold_stay_so(cluster: KubernetesCluster, namespace: str) -> None:
    paused = old_run("paused", namespace)
    paused["spec"]["suspend"] = True
    told = run(cluster, old_run("held", namespace, hold=True, queue="a"), paused, *old_code(namespace))
    assert told == [f"torchjob {namespace}/held: stays on hold", f"torchjob {namespace}/paused: stays suspended"]
    found = {item["metadata"]["name"]: item for item in cluster.list(TORCHJOBS, namespace).items}
    assert {name: (hold(job), job["spec"].get("suspend")) for name, job in found.items()} == {
        "held": (True, None),
        "paused": (None, True),
    }
    assert not any(awaits_code(job) for job in found.values())


def test_jobs_share_code_and_a_finished_one_needs_none(cluster: KubernetesCluster, namespace: str) -> None:
    ended = old_run("ended", namespace, LARGE)
    ended["status"] = {"phase": "Succeeded", "conditions": [], "completionTime": WHEN}
    jobs = [old_run("first", namespace), old_run("second", namespace), ended]
    run(cluster, *jobs, *old_code(namespace), *old_code(namespace, LARGE))
    uids = sorted(cluster.get(TORCHJOBS, name, namespace)["metadata"]["uid"] for name in ("first", "second"))
    assert owners(cluster, namespace) == {config_maps.names(CODE, 1)[0]: uids}


def test_code_that_the_cluster_still_has_is_used_with_its_other_owners(
    cluster: KubernetesCluster, namespace: str
) -> None:
    other = cluster.create(TORCHJOBS, {**old_run("other", namespace), "status": {}}, namespace)
    ConfigMapStore(cluster).keep(CODE, JobKey.of(other))
    assert run(cluster, old_run("train", namespace)) == [f"torchjob {namespace}/train: waits again"]
    uids = [each["metadata"]["uid"] for each in (other, cluster.get(TORCHJOBS, "train", namespace))]
    assert owners(cluster, namespace) == {config_maps.names(CODE, 1)[0]: sorted(uids)}


def test_a_job_finds_its_code_in_another_copy_if_the_first_has_no_room(
    embedded_cluster: KubernetesCluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_maps, "MOST_OWNERS", 1)
    run(embedded_cluster, old_run("first", namespace), old_run("second", namespace, copy=2), *old_code(namespace))
    mounted = {
        item["metadata"]["name"]: item["spec"]["torchTaskSpecs"]["Master"]["template"]["spec"]["volumes"][1][
            "configMap"
        ]
        for item in embedded_cluster.list(TORCHJOBS, namespace).items
    }
    names = [config_maps.names(CODE, copy)[0] for copy in (1, 2)]
    assert mounted == {name: {"name": part} for name, part in zip(("first", "second"), names, strict=True)}
    assert [len(found) for _, found in sorted(owners(embedded_cluster, namespace).items())] == [1, 1]


@pytest.mark.parametrize("damage", ["all", "a part", "other content"])
def test_a_job_whose_code_is_missing_is_named_and_not_restored(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path, damage: str
) -> None:
    parts = {"all": [], "a part": old_code(namespace, LARGE)[1:], "other content": old_code(namespace, LARGE)}[damage]
    if damage == "other content":
        parts[0]["binaryData"] = parts[1]["binaryData"]
    items = [old_run("train", namespace, LARGE), *parts, old_run("whole", namespace), *old_code(namespace)]
    file = tmp_path / "backup.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    for options in (("--dry-run",), ()):
        said = torchq("restore", *options, str(file), code=1)
        assert said.stdout.splitlines() == [
            f"torchjob {namespace}/train: not restored: its code (ConfigMaps torchq-code-{LARGE.short}-...) is neither "
            "in the backup nor in the cluster",
            f"torchjob {namespace}/whole: waits again",
        ]
        assert "jobs whose code is missing, named above: 1." in said.stderr
        assert "kubectl get configmaps -A -l train.distributed.io/code -o json" in said.stderr
    assert [item["metadata"]["name"] for item in embedded_cluster.list(TORCHJOBS, namespace).items] == ["whole"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_restore_that_is_killed_at_any_write_leaves_at_most_a_job_on_hold_and_goes_on(
    embedded_cluster: KubernetesCluster, namespace: str, after: bool
) -> None:
    for writes in (1, 2, 3, 4):
        name = f"train-{writes}"
        backup = [old_run(name, namespace, LARGE), *old_code(namespace, LARGE)]
        with pytest.raises(Killed):
            run(Mortal(embedded_cluster, writes, after), *copy.deepcopy(backup))
        left = [each for each in embedded_cluster.list(TORCHJOBS, namespace).items if each["metadata"]["name"] == name]
        let_go = (writes, after) == (4, True)
        assert [(hold(each), awaits_code(each)) for each in left] == (
            [] if (writes, after) == (1, False) else [(None, False) if let_go else (True, True)]
        )
        (told,) = run(embedded_cluster, *backup)
        assert told == f"torchjob {namespace}/{name}: {'restored earlier' if let_go else 'waits again'}"
        job = embedded_cluster.get(TORCHJOBS, name, namespace)
        assert (hold(job), awaits_code(job)) == (None, False)
        uids = {part: [job["metadata"]["uid"]] for part in config_maps.names(LARGE, 1)}
        assert owners(embedded_cluster, namespace) == uids
        embedded_cluster.delete(TORCHJOBS, name, namespace)
        until(lambda: owners(embedded_cluster, namespace) == {})


def test_a_job_that_awaits_code_stays_on_hold_if_the_code_is_gone(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    with pytest.raises(Killed):
        run(Mortal(embedded_cluster, 1, after=True), old_run("train", namespace), *old_code(namespace))
    (told,) = run(embedded_cluster, old_run("train", namespace))
    assert "stays on hold: its code (ConfigMaps torchq-code-" in told
    assert hold(embedded_cluster.get(TORCHJOBS, "train", namespace)) is True


def test_a_status_that_is_written_meanwhile_costs_only_another_try(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    class Raced:
        raced = False

        def patch(self, resource: Any, name: str, body: Manifest, *arguments: Any, **options: Any) -> Manifest:
            if resource is TORCHJOBS and not self.raced:
                self.raced = True
                status = {"status": {"phase": "Queued"}}
                embedded_cluster.patch(TORCHJOBS, name, status, namespace, subresource="status")
            return embedded_cluster.patch(resource, name, body, *arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

    assert run(Raced(), old_run("train", namespace), *old_code(namespace)) == [
        f"torchjob {namespace}/train: waits again"
    ]
    assert hold(embedded_cluster.get(TORCHJOBS, "train", namespace)) is None


def test_code_of_another_content_in_the_cluster_is_named_and_the_job_stays_on_hold(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    [part] = config_maps.manifests(CODE, 1, namespace)
    embedded_cluster.create(CONFIG_MAPS, part | {"binaryData": {"part": "eA=="}}, namespace)
    backup = [old_run("train", namespace), *old_code(namespace)]
    with pytest.raises(Interrupted, match="has another content than its name says: delete it"):
        run(embedded_cluster, *copy.deepcopy(backup))
    assert hold(embedded_cluster.get(TORCHJOBS, "train", namespace)) is True
    embedded_cluster.delete(CONFIG_MAPS, part["metadata"]["name"], namespace)
    assert run(embedded_cluster, *backup) == [f"torchjob {namespace}/train: waits again"]


def test_code_that_the_server_refuses_is_named_before_anything_is_created(
    embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    class Refusing:
        def create(self, resource: Any, body: Manifest, *arguments: Any, **options: Any) -> Manifest:
            if resource is CONFIG_MAPS:
                raise errors.Invalid("too large")
            return embedded_cluster.create(resource, body, *arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(embedded_cluster, name)

    jobs = old_run("first", namespace), old_run("second", namespace)
    with pytest.raises(Refused, match="refuses 2 objects") as refused:
        run(Refusing(), *jobs, *old_code(namespace))
    assert "too large" in str(refused.value)
    assert embedded_cluster.list(TORCHJOBS, namespace).items == []


def test_a_secret_in_a_backup_is_refused_and_other_config_maps_are_left_out() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, "data": {"k": "aGk="}}
    with pytest.raises(BadManifest, match="Secret of v1 is neither") as refused:
        saved.read([("FILE", secret)])
    assert "aGk=" not in str(refused.value)
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine", "namespace": "n"}, "data": {"a": "b"}}
    found = saved.read([("FILE", {"kind": "List", "items": [mine, old_run("train", "n"), *old_code("n")]})])
    assert (found.config_maps, [*found.code]) == (1, [CodeName("n", CODE.short)])


def test_the_copies_of_one_code_are_not_mixed_up() -> None:
    first, second = old_code("n", LARGE), old_code("n", LARGE, 2)
    found = saved.read([("FILE", {"kind": "List", "items": [*second, first[1], old_run("train", "n", LARGE)]})])
    assert found.code[CodeName("n", LARGE.short)].content == LARGE.content


def test_restore_says_that_no_coordinator_leads_on_the_redis_of_the_cluster_before(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "backup.json"
    file.write_text(json.dumps({"kind": "List", "items": [old_run("train", namespace), *old_code(namespace)]}))
    own = own_installation.read(embedded_cluster, "kube-system")
    with redis_server.running(tmp_path / "socket") as url:
        client = connection.connect(url, client_name="test")
        theirs = RedisStore(client)
        theirs.claim(Installation("cluster-before", "kube-system"))
        theirs.rebuild(7, [], [])
        said = torchq("restore", str(file), TORCHQ_REDIS_URL=url).stderr
        assert "note: no coordinator can lead, and nothing is admitted: Redis at " in said
        assert f"this one is {own}" in said
        assert "`torchq redis adopt --yes`" in said
        torchq("redis", "adopt", "--yes", TORCHQ_REDIS_URL=url)
        assert "no coordinator can lead" not in torchq("restore", str(file), TORCHQ_REDIS_URL=url).stderr
        client.close()
