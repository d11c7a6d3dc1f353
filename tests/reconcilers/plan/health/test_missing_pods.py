"""The condition of an admitted job that says why its pods do not run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob import conditions
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.values import GroupView
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, CreatePods, DeletePods, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, NOW, all_pods, job, observe, pod, status, task

PAIR = {"Master": task(), "Worker": task(2)}
CREATED = NOW.timestamp()
NO_ROOM = "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
WAITS = "Unschedulable: waiting for minCount pods from a gang to be scheduled"


def admitted(scheduler: str = "volcano", phase: str = "Admitted", **fields: Any) -> TorchJob:
    bound = ADMISSION | {"gangScheduler": scheduler, "admittedAt": "2026-01-02T03:04:05Z"}
    return job(PAIR, status(phase, admission=bound, **fields), restartScope="Task")


def group(scheduler: str = "volcano", phase: str = "Inqueue", **fields: Any) -> GroupView:
    """Return the group of the job, created at NOW."""
    found = plan(observe(job(PAIR)), ReconcileSettings(gang_scheduler=scheduler), NOW)  # type: ignore[arg-type]
    (made,) = (each.manifest for each in found.actions if isinstance(each, CreateObject))
    metadata = {**made["metadata"], "uid": "g", "resourceVersion": "1", "creationTimestamp": "2026-01-02T03:04:05Z"}
    view = backends.get_backend(scheduler).trim({**made, "metadata": metadata, "status": {"phase": phase}})
    return replace(view, **fields)


def decide(described: TorchJob, *pods: PodView, after: float, groups: tuple[GroupView, ...] = ()) -> Plan:
    return plan(replace(observe(described, *pods), groups=groups), ReconcileSettings(), NOW + timedelta(seconds=after))


def written(found: Plan, kind: str = "Admitted") -> tuple[str, str]:
    """Return the reason and the message of the condition that a plan writes; empty if the plan writes no condition."""
    patches = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    said = [each for patch in patches for each in patch.get("conditions", ()) if each["type"] == kind]
    return (said[0]["reason"], said[0]["message"]) if said else ("", "")


def with_conditions(described: TorchJob, found: Plan) -> TorchJob:
    """Return a job with the status that a plan writes."""
    (patch,) = (each.change["status"] for each in found.actions if isinstance(each, WriteStatus))
    updated = described.status.model_validate({**described.status.manifest(), **patch})
    return described.model_copy(update={"status": updated})


def waiting(*problems: str, since: float = CREATED) -> tuple[PodView, ...]:
    """Return the pods of the job without nodes."""
    pods = all_pods("Pending", since=since)
    return tuple(replace(each, problem=problem) for each, problem in zip(pods, problems, strict=True))


def test_reason_of_pods_without_nodes_is_written_once_when_they_have_waited() -> None:
    described, pods = admitted(), waiting("Schedulable: it fits", NO_ROOM, "Schedulable: it fits")
    early = decide(described, *pods, after=9, groups=(group(),))
    assert (written(early), early.requeue_after) == (("", ""), 1.0)
    found = decide(described, *pods, after=10, groups=(group(),))
    assert written(found) == ("PodsUnschedulable", f"Worker: 1 {NO_ROOM.replace(':', ' (digits-worker-0):', 1)}")
    told = with_conditions(described, found)
    other = waiting("Schedulable: it fits", NO_ROOM.replace("3", "7"), "Schedulable: it fits")
    assert not decide(told, *other, after=15, groups=(group(),)).actions, "only a number differs"
    tainted = waiting(*["Unschedulable: 0/3 nodes are available: 3 node(s) had untolerated taint"] * 3)
    assert "taint" in written(decide(told, *tainted, after=20, groups=(group(),)))[1]
    bound = [replace(each, node="n1", problem="ContainerCreating") for each in pods]
    assert written(decide(told, *bound, after=20, groups=(group(),))) == ("Admitted", "its pods have nodes and start")


def test_pods_that_wait_for_others_are_named_only_without_a_cause() -> None:
    found = decide(admitted("kubernetes"), *waiting(WAITS, WAITS, NO_ROOM), after=10)
    assert written(found) == ("PodsUnschedulable", f"Worker: 1 {NO_ROOM.replace(':', ' (digits-worker-1):', 1)}")
    alone = decide(admitted("kubernetes"), *waiting(WAITS, WAITS, WAITS), after=10)
    assert "minCount" in written(alone)[1]


def test_group_that_is_not_let_in_is_the_reason_of_its_job() -> None:
    why = "Volcano has not let the group in yet: queue resource quota insufficient"
    pending = group(phase="Pending", message=why)
    assert decide(admitted(), after=9, groups=(pending,)).requeue_after == 1.0
    found = decide(admitted(), after=10, groups=(pending,))
    assert written(found) == ("PodGroupPending", f"PodGroup digits-0: {why}")
    foreign = replace(pending, name="digits-7", uid="other")
    assert written(decide(admitted(), after=10, groups=(foreign,))) == ("", "")
    early_pods = decide(admitted(), *waiting("", "", ""), after=40, groups=(pending,))
    assert written(early_pods)[0] == "PodGroupPending", "the scheduler has said why it does not look at the pods"
    told = with_conditions(admitted(), found)
    assert not decide(told, after=15, groups=(pending,)).actions
    let_in = decide(told, after=16, groups=(group(),))
    assert written(let_in)[0] == "Admitted"
    assert [each for each in let_in.actions if isinstance(each, CreatePods)]


def test_pods_that_do_not_start_are_the_reason_of_their_job() -> None:
    pods = [replace(each, node="n1", problem="ImagePullBackOff: no such image") for each in waiting("", "", "")]
    found = decide(admitted("none"), *pods, after=10)
    message = "Master: 1 ImagePullBackOff (digits-master-0): no such image"
    assert written(found)[0] == "PodsNotStarting"
    assert written(found)[1].startswith(message)


def test_gang_of_which_some_pods_are_bound_is_not_whole() -> None:
    master, first, second = waiting("", "", NO_ROOM)
    pods = (replace(master, node="n1"), replace(first, node="n1"), second)
    unseen = group("kubernetes", seen=False)
    assert written(decide(admitted("kubernetes"), *pods, after=29, groups=(unseen,)))[0] == "PodsUnschedulable"
    reason, message = written(decide(admitted("kubernetes"), *pods, after=30, groups=(unseen,)))
    assert reason == "GangNotWhole"
    assert message.startswith(
        f"2 pods of gang digits-0 have nodes, and it needs 3; digits-worker-1 has none ({NO_ROOM})"
    )
    assert "no scheduler has seen the PodGroup digits-0; check that kube-scheduler" in message
    assert written(decide(admitted("kubernetes"), *waiting(NO_ROOM, WAITS, WAITS), after=30))[0] == "PodsUnschedulable"


@pytest.mark.parametrize(("scheduler", "reason"), [("koordinator", "GangNotWhole"), ("none", "PodsUnschedulable")])
def test_pods_at_which_no_scheduler_looks_are_named_with_it(scheduler: str, reason: str) -> None:
    pods = waiting("", "", "")
    assert written(decide(admitted(scheduler), *pods, after=29)) == ("", "")
    found = written(decide(admitted(scheduler), *pods, after=30))
    assert found[0] == reason
    name = {"koordinator": "koord-scheduler", "none": "default-scheduler"}[scheduler]
    assert f"the scheduler {name} has not looked at it" in found[1]


def test_running_job_names_the_pod_without_a_node_and_keeps_its_ranks() -> None:
    counts = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 1}}
    described = admitted("kubernetes", "Running", taskStatuses=counts)
    replaced = pod("Worker", 1, "Pending", since=CREATED, problem=NO_ROOM)
    pods = (pod(node="n1"), pod("Worker", node="n1"), replaced)
    running = conditions.find(described.status.conditions, "Running")
    assert running is not None
    found = decide(described, *pods, after=30)
    assert (written(found, "Running")[0], written(found)[0]) == ("GangNotWhole", "Admitted")
    assert not [each for each in found.actions if isinstance(each, DeletePods)]
    told = with_conditions(described, found)
    shown = conditions.find(told.status.conditions, "Running")
    assert shown is not None
    assert shown.last_transition_time == running.last_transition_time
    whole = decide(told, *pods[:2], pod("Worker", 1, node="n2"), after=40)
    assert written(whole, "Running") == ("Running", "every task has its minimum of running pods")
