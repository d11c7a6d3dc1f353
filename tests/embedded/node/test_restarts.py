"""Restarts in place: decisions as tables, and restarts of processes while the node may be killed at any step."""

import contextlib
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.api_resources import PODS
from embedded.layout import Layout
from embedded.node.pods import pod_containers
from embedded.node.runs import container_processes
from embedded.node.runs.container_runs import Run
from embedded.node.status import pod_lifecycle, pod_status
from embedded.node.status.pod_lifecycle import (
    ActionPlan,
    Containers,
    KillContainer,
    Restart,
    RestartPolicy,
    StartContainer,
    TerminateContainer,
    Termination,
)
from embedded.node.status.pod_status import PodState
from tests.embedded.node.test_lifecycle import NOW, beginning, ended, running
from tests.support.embedded.stage import Stage, StartNode, terminated
from tests.support.waiting import until

Histories = dict[str, tuple[Run, ...]]


def pod(*main: str, restart: Restart | None = None, policy: RestartPolicy = "Never", init: tuple[str, ...] = ()) -> Any:
    return Containers(main or ("c",), init, policy, restart=restart)


def given(generation: str = "1", **last: int) -> Restart:
    return Restart(generation, last)


TAKEN: dict[str, tuple[Containers, Histories, str, Restart | None]] = {
    "no restart is requested": (pod(), {"c": (running(),)}, "", None),
    "the generation is no number": (pod(), {"c": (running(),)}, "now", None),
    "the container runs": (pod(), {"c": (running(),)}, "1", Restart("1", {"c": 0})),
    "the policy is Always": (pod(policy="Always"), {"c": (ended(), running(1))}, "1", Restart("1", {"c": 1})),
    "the container is about to start": (pod(), {"c": (beginning(),)}, "1", Restart("1", {"c": 0})),
    "the container waits for its backoff": (
        pod(policy="OnFailure"),
        {"c": (ended(0, 1), ended(1, 1))},
        "1",
        Restart("1", {"c": 1}),
    ),
    "no container has run": (pod(), {"c": ()}, "1", Restart("1", {})),
    "an init container runs": (pod(init=("i",)), {"i": (running(),), "c": ()}, "1", Restart("1", {})),
    "one container has succeeded": (
        pod("c", "d"),
        {"c": (ended(),), "d": (running(),)},
        "1",
        Restart("1", {"c": 0, "d": 0}),
    ),
    "the same restart is done": (pod(restart=given(c=0)), {"c": (ended(), running(1))}, "1", None),
    "the same restart is in progress": (pod(restart=given(c=0)), {"c": (running(),)}, "1", None),
    "an earlier restart is done": (
        pod(restart=given(c=0)),
        {"c": (ended(), running(1))},
        "2",
        Restart("2", {"c": 1}),
    ),
    "an earlier restart is in progress": (pod(restart=given(c=0)), {"c": (running(),)}, "2", Restart("2", {"c": 0})),
    "the container has failed": (pod(), {"c": (ended(code=1),)}, "1", None),
    "the container has succeeded": (pod(), {"c": (ended(),)}, "1", None),
    "one of the containers has failed": (pod("c", "d"), {"c": (ended(code=1),), "d": (running(),)}, "1", None),
    "the init container has failed": (pod(init=("i",)), {"i": (ended(code=1),), "c": ()}, "1", None),
    "the container has failed since the last restart": (
        pod(restart=given(c=0)),
        {"c": (ended(), ended(1, 1))},
        "2",
        None,
    ),
    "the container was ended by the last restart": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143),)},
        "2",
        Restart("2", {"c": 0}),
    ),
}


@pytest.mark.parametrize(("containers", "histories", "wanted", "expected"), TAKEN.values(), ids=TAKEN.keys())
def test_next_restart_accepts_a_new_generation_of_an_unfinished_pod(
    containers: Containers, histories: Histories, wanted: str, expected: Restart | None
) -> None:
    assert pod_lifecycle.next_restart(containers, histories, wanted) == expected


