"""Files of containers that outlive the containers: results, outputs, and the folder of Python."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from reconcilers.views import pod_result
from tests.reconcilers.pods.test_pod_manifests import environment, make
from tests.support.reconcilers.builders import KEY, job, task, template

CLAIM = {"claimName": "results"}
OUTPUT = {"name": "torchq-output", "mountPath": "/torchq/output", "subPath": f"team/digits-{KEY.uid}"}


def with_init(**container: Any) -> dict[str, Any]:
    """Return a task whose pods have an init container."""
    made = template(**container)
    made["spec"]["initContainers"] = [{"name": "fetch", "image": "fetch:1"}]
    return {"Master": task() | {"template": made}}


def all_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def test_each_container_knows_the_file_of_its_termination_message() -> None:
    own = {"terminationMessagePath": "/tmp/said", "terminationMessagePolicy": "File"}
    pod = make(job(with_init(**own)))["digits-master-0"]
    for container, path in zip(all_containers(pod), ("/dev/termination-log", "/tmp/said"), strict=True):
        assert container["terminationMessagePath"] == path
        assert {"name": "TORCHQ_RESULT_FILE", "value": path} in container["env"]
    assert pod["spec"]["containers"][0]["terminationMessagePolicy"] == "File"


@pytest.mark.parametrize("address", ["service", "loopback"])
@pytest.mark.parametrize(
    ("own", "hooks"),
    [
        ({}, {"preStop"}),
        ({"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}, {"preStop", "postStart"}),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, set()),
    ],
)
def test_node_marks_that_it_stops_the_main_container(own: dict[str, Any], hooks: set[str], address: Any) -> None:
    pod = make(job(with_init(**own)), master_address=address)["digits-master-0"]
    init, main = all_containers(pod)
    assert "lifecycle" not in init
    if address == "loopback" or not hooks:
        assert main.get("lifecycle", {}) == own.get("lifecycle", {})
        return
    assert main["lifecycle"].keys() == hooks
    command = main["lifecycle"]["preStop"]["exec"]["command"]
    assert command[-2:] == [pod_result.MARK, "/dev/termination-log"]


@pytest.mark.servers
def test_mark_of_a_node_keeps_the_result_before_it(tmp_path: Path) -> None:
    file = tmp_path / "termination-log"
    file.write_text('{"torchq-result":{"a":1}}')
    made = make(job(with_init(terminationMessagePath=str(file))))["digits-master-0"]
    subprocess.run(made["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"], check=True)
    terminated = {"message": file.read_text()}
    assert pod_result.is_marked(terminated)
    assert pod_result.own_message(terminated) == '{"torchq-result":{"a":1}}'


def test_job_without_outputs_has_no_claim_and_no_folder() -> None:
    pod = make(job())["digits-master-0"]
    assert "persistentVolumeClaim" not in str(pod["spec"]["volumes"])
    assert "TORCHQ_OUTPUT" not in environment(pod)


def test_outputs_are_a_folder_of_the_claim_in_every_container() -> None:
    pod = make(job(with_init(volumeMounts=[{"name": "data", "mountPath": "/data"}]), outputs=CLAIM))["digits-master-0"]
    claim = {"name": "torchq-output", "persistentVolumeClaim": {"claimName": "results"}}
    assert pod["spec"]["volumes"] == [claim]
    for container in all_containers(pod):
        assert container["volumeMounts"][-1] == OUTPUT
        assert {"name": "TORCHQ_OUTPUT", "value": "/torchq/output"} in container["env"]
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["name"] == "data"


def test_a_volume_and_a_mount_of_the_template_stay_as_they_are() -> None:
    mine = {"name": "torchq-output", "mountPath": "/torchq/output"}
    tasks = with_init(volumeMounts=[mine])
    tasks["Master"]["template"]["spec"]["volumes"] = [{"name": "torchq-output", "emptyDir": {}}]
    pod = make(job(tasks, outputs=CLAIM))["digits-master-0"]
    assert pod["spec"]["volumes"] == [{"name": "torchq-output", "emptyDir": {}}]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [mine]


def test_rendezvous_store_has_no_outputs() -> None:
    policy = {"numMinReplicas": 1, "numMaxReplicas": 4}
    made = make(job({"Worker": task(2)}, outputs=CLAIM, torchElasticPolicy=policy))
    assert "TORCHQ_OUTPUT" in environment(made["digits-worker-0"])
    assert "TORCHQ_OUTPUT" not in environment(made["digits-rendezvous-0"])


def test_pods_carry_the_folder_of_python_of_their_job() -> None:
    made = make(job(annotations={labels.PYTHON_FOLDER: "/home/ann/.venv/bin"}))
    assert made["digits-worker-1"]["metadata"]["annotations"][labels.PYTHON_FOLDER] == "/home/ann/.venv/bin"
