"""The downward API: files with the metadata of a pod, and start gates that use these files."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.api_resources import PODS, Resource
from embedded import downward, pod_requirements
from embedded import pod as pod_fields
from embedded.layout import Layout
from embedded.node.pods import container_environment
from embedded.node.pods.volumes import Volumes
from embedded.node.runs import container_processes
from embedded.volume_files import File
from tests.embedded.node.test_environment import ALLOCATABLE, container, place, pod
from tests.support.embedded.stage import Stage, terminated
from tests.support.waiting import until

CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
METADATA = {
    "name": "p",
    "namespace": "ns",
    "uid": "u",
    "labels": {"b": "2", "a": "1"},
    "annotations": {"note": 'say "hi"\nü', "empty": ""},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels", 'a="1"\nb="2"'),
        ("metadata.annotations", 'empty=""\nnote="say \\"hi\\"\\nü"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['c']", ""),
        ("metadata.annotations['note']", 'say "hi"\nü'),
        ("metadata.annotations['']", None),
        ("metadata.creationTimestamp", None),
        ("spec.nodeName", None),
    ],
)
def test_field_returns_the_value_of_a_field_path(path: str, expected: str | None) -> None:
    assert downward.field(path, METADATA) == expected


def item(path: Any, field: str = "metadata.name", **more: Any) -> dict[str, Any]:
    return {"path": path, "fieldRef": {"fieldPath": field}, **more}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (None, None),
        ([item("a"), item("deep/down", "metadata.labels['x']", mode=0o400)], None),
        ([item("/a")], "items[0].path"),
        ([item("../a")], "items[0].path"),
        ([item("a/../../b")], "items[0].path"),
        ([item("")], "items[0].path"),
        ([item("./a")], "items[0].path"),
        ([item("a/")], "items[0].path"),
        ([item("a"), item("a")], "items[1].path: 'a' overlaps with the path of another item"),
        ([item("a/b"), item("a")], "items[1].path: 'a' overlaps with the path of another item"),
        ([item("a"), item("a/b")], "items[1].path: 'a/b' overlaps with the path of another item"),
        ([item("a/b"), item("a/c"), item("ab")], None),
        ([item("a\0b")], "items[0].path"),
        ([item(5)], "items[0].path"),
        ([item("a"), item("b", "status.podIP")], "items[1].fieldRef.fieldPath: 'status.podIP'"),
        ([{"path": "a"}], "items[0].fieldRef.fieldPath"),
        ([{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}], "items[0].resourceFieldRef"),
        ([item("a", mode=0o7777)], "items[0].mode"),
        ([5], "cannot be read"),
    ],
)
def test_a_downward_api_volume_with_an_invalid_item_is_rejected(items: Any, words: str | None) -> None:
    spec = {"containers": [container()], "volumes": [{"name": "v", "downwardAPI": {"items": items}}]}
    verdict = pod_requirements.refusal(spec, {}, ALLOCATABLE)
    assert (verdict is None) if words is None else (verdict is not None and words in verdict.message)


MOUNT = {"name": "my-data", "mountPath": "/data"}
SAID = [{"name": "TORCHQ_VOLUME_MY_DATA", "value": "/data"}]


@pytest.mark.parametrize("source", [{"emptyDir": {}}, {"hostPath": {"path": "/elsewhere"}}, {"downwardAPI": {}}])
@pytest.mark.parametrize(
    ("env", "mount", "accepted"),
    [
        (SAID, MOUNT, True),
        ([], MOUNT, False),
        ([{**SAID[0], "value": "/other"}], MOUNT, False),
        ([{**SAID[0], "name": "TORCHQ_VOLUME_OTHER"}], MOUNT, False),
        (SAID, {**MOUNT, "subPath": "x"}, False),
    ],
)
def test_a_mount_is_accepted_only_if_a_variable_declares_its_path(
    source: dict[str, Any], env: list[dict[str, str]], mount: dict[str, str], accepted: bool
) -> None:
    wanted = container(env=[*env, {"name": "FILE", "value": "$(TORCHQ_VOLUME_MY_DATA)/x"}], volumeMounts=[mount])
    spec = {"containers": [wanted], "volumes": [{"name": "my-data", **source}]}
    verdict = pod_requirements.refusal(spec, {}, ALLOCATABLE)
    assert (verdict is None) is accepted
    assert accepted or (verdict is not None and "declare TORCHQ_VOLUME_MY_DATA with" in verdict.message)
    if accepted:
        found = container_environment.environment(pod(wanted), wanted, place(volumes={"my-data": "/folder"}))
        assert (found["TORCHQ_VOLUME_MY_DATA"], found["FILE"]) == ("/folder", "/folder/x")


def manifest(**annotations: str) -> dict[str, Any]:
    items = [item("notes/x", "metadata.annotations['x']"), item("all", "metadata.annotations", mode=0o600)]
    return {
        "metadata": {**METADATA, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations},
        "spec": {"containers": [container()], "volumes": [{"name": "v", "downwardAPI": {"items": items}}]},
    }


def test_publish_replaces_changed_files_atomically_and_keeps_the_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    volumes, folder = Volumes(layout, pod_fields.read(manifest())), layout.volume("u", "v")
    volumes.publish(pod_fields.read(manifest(x="1")))
    assert ((folder / "notes/x").read_text(), (folder / "all").read_text()) == ("1", 'x="1"')
    assert (folder / "all").stat().st_mode & 0o777 == 0o600
    before = (folder / "notes/x").stat().st_ino
    volumes.publish(pod_fields.read(manifest(x="1", y="2")))
    assert (folder / "notes/x").stat().st_ino == before
    assert (folder / "all").read_text() == 'x="1"\ny="2"'

    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add((folder / "notes/x").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    texts = [letter * 100_000 for letter in "abcdefgh"]
    for text in texts:
        volumes.publish(pod_fields.read(manifest(x=text)))
    over.set()
    reader.join()
    assert seen <= {"1", *texts}
    assert sorted(os.listdir(folder)) == ["all", "notes"]


def test_files_have_the_mode_of_their_item_or_of_the_volume() -> None:
    volume = {"name": "v", "downwardAPI": {"defaultMode": 0o640, "items": [item("a"), item("b", mode=0o600)]}}
    assert list(downward.files(volume, METADATA)) == [File("a", b"p", 0o640), File("b", b"p", 0o600)]
    assert list(downward.files({"name": "v", "emptyDir": {}}, METADATA)) == []


GATE = ["sh", "-c", 'until [ -s "$TORCHQ_VOLUME_TORCHQ_START/open" ]; do sleep 0.2; done']


def gated(stage: Stage, *command: str, **options: Any) -> str:
    """Create a pod whose init container waits for the start annotation, and return its name."""
    items = [item("open", f"metadata.annotations['{labels.START}']")]
    gate = {
        "command": GATE,
        "volumeMounts": [{"name": "torchq-start", "mountPath": "/etc/torchq", "readOnly": True}],
        "env": [{"name": "TORCHQ_VOLUME_TORCHQ_START", "value": "/etc/torchq"}],
    }
    volumes = [{"name": "torchq-start", "downwardAPI": {"items": items}}]
    return stage.run(*command, init=[gate], volumes=volumes, **options)


def waiting(stage: Stage, name: str) -> dict[str, Any]:
    """Wait until the container of the gate runs, and return the status of the pod."""
    return stage.wait(
        name, lambda status: any("running" in each["state"] for each in status.get("initContainerStatuses", []))
    )


def open_gate(stage: Stage, name: str) -> None:
    stage.cluster.patch(PODS, name, {"metadata": {"annotations": {labels.START: "now"}}}, "default")


def test_a_pod_waits_at_its_gate_until_an_annotation_opens_it(stage: Stage) -> None:
    name = gated(stage, "echo", "through")
    status = waiting(stage, name)
    assert status["phase"] == "Pending"
    assert (stage.folder(name) / "volumes" / "torchq-start" / "open").read_text() == ""
    open_gate(stage, name)
    status = stage.phase(name, "Succeeded", "Failed")
    assert stage.log(name, "c0") == "through\n"
    assert terminated(status, kind="initContainerStatuses")["exitCode"] == 0


def test_a_pod_whose_gate_is_open_starts_without_a_wait(stage: Stage) -> None:
    name = gated(stage, "true", metadata={"annotations": {labels.START: "1"}})
    stage.phase(name, "Succeeded")


def test_deletion_ends_a_pod_that_waits_at_its_gate(stage: Stage) -> None:
    name = gated(stage, "true", terminationGracePeriodSeconds=600)
    waiting(stage, name)
    mark = stage.get(name)["metadata"]["uid"] + "/"
    until(lambda: container_processes.members(mark))
    folder = stage.folder(name)
    stage.delete(name)
    stage.wait_gone(name)  # long before the grace period ends, because SIGTERM is enough
    assert not container_processes.members(mark)
    until(folder.exists, lambda there: not there)


def test_deletion_of_an_owner_deletes_its_pod_that_waits_at_its_gate(stage: Stage) -> None:
    owner = stage.cluster.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, "default"
    )
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    name = gated(stage, "true", metadata={"ownerReferences": [{**reference, "controller": True}]})
    waiting(stage, name)
    stage.cluster.delete(CONFIG_MAPS, "owner", "default")
    stage.wait_gone(name)


def test_a_pod_is_deleted_although_a_volume_file_cannot_be_written(stage: Stage) -> None:
    script = 'cd "$TORCHQ_VOLUME_V"; rm name; mkdir -p name/x; echo done; sleep 600'
    volumes = [{"name": "v", "downwardAPI": {"items": [item("name", "metadata.annotations['x']")]}}]
    name = stage.run("sh", "-c", script, volumes=volumes, terminationGracePeriodSeconds=0)
    until(lambda: stage.log(name) if stage.phase(name, "Running") else "", bool)
    stage.cluster.patch(PODS, name, {"metadata": {"annotations": {"x": "y"}}}, "default")
    stage.delete(name)
    stage.wait_gone(name)


def test_volume_files_follow_the_metadata_of_a_running_pod(stage: Stage) -> None:
    script = 'while ! grep -q colour=.red "$TORCHQ_VOLUME_V/labels"; do sleep 0.02; done; cat "$TORCHQ_VOLUME_V/name"'
    items = [item("labels", "metadata.labels"), item("name", "metadata.name")]
    name = stage.run("sh", "-c", script, volumes=[{"name": "v", "downwardAPI": {"items": items}}])
    stage.phase(name, "Running")
    stage.cluster.patch(PODS, name, {"metadata": {"labels": {"colour": "red"}}}, "default")
    stage.phase(name, "Succeeded")
    assert stage.log(name) == name


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('echo "what went wrong" > "$TORCHELASTIC_ERROR_FILE"; exit 1', "what went wrong\n"),
        ('head -c 5000 /dev/zero | tr "\\\\0" x > "$TORCHELASTIC_ERROR_FILE"; exit 1', "x" * 4096),
        ("echo the log; exit 1", "the log"),
    ],
)
def test_a_failed_container_reports_its_termination_message(stage: Stage, script: str, expected: str) -> None:
    wants = {
        "env": [{"name": "TORCHELASTIC_ERROR_FILE", "value": "/dev/termination-log"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    name = stage.run("sh", "-c", script, container=wants)
    assert terminated(stage.phase(name, "Failed"))["message"] == expected


def test_each_run_of_a_container_has_its_own_termination_message(stage: Stage) -> None:
    script = 'test -e "$TORCHQ_VOLUME_V/x" && exit 0; touch "$TORCHQ_VOLUME_V/x"; echo first > "$SAY"; exit 1'
    wants = {"env": [{"name": "SAY", "value": "/tmp/said"}], "terminationMessagePath": "/tmp/said"}
    volumes = [{"name": "v", "emptyDir": {}}]
    name = stage.run("sh", "-c", script, container=wants, policy="OnFailure", volumes=volumes)
    (status,) = stage.phase(name, "Succeeded")["containerStatuses"]
    assert status["lastState"]["terminated"]["message"] == "first\n"
    assert "message" not in status["state"]["terminated"]
