"""A node shutdown ends pods as disrupted, not as failed, even if a process is killed during the shutdown."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.api_resources import NODES, PODS
from embedded.node.runs import container_processes
from embedded.node.shutdown import shutdown_record
from embedded.node.shutdown.shutdown_record import EndingPod
from kube.stop import HURRY
from tests.support.embedded.stage import Stage, StartNode, first, terminated
from tests.support.waiting import SECONDS, patient, until

TARGET = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
TRAPS = """
import os, signal, sys, time
folder = os.environ["FOLDER"]
def note(word):
    open(f"{folder}/{word}", "a").close()
def end(*_):
    note(f"asked-{os.environ['NAME']}")
    while not os.path.exists(f"{folder}/go"):
        time.sleep(0.01)
    sys.exit(int(os.environ["CODE"]))
signal.signal(signal.SIGTERM, end)
note(f"ready-{os.environ['NAME']}")
while True:
    time.sleep(0.01)
"""
"""A program that records SIGTERM in a file, and exits when the file `go` exists."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "go").touch()


def container(folder: Path, name: str, code: int = 0, script: str = TRAPS) -> dict[str, Any]:
    values = {"FOLDER": str(folder), "NAME": name, "CODE": str(code)}
    env = [{"name": key, "value": value} for key, value in values.items()]
    return {"command": ["python", "-c", script], "env": env}


def trapping(stage: Stage, folder: Path, code: int = 0, **options: Any) -> str:
    """Create a pod that records SIGTERM in a file, wait until the pod runs, and return its name."""
    name = stage.make([container(folder, word := f"pod{time.monotonic_ns()}", code)], **options)
    until((folder / f"ready-{word}").exists)
    stage.phase(name, "Running")
    return name


def asked(folder: Path) -> list[Path]:
    return list(folder.glob("asked-*"))


def marked(status: dict[str, Any]) -> bool:
    return any(TARGET.items() <= each.items() for each in status.get("conditions", ()))


def nobodys_failure(status: dict[str, Any]) -> bool:
    return (status["phase"], status.get("reason")) == ("Failed", "Terminated") and marked(status)


def ready(stage: Stage) -> tuple[str, str]:
    """Return status and message of the node's condition Ready."""
    found = {each["type"]: each for each in stage.cluster.get(NODES, "local")["status"]["conditions"]}["Ready"]
    return found["status"], found["message"]


def ended(process: "subprocess.Popen[bytes]", number: int = signal.SIGTERM) -> int:
    process.send_signal(number)
    return process.wait(patient(SECONDS))


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_pod_ended_by_a_shutdown_is_marked_as_disrupted_for_any_exit_code(
    bare: Stage, start: StartNode, folder: Path, code: int
) -> None:
    node = start()
    name = trapping(bare, folder, code)
    (folder / "go").touch()
    assert ended(node) == 0
    status = bare.status(name)
    assert nobodys_failure(status)
    assert terminated(status)["exitCode"] == code
    assert "shutdown" in status["message"]
    assert ready(bare) == ("False", "node is shutting down")
    start()
    until(lambda: ready(bare)[0] == "True")
    assert nobodys_failure(bare.status(name))
    assert bare.status(name)["containerStatuses"][0]["restartCount"] == 0


def test_pods_are_marked_before_any_gets_sigterm_and_stay_disrupted_if_the_node_is_killed(
    bare: Stage, start: StartNode, folder: Path
) -> None:
    node = start()
    names = [
        trapping(bare, folder, code, policy=policy) for code, policy in ((0, "Never"), (1, "OnFailure"), (1, "Never"))
    ]
    node.terminate()
    until(lambda: asked(folder))
    for name in names:
        assert marked(bare.status(name))
        assert bare.status(name)["phase"] == "Running"
        assert shutdown_record.read(bare.layout, bare.get(name)["metadata"]["uid"]) is not None
    node.kill()
    node.wait()
    (folder / "go").touch()
    start()
    for name in names:
        assert nobodys_failure(bare.phase(name, "Failed", "Succeeded"))
        assert bare.status(name)["containerStatuses"][0]["restartCount"] == 0


def test_a_pod_keeps_its_deadline_and_gets_one_sigterm_over_a_node_restart(
    bare: Stage, start: StartNode, folder: Path
) -> None:
    node = start()
    name = trapping(bare, folder, terminationGracePeriodSeconds=60, metadata={"labels": {labels.JOB_NAME: "digits"}})
    before = time.time()
    node.terminate()
    [path] = until(lambda: asked(folder))
    until_then = left(bare).until
    assert before + 60 <= until_then <= time.time() + 60
    assert (left(bare).name, left(bare).job) == (name, "digits")
    ended(node, signal.SIGKILL)
    path.unlink()
    (bare.layout.root / "ending").unlink()
    node = start("--shut-down")
    assert left(bare).until == until_then
    (folder / "go").touch()
    assert node.wait(patient(SECONDS)) == 0
    assert not asked(folder)
    assert shutdown_record.ending_pods(bare.layout) is None
    assert nobodys_failure(bare.status(name))


def left(stage: Stage) -> EndingPod:
    """Wait until the only ending pod has got SIGTERM, and return it."""
    [found] = until(lambda: shutdown_record.ending_pods(stage.layout), lambda found: found and found[0].until)
    assert isinstance(found, EndingPod)
    return found


