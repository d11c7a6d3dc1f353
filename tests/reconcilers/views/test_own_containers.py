"""The restart agent as kubelets report it. The judgement of a pod leaves the agent out."""

from typing import Any

import pytest

from coordinator.follow import pod_runs
from reconcilers.views import containers, pod_problems, pod_view
from tests.reconcilers.views.test_pod_view import manifest

RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: exec: "sh": executable file not found in $PATH: unknown'
)
CRUN = "crun: executable file `sh` not found in $PATH: No such file or directory"
OOM = "container init was OOM-killed (memory limit too low?)"
START_ERROR = {"terminated": {"exitCode": 128, "reason": "StartError", "message": RUNC}}
RESTARTED = {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}}
RUNS = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
INITIALIZES = {"waiting": {"reason": "PodInitializing"}}


def restarting(phase: str, agent: dict[str, Any], main: dict[str, Any], before: Any = None) -> dict[str, Any]:
    """Return a pod with an agent in these states."""
    entry = {"name": "torchq-restart", "state": agent, "lastState": before or {}, "restartCount": 1}
    torch = {"name": "torch", "state": main, "restartCount": 1}
    pod = manifest(phase, initContainerStatuses=[entry], containerStatuses=[torch])
    pod["spec"]["initContainers"] = [{"name": "torchq-restart"}]
    return pod


@pytest.mark.parametrize(
    ("agent", "before", "says"),
    [
        ({"waiting": {"reason": "RunContainerError", "message": RUNC}}, START_ERROR, "the image has no sh"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, START_ERROR, "the image has no sh"),
        (START_ERROR, {}, "the image has no sh"),
        ({"terminated": {"exitCode": 127, "reason": "ContainerCannotRun", "message": CRUN}}, {}, "the image has no sh"),
        ({"terminated": {"exitCode": 127, "reason": "Error"}}, {}, "the image has no sleep"),
        ({"terminated": {"exitCode": 128, "reason": "StartError", "message": OOM}}, {}, OOM),
        ({"terminated": {"exitCode": 128, "reason": "StartError"}}, {}, "StartError"),
    ],
)
def test_agent_that_cannot_run_says_why(agent: dict[str, Any], before: dict[str, Any], says: str) -> None:
    pod = restarting("Pending", agent, INITIALIZES, before)
    assert pod_view.trim(pod).agent_failure == says
    assert str(pod_problems.find_problem(pod)) == f"RestartAgent: {says}"


@pytest.mark.parametrize(
    ("agent", "before"),
    [
        (RUNS, START_ERROR),
        (RUNS, RESTARTED),
        ({"waiting": {"reason": "PodInitializing"}}, None),
        ({"waiting": {"reason": "ImagePullBackOff"}}, None),
        ({"waiting": {"reason": "RestartingAllContainers"}}, RESTARTED),
        ({"terminated": {"exitCode": 88, "reason": "Error"}}, RESTARTED),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, None),
    ],
)
def test_agent_that_restarts_or_waits_has_not_failed(agent: dict[str, Any], before: dict[str, Any] | None) -> None:
    assert pod_view.trim(restarting("Running", agent, RUNS, before)).agent_failure == ""


def test_another_container_that_cannot_run_is_no_agent() -> None:
    assert (
        containers.find_agent_failure({"initContainerStatuses": [{"name": "torchq-start", "state": START_ERROR}]}) == ""
    )


def test_restart_of_the_agent_is_no_problem_of_its_pod() -> None:
    waits = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert pod_view.trim(restarting("Running", waits, RUNS)).problem == ""
    assert "torchq-restart" not in str(pod_problems.find_problem(restarting("Pending", RUNS, INITIALIZES)))
    asleep = restarting("Pending", waits, {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})
    assert str(pod_problems.find_problem(asleep)) == "ImagePullBackOff: no such image"


@pytest.mark.parametrize("code", [0, 88, 137, 143])
def test_end_of_the_agent_is_never_the_end_of_its_pod(code: int) -> None:
    ended = {"terminated": {"exitCode": code, "reason": "Error"}}
    pod = restarting("Failed", ended, {"terminated": {"exitCode": 3, "reason": "Error"}})
    assert (pod_view.trim(pod).exit_code, pod_view.failing_container(pod)) == (3, "torch")
    unknown = restarting("Failed", ended, {"waiting": {"reason": "ContainerCreating"}})
    assert (pod_view.trim(unknown).exit_code, pod_view.failing_container(unknown)) == (None, "torch")


def test_commands_show_no_log_of_the_agent() -> None:
    runs = pod_runs.read(restarting("Failed", {"terminated": {"exitCode": 137}}, {"terminated": {"exitCode": 3}}))
    assert runs.selected("") == ("torch",)
