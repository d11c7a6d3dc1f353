"""The plan while the API server fails to create requests to recreate containers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Blocker, DeletePods, EmitEvent, Plan, WriteStatus
from tests.support.reconcilers.builders import NOW, all_pods, job, observe, status

KRUISE = ReconcileSettings(in_place="kruise", served=frozenset({RECREATE_REQUESTS}))
FAILING = Blocker("ContainerRecreateRequestNotCreated", "no webhook", passing=True)


def decide(of: TorchJob, seconds: float = 0.0) -> Plan:
    observation = replace(observe(of, *all_pods()), obstacle=FAILING)
    return plan(observation, KRUISE, NOW + timedelta(seconds=seconds))


def written(found: Plan) -> dict[str, Any]:
    return {
        name: value
        for action in found.actions
        if isinstance(action, WriteStatus)
        for name, value in action.change["status"].items()
    }


def deleted(found: Plan) -> int:
    return sum(len(action.pods) for action in found.actions if isinstance(action, DeletePods))


def after(of: TorchJob, found: Plan) -> TorchJob:
    changed = of.status.manifest() | written(found)
    return job(status={key: value for key, value in changed.items() if value is not None})


def test_only_the_condition_is_written_while_the_restart_may_still_be_done() -> None:
    found = decide(job(status=status("Admitted", restartGeneration=1)))
    assert [type(action) for action in found.actions] == [WriteStatus]
    assert (written(found)["blockedSince"], found.requeue_after) == ("2026-01-02T03:04:05Z", 1.0)


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.0, 1.0), (5.0, 5.0), (20.0, 20.0), (50.0, 10.0), (-20.0, 20.0), (59.0, 1.0)]
)
def test_pauses_double_up_to_the_time_for_a_restart(seconds: float, pause: float) -> None:
    begun = job(status=status("Admitted", restartGeneration=1))
    known = after(begun, decide(begun))
    assert decide(known, seconds) == Plan(requeue_after=pause)


def test_pods_of_a_running_job_are_replaced_in_the_end_without_another_wait() -> None:
    begun = job(status=status("Running", restartGeneration=1))
    known = after(begun, decide(begun))
    assert known.status.phase == "Running"
    left = decide(known, 60.0)
    assert (written(left)["phase"], deleted(left)) == ("Admitted", 0)
    found = decide(after(known, left), 61.0)
    assert deleted(found) == 3
    assert [action.reason for action in found.actions if isinstance(action, EmitEvent)] == ["NotRestartedInPlace"]


def test_next_restart_has_its_own_time() -> None:
    begun = job(status=status("Admitted", restartGeneration=1, blockedSince="2026-01-02T03:00:00Z"))
    assert deleted(decide(begun)) == 3
    pods = [replace(pod, restart=1) for pod in all_pods()]
    failed = replace(pods[0], phase="Failed", exit_code=137)
    found = plan(observe(begun, failed, *pods[1:]), KRUISE, NOW)
    assert (written(found)["restartGeneration"], written(found)["blockedSince"]) == (2, None)


def test_failure_of_another_kind_does_not_shorten_the_time() -> None:
    begun = job(status=status("Admitted", restartGeneration=1, blockedSince="2026-01-02T03:00:00Z"))
    conditions = [{**begun.status.manifest()["conditions"][0], "reason": "PodNotCreated"}]
    hindered = job(status=begun.status.manifest() | {"conditions": conditions})
    assert deleted(decide(hindered)) == 0
