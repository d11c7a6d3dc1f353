"""The pods that have to end with 0 for the success of a job, and what happens to the other pods before the success."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from crds import labels
from crds.torchjob import conditions
from crds.torchjob.conditions import RANKS_REMEDY
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, DeletePods, EmitEvent, Plan, WriteStatus
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, NOW, UNDER_MASTER, job, observe, pod, status, task

T = NOW.timestamp()
DONE = pod(phase="Succeeded", ended=T - 2)
FIRST, SECOND = pod("Worker", 0), pod("Worker", 1)
COUNTS = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 2}}


def running(tasks: Any = None, **spec: Any) -> TorchJob:
    return job(tasks, status("Running", taskStatuses=COUNTS), **spec)


def decide(of: TorchJob, *pods: PodView, now: datetime = NOW, **fields: Any) -> Plan:
    return plan(replace(observe(of, *pods), **fields), ReconcileSettings(in_place="local"), now)


def written(found: Plan) -> dict[str, Any]:
    (change,) = [action.change["status"] for action in found.actions if isinstance(action, WriteStatus)] or [{}]
    return dict(change)


def events(found: Plan) -> list[str]:
    return [action.reason for action in found.actions if isinstance(action, EmitEvent)]


def message(change: dict[str, Any]) -> str:
    return next(each["message"] for each in change["conditions"] if each["type"] == "Running")


def test_job_waits_for_every_rank_after_the_end_of_its_master() -> None:
    assert written(decide(running(), DONE, FIRST, SECOND)) == {}
    ended = [replace(each, phase="Succeeded") for each in (FIRST, SECOND)]
    assert written(decide(running(), DONE, ended[0], SECOND)) == {}
    assert written(decide(running(), DONE, *ended))["phase"] == "Succeeded"


def test_a_success_names_the_pod_that_was_connected_with_a_pod_of_another_job() -> None:
    advised = pod_view._conditions({"conditions": [{"type": labels.PORT_SHARED, "message": "met job a"}]})
    ended = [replace(each, phase="Succeeded") for each in (FIRST, SECOND)]
    met = replace(ended[1], advice=advised["advice"])
    found = written(decide(running(), DONE, ended[0], met))
    (message,) = [each["message"] for each in found["conditions"] if each["type"] == "Succeeded"]
    assert message == f"all is done, but pod {SECOND.name}: met job a"


@pytest.mark.parametrize("scope", ["Job", "Task"])
@pytest.mark.parametrize("how", ["killed", "deleted", "without a trace"])
def test_rank_that_is_lost_after_the_end_of_another_restarts_all_ranks(how: str, scope: str) -> None:
    lost = {
        "killed": [replace(SECOND, phase="Failed", exit_code=137, reason="Error", ended=T - 60)],
        "deleted": [replace(SECOND, deleting=True)],
        "without a trace": [],
    }[how]
    change = written(decide(running(restartScope=scope), DONE, FIRST, *lost))
    assert change["restartGeneration"] == 1


def test_rank_that_is_lost_while_all_others_run_restarts_as_its_scope_says() -> None:
    lost = replace(SECOND, phase="Failed", exit_code=137, reason="Error", ended=T - 60)
    assert "restartGeneration" not in written(decide(running(restartScope="Task"), pod(), FIRST, lost))


def test_rank_that_fails_for_good_after_the_end_of_another_fails_the_job() -> None:
    tasks = {"Master": task(), "Worker": task(2, restartPolicy="ExitCode", dependsOn=[])}
    lost = replace(SECOND, phase="Failed", exit_code=1, reason="Error", message="ValueError: no data", ended=T - 60)
    assert written(decide(running(tasks), DONE, replace(FIRST, phase="Succeeded"), lost))["phase"] == "Failed"


def test_task_outside_of_the_world_restarts_no_rank() -> None:
    tasks = {"Master": task(), "Worker": task(2, dependsOn=[]), "Board": task(auxiliary=True)}
    lost = pod("Board", 0, "Failed", exit_code=137, reason="Error", ended=T - 60)
    change = written(decide(running(tasks, restartScope="Task"), DONE, FIRST, SECOND, lost))
    assert change["restartCount"] == 1
    assert "restartGeneration" not in change


def test_policy_master_without_a_master_is_the_same_as_all_tasks() -> None:
    found = status("Running", admission=UNDER_MASTER)
    one = replace(SECOND, phase="Failed", exit_code=137, reason="Error", ended=T - 60)
    of = job({"Worker": task(2)}, found, restartScope="Task")
    assert written(decide(of, replace(FIRST, phase="Succeeded"), one))["restartGeneration"] == 1


def test_pod_beyond_the_minimum_that_disappeared_is_not_taken_for_one_that_never_began() -> None:
    of = running(minMembers={"Worker": 1})
    ended = replace(FIRST, phase="Succeeded")
    assert written(decide(of, DONE, ended, replace(SECOND, phase="Pending")))["phase"] == "Succeeded"
    assert written(decide(of, DONE, ended))["restartGeneration"] == 1


def test_rank_does_not_leave_a_cordoned_node_once_another_has_ended() -> None:
    on_node = replace(SECOND, node="n2")
    leaves = decide(running(), pod(), FIRST, on_node, departures={"n2": "is cordoned"})
    assert written(leaves)["restartGeneration"] == 1
    assert written(decide(running(), DONE, FIRST, on_node, departures={"n2": "is cordoned"})) == {}


def test_static_world_does_not_grow_once_its_master_has_ended() -> None:
    tasks = {"Master": task(), "Worker": task(4, dependsOn=[])}
    policy = {"numMinReplicas": 1, "numMaxReplicas": 8, "mode": "InPlaceRestart"}
    found = status("Running", admission=ADMISSION | {"workers": 2, "grown": 0})
    of = job(tasks, found, torchElasticPolicy=policy)
    assert "scaling" in written(decide(of, pod(), FIRST, SECOND))
    assert written(decide(of, DONE, FIRST, SECOND)) == {}


def after(of: TorchJob, change: dict[str, Any]) -> TorchJob:
    merged = TorchJobStatus.model_validate(of.status.manifest() | change)
    return of.model_copy(update={"status": merged})


def advance(of: TorchJob, pods: Iterable[PodView], seconds: float) -> tuple[TorchJob, Plan]:
    found = decide(of, *pods, now=NOW + timedelta(seconds=seconds))
    return after(of, written(found)), found


def test_condition_names_the_ranks_for_which_the_job_waits_and_later_what_limits_that() -> None:
    tasks = {"Master": task(), "Worker": task(5, dependsOn=[])}
    workers = [pod("Worker", index) for index in range(5)]
    of, found = advance(job(tasks, status("Running")), (DONE, *workers), 0)
    assert (written(found), found.requeue_after) == ({}, 3.0)
    of, found = advance(of, (DONE, *workers), 3)
    assert message(written(found)) == (
        "the job waits for rank 1 (pod digits-worker-0), rank 2 (pod digits-worker-1), rank 3 (pod digits-worker-2) "
        "and others, as others have ended with 0 since 2026-01-02T03:04:03Z"
    )
    assert (events(found), found.requeue_after) == ([], 595.0)
    workers[3] = replace(workers[3], phase="Succeeded", ended=T + 9)
    of, found = advance(of, (DONE, *workers), 9)
    assert written(found) == {}, "the first three still run"
    of, found = advance(of, (DONE, *workers), 598)
    assert message(written(found)).endswith(RANKS_REMEDY)
    assert events(found) == ["WaitsForRanks"]
    workers[0] = replace(workers[0], phase="Succeeded", ended=T + 700)
    of, found = advance(of, (DONE, *workers), 700)
    assert "rank 2 (pod digits-worker-1), rank 3 (pod digits-worker-2) and rank 5" in message(written(found))
    assert events(found) == [], "one Event is enough"
    again = [replace(each, restart=1) for each in (pod(), *(pod("Worker", index) for index in range(5)))]
    restarted = after(of, {"restartGeneration": 1})
    assert message(written(decide(restarted, *again))) == "every task has its minimum of running pods"
    assert conditions.find(of.status.conditions, "Running") is not None


STAGED = {
    "Master": task(),
    "Worker": task(dependsOn=[]),
    "Evaluate": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}]),
}
BEGUN = {"1": {"began": "2026-01-02T03:03:00Z", "running": "2026-01-02T03:03:00Z"}}


def test_rank_that_fails_while_a_later_stage_runs_restarts_its_peers_and_then_that_stage() -> None:
    of = job(STAGED, status("Running", stages=BEGUN))
    lost = replace(FIRST, phase="Failed", exit_code=137, reason="Error", ended=T - 60)
    found = decide(of, DONE, lost, pod("Evaluate"))
    change = written(found)
    assert (change["restartGeneration"], change["stages"]) == (1, {"1": None})
    ended = {each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods}
    assert ended == {"digits-master-0", "digits-worker-0", "digits-evaluate-0"}, "no pod is restarted in place"
    kept = {name: value for name, value in (of.status.manifest() | change).items() if name != "stages"}
    again = of.model_copy(update={"status": TorchJobStatus.model_validate(kept)})
    made = [each for each in decide(again, now=NOW + timedelta(minutes=9)).actions if isinstance(each, CreatePods)]
    assert sorted(each["metadata"]["name"] for action in made for each in action.manifests) == [
        "digits-master-0",
        "digits-worker-0",
    ]


def test_stage_stays_begun_over_a_restart_if_the_whole_world_that_it_waited_for_is_over() -> None:
    both = [{"taskType": name, "phase": "Succeeded"} for name in ("Master", "Worker")]
    of = job({**STAGED, "Evaluate": task(dependsOn=both)}, status("Running", stages=BEGUN))
    lost = pod("Evaluate", phase="Failed", exit_code=137, reason="Error", ended=T - 60)
    change = written(decide(of, lost))
    assert (change["restartGeneration"], change.get("stages")) == (1, None)


def test_restart_of_one_rank_that_its_owner_requests_restarts_all_once_another_has_ended() -> None:
    request = {labels.RESTART_REQUEST: '{"id": "a", "task": "Worker", "index": 0}'}
    of = job(None, status("Running", taskStatuses=COUNTS), annotations=request)
    assert written(decide(of, DONE, FIRST, SECOND))["restartGeneration"] == 1
    assert "restartGeneration" not in written(decide(of, pod(), FIRST, SECOND))
