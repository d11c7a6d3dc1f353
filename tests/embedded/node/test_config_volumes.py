"""Pods of the embedded node that use ConfigMaps and Secrets, with real processes."""

import base64
import itertools
import os
from typing import Any

import pytest

from crds.api_resources import CONFIG_MAPS, SECRETS, Resource
from reconcilers.views import pod_problems
from tests.support.embedded.stage import Stage, first, terminated
from tests.support.waiting import until

_NUMBERS = itertools.count(1)
COMMAND = "find . -type f -printf '%P %m ' -exec cat {} \\;"
WAIT = "until [ -e done ]; do sleep 0.02; done"


def make(stage: Stage, resource: Resource, name: str = "", **contents: Any) -> str:
    name = name or f"made-{next(_NUMBERS)}"
    body = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": name}, **contents}
    stage.cluster.create(resource, body, "default")
    return name


def refer(kind: str, name: str, key: str, **more: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: {"name": name, "key": key, **more}}}


def reader(command: str, *sources: dict[str, Any], **container: Any) -> dict[str, Any]:
    """Return the options of a pod whose container runs in the folder of its first configMap volume."""
    mounts = [{"name": f"v{index}", "mountPath": f"/etc/v{index}", "readOnly": True} for index in range(len(sources))]
    env = [{"name": f"TORCHQ_VOLUME_V{index}", "value": f"/etc/v{index}"} for index in range(len(sources))]
    place = {"workingDir": "/etc/v0", "volumeMounts": mounts, "env": env} if sources else {}
    return {
        "containers": [{"command": ["sh", "-c", command], **place, **container}],
        "volumes": [{"name": f"v{index}", "configMap": source} for index, source in enumerate(sources)],
    }


def test_a_container_finds_the_files_of_a_config_map_with_their_modes(stage: Stage) -> None:
    coded = base64.b64encode(b"\0raw").decode()
    name = make(stage, CONFIG_MAPS, data={"a.txt": "one"}, binaryData={"raw": coded}, immutable=True)
    items = [{"key": "raw", "path": "deep/raw", "mode": 0o400}, {"key": "a.txt", "path": "a"}]
    pod = stage.make(**reader(COMMAND, {"name": name, "items": items, "defaultMode": 0o640}))
    stage.phase(pod, "Succeeded")
    output = stage.log(pod)
    assert "deep/raw 400 \0raw" in output
    assert "a 640 one" in output


def test_files_stay_as_they_were_when_the_pod_started(stage: Stage) -> None:
    name = make(stage, CONFIG_MAPS, data={"a": "old"})
    command = 'cat a; [ "$(cat a)" = old ] && [ ! -e b ] && [ -e ../../again ] && exit 0; touch ../../again; exit 1'
    pod = stage.make(**reader(command, {"name": name}), policy="OnFailure")
    stage.wait(pod, lambda status: first(status).get("restartCount") or status.get("phase") == "Succeeded")
    stage.cluster.patch(CONFIG_MAPS, name, {"data": {"a": "new", "b": "more"}}, "default")
    stage.phase(pod, "Succeeded")
    assert stage.log(pod) == "old"


@pytest.mark.parametrize("items", [None, [{"key": "b", "path": "b"}]])
def test_a_pod_waits_for_its_config_map_and_the_others_do_not(stage: Stage, items: Any) -> None:
    name = f"late-{next(_NUMBERS)}"
    if items:
        make(stage, CONFIG_MAPS, name, data={"a": "one"})
    source = {"name": name, **({"items": items} if items else {})}
    pod = stage.make(**reader("cat b", source), init=[{"command": ["true"]}])
    message = f"configmap \"{name}\" has no key 'b'" if items else f'configmap "{name}" not found'
    status = stage.wait(pod, lambda status: "message" in first(status).get("state", {}).get("waiting", {}))
    assert status["phase"] == "Pending"
    waits = {"reason": "PodInitializing", "message": f'volume "v0" waits: {message}'}
    assert first(status)["state"]["waiting"] == waits
    assert status["initContainerStatuses"][0]["state"]["waiting"] == {**waits, "reason": "ContainerCreating"}
    problem = pod_problems.find_problem(stage.get(pod))
    assert str(problem) == f"PodInitializing: {waits['message']}"
    stage.phase(stage.run("true"), "Succeeded")
    if items:
        stage.cluster.patch(CONFIG_MAPS, name, {"data": {"b": "two"}}, "default")
    else:
        make(stage, CONFIG_MAPS, name, data={"b": "two"})
    stage.phase(pod, "Succeeded")
    assert stage.log(pod) == "two"


