"""Jobs whose domain takes no pods give their room back, and keep their place."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from reconcilers import facts
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeletePods, EmitEvent, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, NOW, job, observe, pod, status, task

IN_RACK = ADMISSION | {"domain": "rack=r1", "admittedAt": "2026-01-02T03:04:05Z"}
WORDS = "no node with rack=r1 takes new pods: the job may run elsewhere"
ELASTIC = {"torchElasticPolicy": {"numMinReplicas": 1, "mode": "InPlaceRestart"}}


def in_rack(phase: str = "Admitted", **spec: Any) -> TorchJob:
    return job({"Worker": task(2)}, status(phase, admission=IN_RACK), **spec)


def workers(first: str, second: str) -> tuple[PodView, ...]:
    """Return two workers: on a node if one is named, else without one since NOW."""
    pending = {"phase": "Pending", "since": NOW.timestamp(), "problem": "Unschedulable: no node fits"}
    return tuple(
        pod("Worker", index, node=node) if node else pod("Worker", index, **pending)
        for index, node in enumerate((first, second))
    )


def decide(described: TorchJob, *pods: PodView, after: float = 10, closes_in: float | None = 0.0) -> Plan:
    seen = observe(described, *pods, domain_closes_in=closes_in)
    return plan(seen, ReconcileSettings(admission_timeout=0.0), NOW + timedelta(seconds=after))


@pytest.mark.parametrize(
    ("described", "pods", "facts", "leaves"),
    [
        (in_rack(), workers("", ""), {}, True),
        (in_rack(), workers("n1", ""), {}, True),
        (in_rack(), workers("n1", ""), {"closes_in": None}, False),
        (in_rack(), workers("n1", ""), {"closes_in": 7.0}, False),
        (in_rack(), workers("n1", ""), {"after": 9}, False),
        (in_rack(), tuple(replace(each, phase="Pending") for each in workers("n1", "n2")), {}, False),
        (in_rack("Running"), workers("n1", ""), {}, False),  # it goes on, or is restarted first
        (in_rack(**ELASTIC), workers("n1", ""), {}, False),  # it runs with its least number of workers
    ],
)
def test_job_leaves_a_closed_domain_if_it_cannot_run_there(
    described: TorchJob, pods: tuple[PodView, ...], facts: dict[str, Any], leaves: bool
) -> None:
    found = decide(described, *pods, **facts)
    deleted = [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods]
    assert deleted == (["digits-worker-0", "digits-worker-1"] if leaves else [])


def test_job_is_looked_at_again_when_the_silence_of_its_nodes_closes_its_domain() -> None:
    assert decide(in_rack(), *workers("n1", ""), closes_in=7.0).requeue_after == 7.0


def test_job_that_leaves_in_a_later_stage_does_not_repeat_what_has_succeeded() -> None:
    tasks = {"Prepare": task(), "Worker": task(2, dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}])}
    began = {"1": {"began": "2026-01-02T03:04:05Z"}}
    said: Any = status("Running", admission=IN_RACK, stages=began)
    for pods in ((pod("Prepare", 0, "Succeeded"), *workers("n1", "")), ()):
        (patch,) = (
            each.change["status"] for each in decide(job(tasks, said), *pods).actions if isinstance(each, WriteStatus)
        )
        said = facts.with_change(said, patch)
    assert (said["phase"], "admission" in said, list(said["stages"])) == ("Queued", False, ["1"])


def test_job_that_left_waits_first_in_its_queue_and_no_try_is_counted() -> None:
    leaving = decide(in_rack(), *workers("", ""))
    (patch,) = (each.change["status"] for each in leaving.actions if isinstance(each, WriteStatus))
    said = status("Admitted", admission=IN_RACK) | patch
    (condition,) = said["conditions"]
    assert (condition["reason"], condition["message"]) == ("DomainClosed", WORDS)
    told = job({"Worker": task(2)}, said)
    # The nodes may take pods again while the last pods end.
    sent_back = decide(told, closes_in=None)
    (patch,) = (each.change["status"] for each in sent_back.actions if isinstance(each, WriteStatus))
    assert (patch["phase"], patch["admission"]) == ("Queued", None)
    queue = patch["queue"]
    assert (queue["drained"], queue["held"], queue.get("tries", 0)) == (True, ADMISSION["charge"], 0)
    assert "notBefore" not in queue
    events = [(each.reason, each.message) for each in sent_back.actions if isinstance(each, EmitEvent)]
    assert events == [("DomainClosed", WORDS)]