STEPS: dict[str, tuple[Containers, Histories, ActionPlan, bool]] = {
    "a running container is waited for": (pod(restart=given(c=0)), {"c": (running(),)}, ActionPlan(), True),
    "all containers are waited for": (
        pod("c", "d", restart=given(c=0, d=0)),
        {"c": (ended(code=143),), "d": (running(),)},
        ActionPlan(),
        True,
    ),
    "all containers start again": (
        pod("c", "d", restart=given(c=0, d=2)),
        {"c": (ended(code=143),), "d": (ended(2, 0),)},
        ActionPlan((StartContainer("c", 1), StartContainer("d", 3))),
        False,
    ),
    "a container without runs starts": (
        pod("c", "d", restart=given(c=0)),
        {"c": (ended(code=1),), "d": ()},
        ActionPlan((StartContainer("c", 1), StartContainer("d", 0))),
        False,
    ),
    "no container starts twice": (pod(restart=given(c=0)), {"c": (ended(code=143), ended(1, 0))}, ActionPlan(), False),
    "a later failure restarts by policy, without backoff": (
        pod(restart=given(c=2), policy="OnFailure"),
        {"c": (ended(0, 1), ended(1, 1), ended(2, 1), ended(3, 1, ago=0))},
        ActionPlan((StartContainer("c", 4),)),
        False,
    ),
    "the init container does not run again": (
        pod(restart=given(c=0), init=("i",)),
        {"i": (ended(),), "c": (ended(code=143),)},
        ActionPlan((StartContainer("c", 1),)),
        False,
    ),
}


@pytest.mark.parametrize(("containers", "histories", "expected", "waits"), STEPS.values(), ids=STEPS.keys())
def test_plan_during_a_restart_waits_for_all_containers_and_starts_them_again(
    containers: Containers, histories: Histories, expected: ActionPlan, waits: bool
) -> None:
    assert pod_lifecycle.awaits_restart(containers, histories) is waits
    if not waits:
        assert pod_lifecycle.plan(containers, histories, NOW) == expected


def test_a_restarting_container_gets_sigterm_and_a_kill_after_its_grace_period() -> None:
    containers, run = pod(restart=given(c=0)), running()
    asked = pod_lifecycle.plan(containers, {"c": (run,)}, NOW, Termination(30, NOW - 5))
    assert asked == ActionPlan((TerminateContainer("c", run),), NOW + 25)
    told = Termination(30, NOW - 31, frozenset({("c", 0)}))
    assert pod_lifecycle.plan(containers, {"c": (run,)}, NOW, told).actions == (KillContainer("c", run),)


def shown(containers: Containers, histories: Histories, wanted: str, *, stopping: bool = False) -> dict[str, Any]:
    spec = {"containers": [{"name": name, "image": "any"} for name in containers.main]}
    view = PodState(containers, spec, histories, {}, {}, stopping, restart_generation=wanted)
    return pod_status.running_status(view, {}, NOW)


def told(status: dict[str, Any]) -> tuple[str, str, str] | None:
    found = [each for each in status["conditions"] if each["type"] == labels.CONTAINERS_RESTARTED]
    return next(((each["status"], each["reason"], each["message"]) for each in found), None)


STATUSES: dict[str, tuple[Containers, Histories, str, str, list[str], Any]] = {
    "no restart is requested": (pod(), {"c": (running(),)}, "", "Running", ["running"], None),
    "the containers end": (pod(restart=given(c=0)), {"c": (running(),)}, "1", "Running", ["running"], None),
    "one container has ended": (
        pod("c", "d", restart=given(c=0, d=0)),
        {"c": (ended(code=143),), "d": (running(),)},
        "1",
        "Running",
        ["waiting", "running"],
        None,
    ),
    "all containers have ended": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143),)},
        "1",
        "Running",
        ["waiting"],
        None,
    ),
    "the containers start": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143), beginning(1))},
        "1",
        "Running",
        ["waiting"],
        None,
    ),
    "the containers run": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143), running(1))},
        "1",
        "Running",
        ["running"],
        ("True", "Restarted", "1"),
    ),
    "the containers fail later": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143), ended(1, 3))},
        "1",
        "Failed",
        ["terminated"],
        ("True", "Restarted", "1"),
    ),
    "the pod has failed": (
        pod(),
        {"c": (ended(code=3),)},
        "1",
        "Failed",
        ["terminated"],
        ("False", "PodFinished", "1"),
    ),
    "one container has failed and another runs": (
        pod("c", "d"),
        {"c": (ended(code=3),), "d": (running(),)},
        "1",
        "Running",
        ["terminated", "running"],
        ("False", "PodFinished", "1"),
    ),
    "the pod has failed before the next restart": (
        pod(restart=given(c=0)),
        {"c": (ended(code=143), ended(1, 3))},
        "2",
        "Failed",
        ["terminated"],
        ("False", "PodFinished", "2"),
    ),
}