def test_a_pod_that_waits_for_its_config_map_can_be_deleted(stage: Stage) -> None:
    pod = stage.make(**reader("true", {"name": "never"}))
    stage.wait(pod, lambda status: "message" in first(status).get("state", {}).get("waiting", {}))
    stage.delete(pod)
    stage.wait_gone(pod)


@pytest.mark.parametrize(
    ("kind", "resource", "missing"),
    [("configMapKeyRef", CONFIG_MAPS, "object"), ("secretKeyRef", SECRETS, "object"), ("secretKeyRef", SECRETS, "key")],
)
def test_a_container_waits_for_what_its_variable_refers_to(
    stage: Stage, kind: str, resource: Resource, missing: str
) -> None:
    name = f"late-{next(_NUMBERS)}"
    if missing == "key":
        make(stage, resource, name)
    entry = refer(kind, name, "token")
    pod = stage.make(**reader('echo "$X"', env=[entry]))
    status = stage.wait(pod, lambda status: "waiting" in first(status).get("state", {}))
    words = f'{resource.kind.lower()} "{name}" not found'
    if missing == "key":
        words = f"couldn't find key token in {resource.kind} default/{name}"
    assert first(status)["state"]["waiting"] == {"reason": "CreateContainerConfigError", "message": words}
    assert status["phase"] == "Pending"
    assert str(pod_problems.find_problem(stage.get(pod))) == f"CreateContainerConfigError: {words}"
    if missing == "key":
        stage.cluster.patch(resource, name, {"stringData": {"token": "hush"}}, "default")
    else:
        make(stage, resource, name, **{"stringData" if resource == SECRETS else "data": {"token": "hush"}})
    stage.phase(pod, "Succeeded")
    assert stage.log(pod) == "hush\n"


def test_optional_sources_that_do_not_exist_are_left_out(stage: Stage) -> None:
    mount = reader("", {})["containers"][0]["volumeMounts"]
    env = [
        {"name": "TORCHQ_VOLUME_V0", "value": "/etc/v0"},
        refer("secretKeyRef", "never", "token", optional=True),
    ]
    container = {"env": env, "volumeMounts": mount, "workingDir": "/etc/v0"}
    pod = stage.make(**reader('ls -A; echo "${X-unset}"', {"name": "never", "optional": True}, **container))
    stage.phase(pod, "Succeeded")
    assert stage.log(pod) == "unset\n"


def test_a_restarted_container_gets_the_new_value_of_a_secret(stage: Stage) -> None:
    name = make(stage, SECRETS, stringData={"token": "first"})
    wait = f'echo "$X"; {WAIT}; exit 1'
    pod = stage.make(**reader(wait, env=[refer("secretKeyRef", name, "token")]), policy="OnFailure")
    stage.phase(pod, "Running")
    stage.cluster.patch(SECRETS, name, {"stringData": {"token": "second"}}, "default")
    (stage.folder(pod) / "done").touch()
    stage.wait(pod, lambda status: first(status).get("restartCount"))
    until(lambda: stage.log(pod) == "second\n")


def test_the_value_of_a_secret_is_on_no_disk_and_in_no_command_line(stage: Stage) -> None:
    value = "correct-horse-battery-staple"
    name = make(stage, SECRETS, stringData={"token": value})
    pod = stage.make(**reader(WAIT, env=[refer("secretKeyRef", name, "token")]))
    stage.phase(pod, "Running")
    folder = stage.folder(pod)
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert texts
    assert not any(value.encode() in text for text in texts)
    assert not any(value.encode() in _command_line(pid) for pid in os.listdir("/proc") if pid.isdecimal())
    (folder / "done").touch()
    stage.phase(pod, "Succeeded")


def _command_line(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_a_value_that_no_variable_can_have_fails_the_container_without_showing_it(stage: Stage) -> None:
    name = make(stage, SECRETS, data={"token": base64.b64encode(b"hu\0sh").decode()})
    pod = stage.make(**reader("true", env=[refer("secretKeyRef", name, "token")]))
    ended = terminated(stage.phase(pod, "Failed"))
    assert ended["reason"] == "StartError"
    assert "embedded null byte" in ended["message"]
    assert "hu" not in ended["message"]
