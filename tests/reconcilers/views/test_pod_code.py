"""The reason why the code of a job is not unpacked, as kubelets and container runtimes report it."""

from dataclasses import replace
from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import failures
from reconcilers.views import pod_code, pod_problems, pod_view
from reconcilers.views.pod_view import PodView
from tests.reconcilers.views.test_pod_view import manifest
from tests.support.reconcilers.builders import job, task

RUNC = 'failed to create containerd task: runc create failed: exec: "python3": executable file not found in $PATH'
CRUN = "crun: executable file `python3` not found in $PATH: No such file or directory"
WRONG = "the digest of the code is 0123, not 4567: it was changed; submit the job again"
WAITS = {"name": "torch", "state": {"waiting": {"reason": "PodInitializing"}}}


def unpacker(phase: str = "Failed", before: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    """Return a pod in which the container that unpacks the code has this state."""
    entry = {"name": "torchq-code", "state": state, "lastState": before or {}}
    return manifest(phase, initContainerStatuses=[entry], containerStatuses=[WAITS])


def ended(reason: str, code: int, message: str = "") -> dict[str, Any]:
    said = {"message": message} if message else {}
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": "2026-01-02T03:04:05Z", **said}}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(unpacker(**ended("StartError", 128, RUNC)), id="containerd"),
        pytest.param(unpacker(**ended("ContainerCannotRun", 127, CRUN)), id="docker"),
        pytest.param(unpacker(**ended("Error", 127)), id="a shell"),
        pytest.param(
            unpacker("Pending", waiting={"reason": "RunContainerError", "message": CRUN}), id="started again and again"
        ),
        pytest.param(
            unpacker("Pending", ended("StartError", 128, RUNC), waiting={"reason": "CrashLoopBackOff"}), id="backs off"
        ),
    ],
)
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", "Always"])
def test_image_without_python_fails_the_job_and_no_exit_code_is_shown(pod: dict[str, Any], policy: str) -> None:
    (fault,) = faults(pod_view.trim(pod), policy)
    assert (fault.kind, fault.message) == ("Permanent", f"pod digits-worker-3 cannot start: {pod_code.LACKS_PYTHON}")
    assert str(pod_problems.find_problem(pod)) == f"NoPython: {pod_code.LACKS_PYTHON}"


def faults(pod: PodView, policy: str) -> list[failures.PodFault]:
    described: TorchJob = job({"Worker": task(4, restartPolicy=policy)})
    return list(failures.find_faults(described, [replace(pod, restart=0)], frozenset(), frozenset()))


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "Always"])
def test_code_that_cannot_be_unpacked_fails_the_job_with_the_line_that_says_why(policy: str) -> None:
    for pod in (
        unpacker(**ended("Error", 1, f"some warning\n{WRONG}\n")),
        unpacker("Pending", ended("Error", 1, WRONG), waiting={"reason": "CrashLoopBackOff"}),
    ):
        (fault,) = faults(pod_view.trim(pod), policy)
        assert (fault.kind, fault.message) == ("Permanent", f"pod digits-worker-3 cannot start: {WRONG}")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(unpacker("Pending", running={}), id="at work"),
        pytest.param(unpacker("Pending", ended("Error", 1, WRONG), running={}), id="at work again"),
        pytest.param(unpacker("Pending", **ended("Completed", 0)), id="done"),
        pytest.param(unpacker("Pending", waiting={"reason": "CreateContainerConfigError"}), id="waits"),
        pytest.param(manifest("Pending"), id="no such container"),
    ],
)
def test_pod_whose_code_is_unpacked_or_waited_for_goes_on(pod: dict[str, Any]) -> None:
    assert pod_view.trim(pod).phase == "Pending"


def test_other_failures_to_start_keep_the_words_of_the_runtime() -> None:
    view = pod_view.trim(unpacker(**ended("StartError", 128, "runc create failed: no space left on device")))
    assert view.reason == "StartError"
    assert view.message == "container torchq-code: runc create failed: no space left on device"


@pytest.mark.parametrize(
    ("volumes", "needs"),
    [
        ([], ""),
        ([{"name": "a", "configMap": {"name": "maybe", "optional": True}}, {"name": "b", "emptyDir": {}}], ""),
        ([{"name": "a", "configMap": {"name": "code-1"}}], "; it needs ConfigMap code-1"),
        (
            [{"name": "s", "secret": {"secretName": "key"}}]
            + [{"name": f"v{each}", "configMap": {"name": f"code-{each}"}} for each in range(4)],
            "; it needs Secret key, ConfigMap code-0, ConfigMap code-1 and 2 more",
        ),
    ],
)
def test_pod_that_waits_for_its_volumes_names_what_may_be_missing(volumes: list[dict[str, Any]], needs: str) -> None:
    pod = manifest(
        "Pending",
        conditions=[{"type": "PodReadyToStartContainers", "status": "False"}],
        containerStatuses=[{"name": "torch", "state": {"waiting": {"reason": "ContainerCreating"}}}],
    )
    pod["spec"] |= {"nodeName": "n1", "volumes": volumes}
    expected = f"ContainerCreating: its volumes or its network are not ready{needs}"
    assert pod_view.trim(pod).problem == expected


def test_container_that_waits_for_a_missing_configmap_is_the_problem_of_its_pod() -> None:
    waits = {"reason": "CreateContainerConfigError", "message": 'configmap "code-1" not found'}
    pod = manifest("Pending", containerStatuses=[{"name": "torch", "state": {"waiting": waits}}])
    assert pod_view.trim(pod).problem == 'CreateContainerConfigError: configmap "code-1" not found'
