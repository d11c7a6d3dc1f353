"""A running job that is suspended or drained saves before its pods are deleted, within the longest grace."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import labels
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import AnnotateJob, DeletePods, Plan, WriteStatus
from tests.support.reconcilers.builders import NOW, all_pods, job, observe, status

NUMBER = str(int(NOW.timestamp()))
CAUSES = [{"suspend": True}, {}]
"""The cause for which the job leaves: a suspension in its spec, or else the drain of its queue."""


def saver(seconds: int = 60, annotations: Any = None, **spec: Any) -> TorchJob:
    policy = {"checkpointSeconds": seconds}
    return job(status=status("Running"), annotations=annotations, schedulingPolicy=policy, **spec)


def decide(of: TorchJob, seconds: float = 0, grace: int = 30, phase: str = "Running", **fields: Any) -> Plan:
    settings = ReconcileSettings(longest_grace=70.0)
    draining = not of.spec.suspend
    observation = replace(observe(of, *all_pods(phase, grace=grace)), draining=draining, **fields)
    return plan(observation, settings, NOW + timedelta(seconds=seconds))


def after(of: TorchJob, found: Plan) -> TorchJob:
    """Return the job with the changes of a plan."""
    for action in found.actions:
        if isinstance(action, WriteStatus):
            merged = TorchJobStatus.model_validate(of.status.manifest() | action.change["status"])
            of = of.model_copy(update={"status": merged})
        if isinstance(action, AnnotateJob):
            metadata = of.metadata.model_copy(update={"annotations": of.metadata.annotations | action.annotations})
            of = of.model_copy(update={"metadata": metadata})
    return of


def deletes(found: Plan) -> bool:
    return any(isinstance(action, DeletePods) for action in found.actions)


@pytest.mark.parametrize("spec", CAUSES)
@pytest.mark.parametrize("answer", ["annotation", "report"])
def test_pods_are_deleted_once_the_job_has_saved(spec: dict[str, Any], answer: str) -> None:
    asked = after(saver(**spec), decide(saver(**spec)))
    assert asked.save_request == int(NUMBER), "the answers to reports have this number"
    found = decide(asked)
    assert not deletes(found)
    waits = after(asked, found)
    assert waits.metadata.annotations[labels.CHECKPOINT_REQUESTED] == NUMBER
    assert (decide(waits, 10).actions, decide(waits, 10).requeue_after) == ((), 30.0), (
        "30 s of the 70 s are for its grace period"
    )
    if answer == "report":
        assert deletes(decide(waits, 11, reported_save=int(NUMBER)))
        return
    notes = waits.metadata.annotations | {labels.CHECKPOINT_COMPLETED: NUMBER}
    done = waits.model_copy(update={"metadata": waits.metadata.model_copy(update={"annotations": notes})})
    assert deletes(decide(done, 11))


@pytest.mark.parametrize("spec", CAUSES)
def test_save_and_grace_together_take_no_longer_than_the_longest_grace(spec: dict[str, Any]) -> None:
    asked = after(saver(**spec), decide(saver(**spec)))
    assert not deletes(decide(asked, 39))
    assert deletes(decide(asked, 40))
    assert deletes(decide(asked, 0, grace=70))


@pytest.mark.parametrize("spec", CAUSES)
def test_job_that_does_not_ask_for_saves_or_is_about_to_end_is_not_waited_for(spec: dict[str, Any]) -> None:
    assert deletes(decide(saver(0, **spec)))
    assert deletes(decide(saver(**spec), phase="Pending"))


def test_job_that_goes_on_forgets_the_request_and_is_asked_again_next_time() -> None:
    asked = after(saver(suspend=True), decide(saver(suspend=True)))
    resumed = asked.model_copy(update={"spec": asked.spec.model_copy(update={"suspend": False})})
    going = plan(observe(resumed, *all_pods()), ReconcileSettings(longest_grace=70.0), NOW + timedelta(seconds=100))
    assert not deletes(going)
    assert after(resumed, going).status.saving is None
