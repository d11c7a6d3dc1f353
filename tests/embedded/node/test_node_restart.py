"""Pods whose node is killed, and pods whose shim is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded.node.runs import container_processes
from tests.support.embedded.stage import Stage, StartNode, terminated
from tests.support.waiting import SECONDS, patient, until


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def shims(stage: Stage, name: str) -> list[int]:
    """Return the process ids of the shims of a pod, which are the parents of its first processes."""
    mark = stage.get(name)["metadata"]["uid"] + "/"
    members = container_processes.members(mark)
    parents = {int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in members}
    return sorted(parents - members)


def test_a_pod_outlives_a_killed_node_and_the_next_node_reports_its_end(bare: Stage, start: StartNode) -> None:
    node = start()
    script = 'echo start; while [ ! -e "$TORCHQ_VOLUME_V/go" ]; do sleep 0.02; done; echo end; exit 5'
    name = bare.run("sh", "-c", script, volumes=[{"name": "v", "emptyDir": {}}])
    bare.phase(name, "Running")
    kill(node)
    (bare.folder(name) / "volumes" / "v" / "go").touch()
    until((bare.folder(name) / "containers" / "c0" / "0" / "exited").exists, bool)
    assert bare.status(name)["phase"] == "Running"
    start()
    assert terminated(bare.phase(name, "Failed"))["exitCode"] == 5
    assert bare.log(name) == "start\nend\n"


def test_a_restarted_node_takes_over_a_running_pod_and_its_gpu(bare: Stage, start: StartNode) -> None:
    node = start()
    wants = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    script = 'trap "exit 0" TERM; echo "$CUDA_VISIBLE_DEVICES"; while :; do sleep 0.02; done'
    name = bare.run("sh", "-c", script, container=wants)
    bare.phase(name, "Running")
    until(lambda: bare.log(name))  # the process of the pod runs the command
    before = container_processes.members(bare.get(name)["metadata"]["uid"] + "/")
    kill(node)
    start()
    other = bare.run("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES"', container=wants)
    bare.phase(other, "Succeeded")
    assert {bare.log(name), bare.log(other)} == {"0\n", "1\n"}
    assert before & container_processes.members(bare.get(name)["metadata"]["uid"] + "/")
    assert bare.status(name)["containerStatuses"][0]["restartCount"] == 0
    bare.delete(name)
    bare.wait_gone(name)


def test_sigterm_ends_the_node_and_leaves_its_pods_running(bare: Stage) -> None:
    command = [sys.executable, "-m", "embedded.node.node", "--data", str(bare.layout.root)]
    command += ["--kubeconfig", str(bare.kubeconfig), "--cpus", "8"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as node:
        name = bare.run("sleep", "600")
        bare.phase(name, "Running")
        second = subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=False)
        assert second.returncode == 1
        assert "another node runs on" in second.stderr
        node.terminate()
        assert node.wait(patient(SECONDS)) == 0
    mark = bare.get(name)["metadata"]["uid"] + "/"
    assert container_processes.members(mark)
    bare.delete(name, grace=0)
    bare.wait_gone(name)
    # A new node ends processes that belong to no pod.
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as node:
        until(lambda: container_processes.members(mark), lambda members: not members)
        node.terminate()


def test_a_container_whose_shim_is_killed_fails_with_unknown_status(bare: Stage, start: StartNode) -> None:
    start()
    name = bare.run("sh", "-c", "setsid sleep 600 & sleep 600")
    bare.phase(name, "Running")
    mark = bare.get(name)["metadata"]["uid"] + "/"
    for pid in until(lambda: shims(bare, name), bool):
        os.kill(pid, signal.SIGKILL)
    ended = terminated(bare.phase(name, "Failed"))
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert not container_processes.members(mark)


def test_every_pod_runs_exactly_once_while_the_node_is_killed(bare: Stage, start: StartNode) -> None:
    node = start()
    names = [bare.run("sh", "-c", "echo started; sleep 0.1; echo over") for _ in range(40)]
    started = [bare.folder(name) / "containers" / "c0" / "0" / "started" for name in names]
    for count in (0, 1, 20):
        # The node is killed while it starts pods.
        until(lambda count=count: sum(map(Path.exists, started)) >= count)
        kill(node)
        node = start()
    for name in names:
        bare.phase(name, "Succeeded")
        assert bare.log(name) == "started\nover\n"


def test_a_node_without_a_kubeconfig_ends_with_one_message(bare: Stage, tmp_path: object) -> None:
    command = [sys.executable, "-m", "embedded.node.node", "--data", str(tmp_path), "--kubeconfig", "/no/such/file"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=False)
    assert ended.returncode == 1
    assert "/no/such/file" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("option", "value"), [("--cpus", "many"), ("--memory", "8GiB"), ("--gpus", "-1")])
def test_an_invalid_option_ends_the_node_with_one_message(
    bare: Stage, tmp_path: object, option: str, value: str
) -> None:
    command = [sys.executable, "-m", "embedded.node.node", "--data", str(tmp_path)]
    command += ["--kubeconfig", str(bare.kubeconfig), option, value]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=False)
    assert ended.returncode == 1
    assert value in ended.stderr
    assert "Traceback" not in ended.stderr
