"""Pods that end where pods meet at a rendezvous store: which pods continue, which are restarted, and which are not
needed.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crds import labels
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import ending
from reconcilers.plan.plan import plan
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods, DeletePods, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views import torchrun
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import ADMISSION, NOW, UID, job, observe, pod, status, task

MESSAGES = Path(__file__).parents[1] / "views" / "torchrun_messages"
CLOSED, UNREACHABLE = (
    torchrun.last_output((MESSAGES / f"rendezvous_{name}.txt").read_text()).text for name in ("closed", "connection")
)
UPSTREAM = [{"taskType": "Rendezvous", "phase": "Running"}]
STORE = pod("Rendezvous")
T = NOW.timestamp()


def elastic(
    workers: int = 3,
    phase: str = "Running",
    policy: Any = (),
    wish: int | None = None,
    scope: str = "Task",
    others: Any = (),
    **more: Any,
) -> TorchJob:
    """Return an elastic job that was granted `workers` workers. The job requests the same number unless `wish` is
    another number.
    """
    charge = {"jobs": 1, "pods": workers + 1, "cpu": 1000 * (workers + 1)}
    admission = ADMISSION | {"charge": charge, "workers": workers, "grown": 0}
    tasks = {
        "Worker": task(wish or workers, dependsOn=UPSTREAM),
        "Rendezvous": task(auxiliary=True, critical=True),
        **dict(others),
    }
    bounds = {"numMinReplicas": 1, "numMaxReplicas": 8, **dict(policy)}
    found = status(phase, admission=admission, **more)
    return job(tasks, status=found, torchElasticPolicy=bounds, restartScope=scope)


def worker(index: int, **fields: Any) -> PodView:
    return pod("Worker", index, **fields)


def failed(index: int, code: int = 1, message: str = "", **fields: Any) -> PodView:
    """Return a worker that failed a minute ago."""
    late = message in (CLOSED, UNREACHABLE)
    fields = {"reason": "Error", "ended": T - 60, "exit_code": code, "lost_peer": late, **fields}
    return pod("Worker", index, "Failed", message=message, **fields)


def by_node(pod: PodView) -> PodView:
    """Return a failed pod whose node has started its containers again."""
    return replace(pod, phase="Running", self_healing=True, restarts=1, problem="CrashLoopBackOff")


def has_succeeded(of: TorchJob, pods: tuple[PodView, ...]) -> bool:
    assert of.admission is not None
    return ending.has_succeeded(Grant(of, of.admission), pods)


def decide(of: TorchJob, *pods: PodView, **settings: Any) -> Plan:
    chosen = ReconcileSettings(in_place="local", admission_timeout=0.0, **settings)
    return plan(observe(of, *pods), chosen, NOW)


def written(found: Plan) -> dict[str, Any]:
    """Return the change of the status."""
    (change,) = [action.change["status"] for action in found.actions if isinstance(action, WriteStatus)] or [{}]
    return dict(change)


def deleted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods]


def restarted(found: Plan) -> list[str]:
    """Return the pods whose containers are restarted in place."""
    patches = [action for action in found.actions if isinstance(action, PatchPodMetadata)]
    asked = [patch for patch in patches if labels.RESTART_CONTAINERS in patch.metadata.get("annotations", {})]
    assert all(patch.metadata["annotations"][labels.RENDEZVOUS_ID] == f"{UID}-1" for patch in asked)
    return [each.name for patch in asked for each in patch.pods]


class TestWorkers:
    @pytest.mark.parametrize(
        ("lost", "count"),
        [
            (failed(1, 137), "restartCount"),
            (failed(1, 1, "SignalException", cause=143), "restartCount"),
            (worker(1, deleting=True), "disruptions"),
        ],
    )
    def test_others_go_on_without_a_lost_worker(self, lost: PodView, count: str) -> None:
        change = written(decide(elastic(), STORE, worker(0), lost, worker(2)))
        assert (change[count], change["trainingRestarts"], change["replacing"]) == (1, 1, ["worker-1"])
        assert "restartGeneration" not in change

    @pytest.mark.parametrize("end", [{"message": CLOSED}, {"cause": 1, "message": "ValueError: no data"}])
    def test_torchrun_that_gave_up_has_closed_the_rendezvous_for_all(self, end: dict[str, Any]) -> None:
        found = decide(elastic(trainingRestarts=3), STORE, worker(0), failed(1, **end), worker(2))
        change = written(found)
        assert (change["restartGeneration"], change["restartCount"], change["trainingRestarts"]) == (1, 1, None)
        assert (restarted(found), deleted(found)) == (["digits-worker-0", "digits-worker-2"], ["digits-worker-1"])

    def test_all_meet_anew_where_a_lost_worker_restarts_the_job(self) -> None:
        found = decide(elastic(scope="Job"), STORE, worker(0), failed(1, 137), worker(2))
        assert (written(found)["restartGeneration"], written(found)["restartCount"]) == (1, 1)
        assert (restarted(found), deleted(found)) == (["digits-worker-0", "digits-worker-2"], ["digits-worker-1"])

    def test_script_that_always_fails_fails_the_job(self) -> None:
        found = decide(elastic(restartCount=6), STORE, worker(0), failed(1, cause=1, message="ValueError: no data"))
        assert written(found)["phase"] == "Failed"


class TestStore:
    @pytest.mark.parametrize(
        ("fields", "count"),
        [
            ({"deleting": True}, "disruptions"),
            ({"phase": "Failed", "exit_code": 137, "reason": "Error", "ended": T - 60}, "disruptions"),
            ({"phase": "Failed", "exit_code": 137, "reason": "OOMKilled", "ended": T - 60}, "restartCount"),
            ({"phase": "Failed", "exit_code": 1, "reason": "Error", "ended": T - 60}, "restartCount"),
            ({"phase": "Succeeded", "exit_code": 0, "reason": "Completed", "ended": T - 60}, "restartCount"),
        ],
    )
    def test_end_of_store_restarts_all_workers_in_place(self, fields: dict[str, Any], count: str) -> None:
        found = decide(elastic(2), replace(STORE, **fields), worker(0), worker(1))
        change = written(found)
        assert (change["restartGeneration"], change[count]) == (1, 1)
        assert restarted(found) == ["digits-worker-0", "digits-worker-1"]

    def test_worker_that_lost_the_store_waits_for_the_explanation(self) -> None:
        lost = failed(1, message=UNREACHABLE, ended=T - 1)
        found = decide(elastic(2), STORE, worker(0), lost)
        assert (found.actions, found.requeue_after) == ((), 1.0)
        explained = decide(elastic(2), replace(STORE, phase="Failed", exit_code=137, ended=T), worker(0), lost)
        assert written(explained)["disruptions"] == written(explained)["restartGeneration"] == 1

    @pytest.mark.parametrize("restarts", [False, True])
    def test_lost_connection_to_a_living_store_is_a_disruption(self, restarts: bool) -> None:
        lost = failed(1, message=UNREACHABLE, node="n1")
        change = written(decide(elastic(2), STORE, worker(0), by_node(lost) if restarts else lost))
        assert (change["disruptions"], change["replacing"]) == (1, ["worker-1/1" if restarts else "worker-1"])
        assert not change.keys() & {"restartCount", "restartGeneration", "nodeFailures"}

    @pytest.mark.parametrize(
        "fields",
        [
            {"phase": "Failed", "exit_code": 1, "message": "ModuleNotFoundError: No module named 'torch'"},
            {
                "phase": "Running",
                "exit_code": 1,
                "message": "No module named torch",
                "self_healing": True,
                "restarts": 1,
            },
            {"phase": "Failed", "exit_code": 128, "reason": "StartError", "message": "exec: python"},
            {"phase": "Failed", "exit_code": 127, "message": "sh: 1: python: not found"},
            {"phase": "Pending", "problem": 'CreateContainerError: exec "python": executable file not found in $PATH'},
        ],
    )
    def test_image_without_python_or_torch_fails_the_job(self, fields: dict[str, Any]) -> None:
        change = written(decide(elastic(2, "Admitted"), replace(STORE, ended=T - 60, **fields)))
        (why,) = [each for each in change["conditions"] if each["type"] == "Failed"]
        assert why["reason"] == "RendezvousFailed"
        assert "digits-rendezvous-0" in why["message"]
        assert "declare a task Rendezvous" in why["message"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"phase": "Failed", "exit_code": 137, "reason": "OOMKilled", "ended": T - 60},
            {"phase": "Pending", "problem": "CreateContainerError: the name is already in use"},
            {"phase": "Pending", "problem": "ErrImagePull: no such image"},
        ],
    )
    def test_other_troubles_of_the_store_may_pass(self, fields: dict[str, Any]) -> None:
        assert written(decide(elastic(2, "Admitted"), replace(STORE, **fields))).get("phase") != "Failed"


class TestEnd:
    @pytest.mark.parametrize("late", [failed(2, message=CLOSED), by_node(failed(2, message=CLOSED))])
    def test_worker_that_came_too_late_has_not_failed(self, late: PodView) -> None:
        pods = (STORE, worker(0, phase="Succeeded"), worker(1), late)
        assert not decide(elastic(), *pods).actions
        assert not has_succeeded(elastic(), pods)
        assert has_succeeded(elastic(), (pods[0], pods[1], worker(1, phase="Succeeded"), pods[3]))

    def test_no_worker_is_made_once_one_has_succeeded(self) -> None:
        pods = (STORE, worker(0, phase="Succeeded"), worker(1))
        assert not [action for action in decide(elastic(), *pods).actions if isinstance(action, CreatePods)]
        assert has_succeeded(elastic(), (STORE, worker(0, phase="Succeeded"), worker(1, phase="Succeeded")))

    def test_nothing_grows_once_the_master_has_succeeded(self) -> None:
        others = {"Master": task(), "Evaluate": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}])}
        waiting = {"from": 2, "to": 3, "since": "2026-01-02T03:00:00Z"}
        growing = elastic(2, wish=3, others=others, scaling=waiting)
        for phase, is_over in (("Running", False), ("Succeeded", True)):
            change = written(decide(growing, STORE, pod("Master", phase=phase), worker(0), worker(1)))
            assert ("scaling" in change) is is_over
            assert change.get("scaling") is None

    def test_task_that_succeeds_before_the_workers_start_does_not_close_their_rendezvous(self) -> None:
        found = elastic(2, others={"Prepare": task()})
        pods = (STORE, pod("Prepare", phase="Succeeded"), worker(0, phase="Pending", shut_since=T))
        assert not has_succeeded(found, pods)
        (created,) = [action.manifests for action in decide(found, *pods).actions if isinstance(action, CreatePods)]
        assert [each["metadata"]["name"] for each in created] == ["digits-worker-1"]

    def test_worker_that_has_not_joined_is_not_needed(self) -> None:
        waiting = worker(2, phase="Pending", shut_since=T)
        pods = (STORE, worker(0, phase="Succeeded"), worker(1, phase="Succeeded"), waiting)
        assert has_succeeded(elastic(), pods)

    @pytest.mark.parametrize(
        ("lost", "count"),
        [
            (failed(1, cause=1, message="OSError: disk full"), "restartCount"),
            (failed(1, 137), "restartCount"),
            (worker(1, deleting=True), "disruptions"),
        ],
    )
    def test_worker_that_is_lost_at_the_end_begins_again_with_all_others(self, lost: PodView, count: str) -> None:
        pods = (STORE, worker(0, phase="Succeeded"), lost)
        assert not has_succeeded(elastic(2), pods)
        change = written(decide(elastic(2), *pods))
        assert (change[count], change["restartGeneration"]) == (1, 1)

    def test_waiting_worker_may_be_deleted_at_the_end(self) -> None:
        pods = (STORE, worker(0, phase="Succeeded"), worker(1), worker(2, phase="Pending", deleting=True))
        assert not decide(elastic(), *pods).actions

    def test_worker_that_is_lost_after_the_master_has_succeeded_restarts_no_other(self) -> None:
        others = {"Master": task(), "Evaluate": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}])}
        pods = (STORE, pod("Master", phase="Succeeded"), pod("Evaluate"), failed(0, 137))
        ends_with_its_master = elastic(1, others=others)
        assert "restartGeneration" in written(decide(ends_with_its_master, *pods)), (
            "the task Worker has to succeed, too"
        )
        assert ends_with_its_master.admission is not None
        admission = ends_with_its_master.admission.model_copy(update={"success_policy": "Master"})
        found = ends_with_its_master.status.model_copy(update={"admission": admission})
        ends_with_its_master = ends_with_its_master.model_copy(update={"status": found})
        assert "restartGeneration" not in written(decide(ends_with_its_master, *pods))

    def test_success_before_a_restart_of_all_pods_closes_nothing(self) -> None:
        again = elastic(2, "Admitted", restartGeneration=1)
        pods = (replace(STORE, restart=1), worker(0, phase="Succeeded"), worker(1, restart=1))
        assert "digits-worker-0" in deleted(decide(again, *pods))


class TestRestartsOfProcesses:
    @pytest.mark.parametrize(("spent", "most", "is_whole"), [(8, 10, False), (9, 10, True), (0, 1, True), (0, 0, True)])
    def test_loss_that_uses_up_the_last_restart_restarts_all_pods(self, spent: int, most: int, is_whole: bool) -> None:
        before = elastic(policy={"maxRestarts": most}, trainingRestarts=spent)
        found = decide(before, STORE, worker(0), failed(1, 137), worker(2))
        assert (written(found).get("restartGeneration") == 1) is is_whole
        assert written(found).get("trainingRestarts") == (None if is_whole else 9)
        assert restarted(found) == (["digits-worker-0", "digits-worker-2"] if is_whole else [])
        assert written(found)["restartCount"] == 1, "the loss is counted as before"

    def test_restarts_that_are_used_up_without_a_loss_are_renewed_uncounted(self) -> None:
        found = decide(elastic(2, trainingRestarts=10), STORE, worker(0), worker(1))
        change = written(found)
        assert (change["restartGeneration"], change["trainingRestarts"]) == (1, None)
        assert not change.keys() & {"restartCount", "disruptions"}
        assert restarted(found) == ["digits-worker-0", "digits-worker-1"]
        assert not decide(elastic(2, trainingRestarts=9), STORE, worker(0), worker(1)).actions
        ending = decide(elastic(2, trainingRestarts=10), STORE, worker(0), worker(1, phase="Succeeded"))
        assert not ending.actions, "the other workers are about to succeed, too"

    @pytest.mark.parametrize(("to", "spent"), [(2, 5), (3, 4)])
    def test_removal_of_workers_counts_once_unless_they_never_joined(self, to: int, spent: int) -> None:
        victims = {"from": 3, "to": to, "since": "2026-01-02T03:00:00Z", "victims": ["digits-worker-2"]}
        shrinking = elastic(3, wish=to, trainingRestarts=4, scaling=victims)
        change = written(decide(shrinking, STORE, worker(0), worker(1)))
        assert change["admission"]["workers"] == 2
        assert change.get("trainingRestarts", 4) == spent


def test_store_ends_with_the_stage_that_met_there() -> None:
    after = {"Evaluate": task(dependsOn=[{"taskType": "Worker", "phase": "Succeeded"}])}
    described = elastic(2, others=after, stages={"1": {"began": "2026-01-02T03:02:00Z"}})
    ended = (worker(0, phase="Succeeded"), worker(1, phase="Succeeded"))
    found = decide(described, STORE, *ended)
    assert [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods] == [
        STORE.name
    ], "the next stage may need the address of the store"
    assert not any(isinstance(action, CreatePods) for action in found.actions)
    found = decide(described, *ended)
    assert sum(isinstance(action, CreatePods) for action in found.actions) == 1
    going = elastic(2, others=after)
    assert not any(isinstance(action, DeletePods) for action in decide(going, STORE, ended[0], worker(1)).actions)
