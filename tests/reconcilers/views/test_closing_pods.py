"""A pod whose containers have ended is left to its node, which writes the phase. A deletion would lose the log of the
pod.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from crds import timestamps
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeletePods
from reconcilers.views import pod_history, pod_view
from reconcilers.views.pod_view import CLOSING_SECONDS, PodView
from tests.reconcilers.views.test_pod_view import manifest
from tests.support.reconcilers import builders

END = builders.NOW.timestamp() - 5
UP = {"running": {}}


def ended(code: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": timestamps.format_time(END)}}


def view(*states: dict[str, Any], phase: str = "Running", init: dict[str, Any] | None = None, **spec: Any) -> PodView:
    names = ("torch", "shipper")
    statuses = [{"name": name, "state": state} for name, state in zip(names, states, strict=False)]
    shown = {"initContainerStatuses": [{"name": "setup", "state": init}]} if init else {}
    made = manifest(phase, containerStatuses=statuses, **shown)
    made["spec"] |= {"containers": [{"name": name} for name in names[: len(states)]], "restartPolicy": "Never", **spec}
    return pod_view.trim(made)


CASES: dict[str, tuple[PodView, bool]] = {
    "it runs": (view(UP), True),
    "it has ended well": (view(ended()), False),
    "it has failed": (view(ended(3)), False),
    "its other container runs": (view(ended(), UP), True),
    "its other container has ended": (view(ended(), ended()), False),
    "its sidecar runs, which ends with it": (view(ended(), init=UP), False),
    "its init container has ended": (view(ended(), init=ended()), False),
    "its node starts it again": (view(ended(3), restartPolicy="OnFailure"), True),
    "its node has shown the phase": (view(ended(), phase="Succeeded"), False),
}


@pytest.mark.parametrize(("pod", "expected"), CASES.values(), ids=CASES.keys())
def test_pod_must_be_stopped_unless_all_of_its_containers_have_ended(pod: PodView, expected: bool) -> None:
    assert pod_view.must_be_stopped(pod, END + 1) is expected


def test_pod_whose_node_writes_no_phase_must_be_stopped() -> None:
    assert pod_view.must_be_stopped(view(ended()), END + CLOSING_SECONDS)


def test_pod_is_closing_while_its_end_may_be_the_deed_of_its_node() -> None:
    assert not pod_view.must_be_stopped(view(ended(137)).unended(), END + 1)


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 3)])
def test_finished_job_deletes_only_pods_that_run(phase: str, code: int) -> None:
    closing = builders.pod("Worker", 1, phase, has_running_containers=True, end=view(ended(code)).end, ended=END)
    pods = (builders.pod(), builders.pod("Worker"), closing)
    found = builders.observe(builders.job(status=builders.status(phase, attempt=1)), *pods)

    def deleted(seconds: float) -> list[str]:
        now = datetime.fromtimestamp(END + seconds, UTC)
        actions = plan(found, ReconcileSettings(), now).actions
        return [pod.name for action in actions if isinstance(action, DeletePods) for pod in action.pods]

    assert deleted(5) == ["digits-master-0", "digits-worker-0"]
    assert deleted(CLOSING_SECONDS) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]


def test_pod_that_its_node_preempts_is_no_success_though_it_was_seen_to_end_well() -> None:
    since = timestamps.format_time(END + 1)
    target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    told = manifest(
        "Succeeded",
        containerStatuses=[{"name": "torch", "state": ended()}],
        conditions=[target | {"lastTransitionTime": since}],
    )
    assert pod_history.remember(view(ended()), pod_view.trim(told)).phase == "Failed"