@pytest.mark.parametrize(
    ("containers", "histories", "wanted", "phase", "states", "condition"), STATUSES.values(), ids=STATUSES.keys()
)
def test_the_status_during_a_restart_has_the_expected_phase_and_condition(
    containers: Containers, histories: Histories, wanted: str, phase: str, states: list[str], condition: Any
) -> None:
    status = shown(containers, histories, wanted)
    assert status["phase"] == phase
    assert [next(iter(each["state"])) for each in status["containerStatuses"]] == states
    assert told(status) == condition


def test_the_run_ended_by_a_restart_is_the_last_state() -> None:
    histories = {"c": (ended(code=143), running(1))}
    (container,) = shown(pod(restart=given(c=0)), histories, "1")["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["lastState"]["terminated"]["exitCode"] == 143


def test_a_pod_stopped_during_a_restart_fails() -> None:
    containers, histories = pod(restart=given(c=0)), {"c": (ended(code=143),)}
    status = shown(containers, histories, "1", stopping=True)
    assert (status["phase"], list(status["containerStatuses"][0]["state"])) == ("Failed", ["terminated"])
    assert told(status) == ("False", "PodFinished", "1")
    assert pod_lifecycle.plan(containers, histories, NOW, Termination(30, NOW)) == ActionPlan((), math.inf)


def test_a_restart_record_reads_back_as_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert pod_containers.read_restart(layout, "u") is None
    for restart in (given("1", c=0), given("22", c=1, d=2)):
        pod_containers.write_restart(layout, "u", restart)
        assert pod_containers.read_restart(layout, "u") == restart


# Restarts of processes on a node.

Ask = Callable[..., None]
RECORD = (
    "import os, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\n"
    "print(os.environ.get('ROUND', ''), os.environ.get('CUDA_VISIBLE_DEVICES', ''), flush=True)\n"
    "time.sleep(600)\n"
)
ROUND = {"name": "ROUND", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['round']"}}}


def recording(code: int = 0, **more: Any) -> dict[str, Any]:
    """Return a container that prints its round and its GPUs. On SIGTERM it exits with this code."""
    limits = {"limits": {"nvidia.com/gpu": 1}}
    return {"command": ["python", "-c", RECORD.format(code=code)], "env": [ROUND], "resources": limits, **more}


def ask(stage: Stage, name: str, generation: int, **annotations: str) -> None:
    wanted = {labels.RESTART_CONTAINERS: str(generation), **annotations}
    stage.cluster.patch(PODS, name, {"metadata": {"annotations": wanted}}, "default")


def wait_restarted(stage: Stage, name: str, generation: int) -> dict[str, Any]:
    found = stage.wait(name, lambda status: (told({"conditions": [], **status}) or ("", "", ""))[2] == str(generation))
    assert isinstance(found, dict)
    return found


def outputs(stage: Stage, name: str, container: str = "c0") -> list[str]:
    """Wait until each run of a container has printed some text, and return the texts."""
    folder = stage.folder(name) / "containers" / container
    runs = sorted(folder.glob("*/output"), key=lambda path: int(path.parent.name))
    return [str(until(path.read_text, bool)) for path in runs]


def test_containers_are_restarted_in_place(stage: Stage) -> None:
    init = {"command": ["sh", "-c", 'echo init >> "$TORCHQ_VOLUME_V/log"']}
    name = stage.make(
        [recording(3), recording(0)],
        init=[init],
        volumes=[{"name": "v", "emptyDir": {}}],
        metadata={"annotations": {"round": "one"}},
    )
    before = stage.phase(name, "Running")
    until(lambda: outputs(stage, name) + outputs(stage, name, "c1"), lambda found: len(found) == 2)
    uid = stage.get(name)["metadata"]["uid"]
    seen: list[str] = []
    with _following(stage, name, seen):
        ask(stage, name, 1, round="two")
        status = wait_restarted(stage, name, 1)
    assert set(seen) == {"Running"}
    assert told(status) == ("True", "Restarted", "1")
    assert [each["restartCount"] for each in status["containerStatuses"]] == [1, 1]
    assert all("running" in each["state"] for each in status["containerStatuses"])
    codes = [each["lastState"]["terminated"]["exitCode"] for each in status["containerStatuses"]]
    assert codes == [3, 0]
    assert outputs(stage, name) == ["one 0\n", "two 0\n"]
    assert outputs(stage, name, "c1") == ["one 1\n", "two 1\n"]
    assert (stage.folder(name) / "volumes" / "v" / "log").read_text() == "init\n"
    assert stage.get(name)["metadata"]["uid"] == uid
    assert status["podIP"] == before["podIP"]
    ask(stage, name, 2, round="three")
    status = wait_restarted(stage, name, 2)
    assert [each["restartCount"] for each in status["containerStatuses"]] == [2, 2]
    assert outputs(stage, name)[-1] == "three 0\n"
    stage.delete(name)
    stage.wait_gone(name)


@contextlib.contextmanager
def _following(stage: Stage, name: str, seen: list[str]) -> Iterator[None]:
    """Append to `seen` the phase of every version of the pod that is written during the block."""
    version = stage.cluster.list(PODS, "default").resource_version
    yield
    watch = stage.cluster.watch(PODS, "default", resource_version=version)
    last = stage.get(name)["metadata"]["resourceVersion"]
    for event in watch:
        if event.object["metadata"]["name"] == name:
            seen.append(event.object["status"]["phase"])
            if event.object["metadata"]["resourceVersion"] == last:
                break
    watch.close()


def test_a_restart_kills_a_container_that_ignores_sigterm_and_its_children(stage: Stage) -> None:
    script = 'trap "" TERM; sleep 600 & echo $!; while :; do sleep 600; done'
    name = stage.run("sh", "-c", script, terminationGracePeriodSeconds=1)
    stage.phase(name, "Running")
    (child,) = until(lambda: outputs(stage, name), bool)
    ask(stage, name, 7)
    status = wait_restarted(stage, name, 7)
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    assert not os.path.exists(f"/proc/{child.strip()}")
    stage.delete(name, grace=0)
    stage.wait_gone(name)


def test_a_restart_of_a_finished_pod_is_refused(stage: Stage) -> None:
    name = stage.run("false")
    stage.phase(name, "Failed")
    ask(stage, name, 1)
    status = wait_restarted(stage, name, 1)
    assert told(status) == ("False", "PodFinished", "1")
    assert status["phase"] == "Failed"
    assert terminated(status)["exitCode"] == 1


def test_a_restart_of_an_initializing_pod_is_done_without_a_new_run(stage: Stage) -> None:
    gate = {"command": ["sh", "-c", 'until [ -e "$TORCHQ_VOLUME_V/go" ]; do sleep 0.02; done']}
    name = stage.make([recording()], init=[gate], volumes=[{"name": "v", "emptyDir": {}}])
    stage.wait(name, lambda status: "running" in str(status.get("initContainerStatuses")))
    ask(stage, name, 1, round="one")
    until((stage.folder(name) / "restart").exists, bool)
    (stage.folder(name) / "volumes" / "v" / "go").touch()
    status = wait_restarted(stage, name, 1)
    assert status["containerStatuses"][0]["restartCount"] == 0
    assert outputs(stage, name) == ["one 0\n"]
    stage.delete(name)
    stage.wait_gone(name)


def _steps(stage: Stage, name: str) -> Iterator[Callable[[], bool]]:
    """Yield conditions that become true one after the other during a restart. The conditions read the folder of the
    pod.
    """
    folder = stage.folder(name)
    runs = folder / "containers" / "c0"
    yield lambda: True
    yield (folder / "restart").exists
    yield (runs / "0" / "exited").exists
    yield (runs / "1").exists
    yield (runs / "1" / "started").exists


@pytest.mark.parametrize("moment", range(5))
def test_a_restart_happens_once_if_the_node_is_killed_at_any_step(bare: Stage, start: StartNode, moment: int) -> None:
    node = start()
    name = bare.make([recording(1)], metadata={"annotations": {"round": "one"}})
    bare.phase(name, "Running")
    until(lambda: outputs(bare, name), bool)
    reached = next(itertools.islice(_steps(bare, name), moment, None))
    ask(bare, name, 5, round="two")
    while not reached():
        assert node.poll() is None
    node.kill()
    node.wait()
    start()
    status = wait_restarted(bare, name, 5)
    assert (status["phase"], told(status)) == ("Running", ("True", "Restarted", "5"))
    # The container ended on SIGTERM; it was not killed.
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
    assert until(lambda: outputs(bare, name), lambda found: len(found) > 1) == ["one 0\n", "two 0\n"]
    assert json.loads((bare.folder(name) / "restart").read_text())["generation"] == "5"
    mark = bare.get(name)["metadata"]["uid"] + "/"
    assert len(container_processes.members(mark)) == 1
    bare.delete(name)
    bare.wait_gone(name)
