"""Hostile pods on the embedded node: each pod is refused, fails with a message or ends, and no pod delays another
pod.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from crds.api_resources import PODS
from embedded import pod, pod_requirements
from embedded.apiserver import api_server as apiserver
from embedded.layout import Layout
from embedded.node.node import running_node
from embedded.scheduler import placement
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.placement import Bind, Wait
from kube import client, errors
from kube.settings import ConnectionSettings
from tests.support.embedded.stage import SETTINGS, Stage


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run a cluster with a node in this process."""
    layout = Layout(tmp_path_factory.mktemp("hostile"))
    with apiserver.running(layout) as server:
        cluster = client.connect(ConnectionSettings(kubeconfig=str(server.kubeconfig)))
        try:
            with running_node(cluster, layout, SETTINGS):
                yield Stage(cluster, layout, server.kubeconfig)
        finally:
            cluster.close()


REFUSED_OR_TOLD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a container name with a path": ({"name": "../../x"}, {}),
    "a volume name with a path": ({}, {"volumes": [{"name": "../../x", "emptyDir": {}}]}),
    "a volume of two kinds": ({}, {"volumes": [{"name": "x", "emptyDir": {}, "hostPath": {"path": "/"}}]}),
    "a path with NUL": ({}, {"volumes": [{"name": "x", "hostPath": {"path": "/\0"}}]}),
    "a volume without a path": ({}, {"volumes": [{"name": "x", "hostPath": {}}]}),
    "a command with NUL": ({"command": ["tr\0ue"]}, {}),
    "an empty command": ({"command": [""]}, {}),
    "a command of a megabyte": ({"command": ["x" * 1_000_000]}, {}),
    "arguments longer than the system allows": ({"command": ["true", "x" * 1_500_000]}, {}),
    "a folder with NUL": ({"workingDir": "/\0"}, {}),
    "a folder that is a file": ({"workingDir": "/etc/passwd"}, {}),
    "a variable with NUL": ({"env": [{"name": "A", "value": "\0"}]}, {}),
    "a variable with =": ({"env": [{"name": "A=B", "value": "x"}]}, {}),
    "variables longer than the system allows": ({"env": [{"name": "A", "value": "x" * 500_000}]}, {}),
    "an invalid field path": ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "../x"}}}]}, {}),
    "an affinity that is a list": ({}, {"affinity": {"podAffinity": [1]}}),
    "a resource that no node has": ({"resources": {"requests": {"example.com/none": "1e9"}}}, {}),
}


def told(status: dict[str, Any]) -> str:
    """Return why a pod does not run, from its status or conditions; empty until the reason is known."""
    said = [status.get("message")]
    said += [
        (each.get("state", {}).get("terminated") or {}).get("message") for each in status.get("containerStatuses", [])
    ]
    if status.get("phase") == "Failed":
        return str(next(filter(None, said), ""))
    waits = [each for each in status.get("conditions", []) if each.get("reason") == "Unschedulable"]
    return str(next((each.get("message") for each in waits), ""))


def test_hostile_pods_are_refused_or_explained_and_delay_no_other_pod(stage: Stage) -> None:
    made: dict[str, str] = {}
    for case, (container, spec) in REFUSED_OR_TOLD.items():
        with contextlib.suppress(errors.Invalid):
            made[case] = stage.make([{"command": ["true"], **container}], **spec)
    good = stage.run("true")
    stage.phase(good, "Succeeded")
    for case, name in made.items():
        message = told(stage.wait(name, told))
        assert message, case
        assert len(message) <= 4096, case
    assert "a folder that is a file" in made


def test_node_finishes_a_pod_whose_status_was_overwritten(stage: Stage) -> None:
    name = stage.run("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    stage.wait(name, lambda status: status.get("phase") == "Running")
    spoilt = {"status": {"conditions": [{"status": "True", "type": "Odd"}], "startTime": "2026-01-01T00:00:00Z"}}
    stage.cluster.patch(PODS, name, spoilt, "default", subresource="status")
    (stage.folder(name) / "go").touch()
    stage.phase(name, "Succeeded")


@pytest.mark.parametrize(
    ("script", "log"),
    [
        ("printf abc", b"abc"),
        (r"printf '\377\376'", b"\xff\xfe"),
        ("yes | head -c 3000000", b"y\n" * 1_500_000),
        ("printf 'a\\0b'", b"a\0b"),
    ],
    ids=["no newline", "no UTF-8", "a flood", "NUL"],
)
def test_log_contains_all_bytes_of_the_output(stage: Stage, script: str, log: bytes) -> None:
    name = stage.run("sh", "-c", script)
    stage.phase(name, "Succeeded")
    assert b"".join(stage.cluster.logs(name, "default", "")) == log


def test_zombies_and_orphans_end_with_their_pod(stage: Stage) -> None:
    script = "for n in 1 2 3; do (sleep 0.01 &); setsid sleep 1000 & done; trap '' TERM; exit 7"
    status = stage.phase(stage.run("sh", "-c", script), "Failed")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


NODE = Node("one", {"cpu": 8000, "pods": 100}, {})


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod as an API server without validation would return it."""
    own = {"namespace": "default", "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": own, "spec": {"containers": [{"name": "c", "command": ["true"]}], **spec}}


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]},
        {"containers": [{"name": "c", "resources": {"requests": ["cpu"]}}]},
        {"containers": [{"name": "c", "resources": 5}]},
        {"containers": [{"name": "c", "ports": 5}]},
        {"containers": 5},
        {"affinity": {"podAffinity": 5}},
        {"affinity": {"podAffinity": [1]}},
        {"overhead": {"cpu": "-5"}},
    ],
    ids=str,
)
def test_malformed_pod_waits_and_others_are_placed(spec: dict[str, Any]) -> None:
    strange, good = pod.read(manifest("strange", **spec)), pod.read(manifest("good"))
    decisions = {decision.pod.name: decision for decision in placement.place([strange, good], NODE)}
    assert isinstance(decisions["good"], Bind)
    assert isinstance(decisions["strange"], Wait)
    assert decisions["strange"].message


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "x", "hostPath": 5}]},
        {"volumes": [5]},
        {"containers": [{"name": "c", "command": ["x"], "env": [5]}]},
        {"containers": [{"name": "c", "command": ["x"], "volumeMounts": [{}]}]},
    ],
    ids=str,
)
def test_malformed_spec_is_refused_with_a_reason(spec: dict[str, Any]) -> None:
    verdict = pod_requirements.refusal({**manifest("p")["spec"], **spec}, {}, {})
    assert verdict is not None
    assert verdict.reason == "NotSupported"


def test_pod_with_an_enormous_request_waits() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1e99"}}}]}
    [decision] = placement.place([pod.read(manifest("big", **spec))], NODE)
    assert isinstance(decision, Wait)
    assert "cpu" in decision.message