def test_only_the_hurry_signal_shortens_a_shutdown(bare: Stage, start: StartNode, folder: Path) -> None:
    node = start()
    name = trapping(bare, folder, terminationGracePeriodSeconds=600)
    node.terminate()
    until(lambda: asked(folder))
    time_of_first = left(bare).until
    node.terminate()
    node.terminate()
    assert left(bare).until == time_of_first
    assert node.poll() is None
    assert ended(node, HURRY) == 0
    status = bare.status(name)
    assert nobodys_failure(status)
    assert terminated(status)["exitCode"] == 137


def test_a_node_interrupted_during_a_shutdown_leaves_its_pods_to_the_next_node(
    bare: Stage, start: StartNode, folder: Path
) -> None:
    node = start()
    name = trapping(bare, folder)
    node.terminate()
    until(lambda: asked(folder))
    assert ended(node, signal.SIGINT) == 0
    assert container_processes.members(uid(bare, name) + "/")
    start()
    (folder / "go").touch()
    assert nobodys_failure(bare.phase(name, "Failed", "Succeeded"))


def uid(stage: Stage, name: str) -> str:
    return str(stage.get(name)["metadata"]["uid"])


def test_a_shutdown_treats_pods_according_to_their_state(bare: Stage, start: StartNode, folder: Path) -> None:
    node = start()
    done = bare.run("true")
    bare.phase(done, "Succeeded")
    initializing = bare.run("true", init=[container(folder, "init", 1)])
    until((folder / "ready-init").exists)
    deleted = trapping(bare, folder)
    restarted = trapping(bare, folder, policy="OnFailure")
    crashing = bare.run("false", policy="Always")
    bare.wait(crashing, lambda status: first(status).get("restartCount") == 1 and "waiting" in first(status)["state"])
    half_done = bare.make([{"command": ["true"]}, container(folder, "sidecar")])
    until((folder / "ready-sidecar").exists)
    bare.wait(half_done, lambda status: "terminated" in first(status).get("state", {}))
    bare.delete(deleted)
    bare.cluster.patch(PODS, restarted, {"metadata": {"annotations": {labels.RESTART_CONTAINERS: "1"}}}, "default")
    until(lambda: len(asked(folder)) == 2)

    node.terminate()
    until(lambda: len(asked(folder)) == 4)
    late = bare.run("true")
    (folder / "go").touch()
    assert node.wait(patient(SECONDS)) == 0

    assert bare.status(done)["phase"] == "Succeeded"
    assert "reason" not in bare.status(done)
    for name in (initializing, restarted, half_done):
        assert nobodys_failure(bare.status(name)), bare.status(name)
    bare.wait_gone(deleted)
    assert bare.status(crashing)["phase"] == "Running"
    assert "nodeName" not in bare.get(late)["spec"]
    start()
    bare.phase(late, "Succeeded")
    # API times are whole seconds, and the end of the container must still precede its mark.
    target = next(each for each in bare.status(half_done)["conditions"] if each["type"] == "DisruptionTarget")
    assert terminated(bare.status(half_done))["finishedAt"] < target["lastTransitionTime"]
    bare.delete(crashing, grace=0)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["node first", "node last"])
@pytest.mark.parametrize("script", [TRAPS, "import time; time.sleep(600)"], ids=["exit 0", "SIGTERM"])
def test_a_signal_to_all_processes_at_once_disrupts_the_pod_and_is_no_failure_of_it(
    bare: Stage, start: StartNode, folder: Path, order: tuple[int, ...], script: str
) -> None:
    node = start()
    (folder / "go").touch()
    name = bare.make([container(folder, "all", 0, script)])
    bare.phase(name, "Running")
    members = container_processes.members(uid(bare, name) + "/")
    groups = ({node.pid}, shims(members), members)
    if script is TRAPS:
        until((folder / "ready-all").exists)
    signal_at_once([pid for place in order for pid in groups[place]])
    assert node.wait(patient(SECONDS)) == 0
    assert nobodys_failure(bare.status(name))


def signal_at_once(pids: Iterable[int]) -> None:
    """Send SIGTERM to all processes before any process can handle the signal, as the kernel does at the end of a
    session.
    """
    for number in (signal.SIGSTOP, signal.SIGTERM):
        for pid in pids:
            os.kill(pid, number)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # a process that continues may already have ended another process
            os.kill(pid, signal.SIGCONT)


def shims(members: set[int]) -> set[int]:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in members]
    return {int(each[1]) for each in fields} - members


def test_a_pod_ended_with_its_shim_while_no_node_ran_is_disrupted(bare: Stage, start: StartNode, folder: Path) -> None:
    node = start()
    (folder / "go").touch()
    name, alone = trapping(bare, folder), trapping(bare, folder, 3)
    ended(node, signal.SIGKILL)
    members = container_processes.members(uid(bare, name) + "/")
    signal_at_once(shims(members) | members | container_processes.members(uid(bare, alone) + "/"))
    for each in (name, alone):
        until((bare.folder(each) / "containers" / "c0" / "0" / "exited").exists)
    start()
    assert nobodys_failure(bare.phase(name, "Succeeded", "Failed"))
    status = bare.phase(
        alone, "Failed", "Succeeded"
    )  # the shim of the pod got no signal, so that only this container was ended
    assert (terminated(status)["exitCode"], status.get("reason")) == (3, None)


def test_a_container_ended_by_a_signal_fails_while_the_node_keeps_running(bare: Stage, start: StartNode) -> None:
    start()
    name = bare.run("sleep", "600")
    bare.phase(name, "Running")
    for pid in container_processes.members(uid(bare, name) + "/"):
        os.kill(pid, signal.SIGTERM)
    status = bare.phase(name, "Failed")
    assert (terminated(status)["exitCode"], status.get("reason"), marked(status)) == (143, None, False)
