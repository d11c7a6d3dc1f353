"""The plan for a job that hangs: its writes, Events, restarts and counts, and how often the plan has each of these."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.plan.status import is_blocked
from reconcilers.settings import ReconcileSettings
from reconcilers.values import DeletePods, EmitEvent, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, all_pods, job, manifest, observe, status

LOCAL = ReconcileSettings(in_place="local")
PODS = tuple(replace(each, node=f"node-{each.task}-{each.index}") for each in all_pods())
SINCE = "2026-01-02T03:03:00Z"
WORKERS = {"Master": {"active": 1, "ready": 1}, "Worker": {"active": 2, "ready": 2}}


def hanging(how: str, blamed: str = "", fields: Any = None, **spec: Any) -> TorchJob:
    """Return a running job that was found to hang."""
    health = {"hangTimeoutSeconds": 60, "onHang": how}
    before = status("Running", taskStatuses=WORKERS, **(fields or {}))
    run = job(status=before, health=health, **spec).status.run
    hang = {"since": SINCE, "run": run, "behind": ["digits-worker-1"], "blamed": blamed}
    return job(status=before | {"hang": hang}, health=health, **spec)


def decide(of: TorchJob, *pods: PodView, settings: ReconcileSettings = LOCAL) -> Plan:
    return plan(observe(of, *(pods or PODS)), settings, NOW)


def written(found: Plan) -> dict[str, Any]:
    changes = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    assert len(changes) <= 1
    return dict(changes[0]) if changes else {}


def after(of: TorchJob, found: Plan) -> TorchJob:
    """Return the job as the API server stores it after the write of a plan."""
    before = of.status.manifest()
    merged = {name: value for name, value in (before | written(found)).items() if value is not None}
    return torchjob.parse(manifest(status=merged, health=of.spec.health.model_dump(by_alias=True)))


def told(found: Plan) -> list[tuple[str, str]]:
    return [(each.reason, each.message) for each in found.actions if isinstance(each, EmitEvent)]


def deleted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods]


def restarted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, PatchPodMetadata) for each in action.pods]


def reasons(of: TorchJob) -> dict[str, str]:
    return {each.type: each.reason for each in of.status.conditions if each.status == "True"}


MESSAGE = f"no pod makes a step since {SINCE}; furthest behind: digits-worker-1"


class TestReport:
    def test_hang_is_told_once_and_shown_until_a_step_is_made(self) -> None:
        hangs = hanging("Report")
        found = decide(hangs)
        assert told(found) == [("Hanging", MESSAGE)]
        shown = after(hangs, found)
        assert reasons(shown) == {"Admitted": "Admitted", "Running": "Hanging"}
        assert (shown.status.restart_count, shown.hang) == (0, hangs.hang)
        assert decide(shown) == Plan()
        steps = after(shown, Plan((WriteStatus({"status": {"hang": None}}, ""),)))
        moved = after(steps, decide(steps))
        assert reasons(moved) == {"Admitted": "Admitted", "Running": "Running"}
        assert (told(decide(steps)), decide(moved)) == ([], Plan())

    def test_event_precedes_the_status_so_that_no_crash_can_lose_it(self) -> None:
        assert [type(each).__name__ for each in decide(hanging("Report")).actions] == ["EmitEvent", "WriteStatus"]

    def test_time_of_the_condition_stays(self) -> None:
        hangs = hanging("Report")
        shown = after(hangs, decide(hangs))
        times = [{each.type: each.last_transition_time for each in of.status.conditions} for of in (hangs, shown)]
        assert times[0] == times[1]

    @pytest.mark.parametrize("change", [{"health": {}}, {"health": {"onHang": "Report"}}])
    def test_hang_of_a_job_that_is_no_longer_watched_is_removed(self, change: dict[str, Any]) -> None:
        hangs = hanging("Report")
        shown = after(hangs, decide(hangs))
        unwatched = torchjob.parse(manifest(status=shown.status.manifest(), **change))
        found = decide(unwatched)
        assert (written(found)["hang"], told(found)) == (None, [])
        assert reasons(after(unwatched, found))["Running"] == "Running"

    def test_switch_to_restart_takes_effect_on_a_hang_that_was_reported(self) -> None:
        hangs = hanging("Report")
        shown = after(hangs, decide(hangs))
        switched = torchjob.parse(
            manifest(status=shown.status.manifest(), health={"hangTimeoutSeconds": 60, "onHang": "Restart"})
        )
        assert written(decide(switched))["restartCount"] == 1


class TestRestart:
    def test_count_and_removal_of_the_hang_are_one_patch(self) -> None:
        hangs = hanging("Restart")
        found = decide(hangs)
        change = written(found)
        assert (change["restartCount"], change["restartGeneration"], change["hang"]) == (1, 1, None)
        assert told(found) == [("Hanging", MESSAGE), ("Restarting", f"restart 1 of 6: {MESSAGE}")]
        begun = after(hangs, found)
        assert (reasons(begun), is_blocked(begun.status)) == ({"Admitted": "Hanging"}, False)
        assert (restarted(found), deleted(found)) == ([each.name for each in all_pods()], [])
        assert (written(decide(begun)), told(decide(begun))) == ({}, [])

    def test_finding_about_an_earlier_run_restarts_nothing(self) -> None:
        hangs = hanging("Restart")
        late = torchjob.parse(
            manifest(
                status=hangs.status.manifest() | {"restartCount": 1},
                health={"hangTimeoutSeconds": 60, "onHang": "Restart"},
            )
        )
        found = decide(late)
        assert (written(found), told(found)) == ({"hang": None}, [])

    def test_second_restart_backs_off_as_other_failures_do(self) -> None:
        fields = {"consecutiveRestarts": 1, "restartNotBefore": "2026-01-02T03:00:00Z", "restartCount": 1}
        before = status("Running", **fields)
        before["conditions"][1]["lastTransitionTime"] = "2026-01-02T03:03:00Z"
        found = decide(hanging("Restart", fields={**fields, "conditions": before["conditions"]}))
        assert written(found)["consecutiveRestarts"] == 2
        assert (restarted(found), deleted(found)) == ([], [])

    def test_job_without_a_restart_left_fails(self) -> None:
        found = decide(hanging("Restart", fields={"restartCount": 2}, backoffLimit=2))
        change = written(found)
        assert (change["phase"], change["hang"]) == ("Failed", None)
        message = f"{MESSAGE}; no restart left of backoffLimit 2"
        assert told(found) == [("Hanging", MESSAGE), ("BackoffLimitExceeded", message)]

    def test_failure_of_a_pod_precedes_the_hang(self) -> None:
        failed = replace(PODS[1], phase="Failed", exit_code=137)
        change = written(decide(hanging("Restart"), PODS[0], failed, PODS[2]))
        assert (change["restartCount"], change["hang"]) == (1, None)

    def test_job_that_is_suspended_is_not_restarted(self) -> None:
        change = written(decide(hanging("Restart", suspend=True)))
        assert (change.get("restartCount"), change["hang"]) == (None, None)


class TestOnePodToBlame:
    def test_pod_is_replaced_alone_where_the_scope_allows(self) -> None:
        hangs = hanging("Restart", "digits-worker-1", restartScope="Task")
        found = decide(hangs)
        change = written(found)
        assert (change["restartCount"], change["replacing"], change["hang"]) == (1, ["worker-1"], None)
        assert ("restartGeneration" in change, change["nodeFailures"]) == (False, {"node-worker-1": 1})
        assert (deleted(found), restarted(found)) == (["digits-worker-1"], [])
        assert told(found)[0] == ("Hanging", f"pod digits-worker-1 makes no step since {SINCE}, while others report")

    def test_pod_is_replaced_and_all_others_are_restarted_in_place(self) -> None:
        hangs = hanging("Restart", "digits-worker-1")
        found = decide(hangs)
        change = written(found)
        assert (change["restartGeneration"], change["nodeFailures"]) == (1, {"node-worker-1": 1})
        assert (deleted(found), restarted(found)) == (["digits-worker-1"], ["digits-master-0", "digits-worker-0"])

    def test_pod_that_is_replaced_is_not_restarted_in_place_as_well(self) -> None:
        found = decide(hanging("Restart", "digits-master-0"))
        assert (deleted(found), restarted(found)) == (["digits-master-0"], [])

    def test_node_on_which_pods_hang_repeatedly_is_avoided(self) -> None:
        fields = {"nodeFailures": {"node-worker-1": 2}}
        found = decide(hanging("Restart", "digits-worker-1", fields), settings=ReconcileSettings(node_failures=3))
        assert written(found)["excludedNodes"] == ["node-worker-1"]
        assert [reason for reason, _ in told(found)] == ["Hanging", "Restarting", "NodeExcluded"]

    def test_pod_that_is_gone_is_not_blamed(self) -> None:
        gone = (PODS[0], PODS[1], replace(PODS[2], phase="Pending"))
        change = written(decide(hanging("Restart", "digits-worker-1"), *gone))
        assert (change["restartCount"], "nodeFailures" in change) == (1, False)


def test_hang_is_void_while_workers_join_or_leave() -> None:
    before = hanging("Report").status
    for scaling in ({"victims": ["digits-worker-1"]}, {"deadline": NOW + timedelta(hours=1)}, {"to": 1}):
        admission = {**before.manifest()["admission"], "workers": 2, "grown": 0}
        fields = {"from": 2, "to": 2, "since": NOW, **scaling}
        changed = job(status=before.manifest() | {"admission": admission, "scaling": fields})
        calm = job(status=before.manifest() | {"admission": admission})
        assert changed.status.run != calm.status.run
    paid = job(status=calm.status.manifest() | {"admission": {**admission, "grown": 1}})
    assert paid.status.run == calm.status.run
    waiting = job(status=calm.status.manifest() | {"scaling": {"from": 2, "to": 4, "since": NOW}})
    assert waiting.status.run == calm.status.run
