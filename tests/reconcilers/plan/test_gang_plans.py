"""The plan for groups, gates and stages."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import labels
from crds.api_resources import COSCHEDULING_POD_GROUPS, POD_GROUPS
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.values import GroupView
from reconcilers.plan.moment import Deadline
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    Action,
    Blocker,
    CreateObject,
    CreatePods,
    DeleteObject,
    DeletePods,
    PatchObject,
    PatchPodMetadata,
    Plan,
    WriteStatus,
)
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import (
    ADMISSION,
    KEY,
    NOW,
    RESERVATION,
    all_pods,
    conditions,
    job,
    observe,
    pod,
    status,
    task,
)

VOLCANO = ReconcileSettings(gang_scheduler="volcano")
BOUND = ADMISSION | {"gangScheduler": "volcano"}
PAIR = {"Master": task(), "Worker": task(2)}
STEPS = {
    "Prepare": task(2),
    "Master": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
    "Worker": task(2),
    "AIMaster": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
}
PREPARED = (pod("Prepare", 0, "Succeeded"), pod("Prepare", 1, "Succeeded"))
BEGAN = {"1": {"began": "2026-01-02T03:02:00Z"}}


def admitted(tasks: dict[str, Any] | None = None, phase: str = "Admitted", **fields: Any) -> TorchJob:
    more = {name: fields.pop(name) for name in ("stages", "taskStatuses", "conditions", "replacing") if name in fields}
    return job(tasks or PAIR, status(phase, admission=BOUND, **more), **fields)


def group(stage: int = 0, phase: str = "Inqueue", **fields: Any) -> GroupView:
    """Return the group of a stage of the default job."""
    found = plan(observe(job(PAIR)), VOLCANO, NOW)
    (made,) = (each.manifest for each in found.actions if isinstance(each, CreateObject))
    metadata = {**made["metadata"], "name": f"digits-{stage}", "uid": f"group-{stage}", "resourceVersion": "1"}
    view = backends.get_backend("volcano").trim({**made, "metadata": metadata, "status": {"phase": phase}})
    return replace(view, **fields)


def decide(described: Any, *pods: PodView, groups: tuple[GroupView, ...] = (), **settings: Any) -> Plan:
    chosen = replace(VOLCANO, **settings)
    return plan(replace(observe(described, *pods), groups=groups), chosen, NOW)


def of(kind: type, found: Plan) -> list[Any]:
    return [each for each in found.actions if isinstance(each, kind)]


def made(found: Plan) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for action in of(CreatePods, found) for each in action.manifests}


def change(found: Plan) -> dict[str, Any]:
    written = [each.change["status"] for each in of(WriteStatus, found)]
    return dict(written[0]) if written else {}


def admitted_because(found: Plan) -> str:
    said = (each for each in change(found).get("conditions", ()) if each["type"] == "Admitted")
    return next((str(each["reason"]) for each in said), "")


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(each).__name__ for each in actions]


class TestGroups:
    def test_group_is_created_first_and_pods_once_it_is_admitted(self) -> None:
        first = decide(job(PAIR))
        assert kinds(first.actions) == ["WriteStatus", "CreateObject"]
        assert change(first)["admission"]["gangScheduler"] == "volcano"
        (make,) = of(CreateObject, first)
        assert (make.resource, make.manifest["metadata"]["name"]) == (POD_GROUPS, "digits-0")
        assert make.manifest["spec"]["minTaskMember"] == {"master": 1, "worker": 2}
        assert make.manifest["spec"]["minResources"] == {"cpu": "3"}
        assert make.manifest["metadata"]["labels"] == {
            labels.JOB_NAME: "digits",
            labels.JOB_UID: KEY.uid,
            labels.ATTEMPT: "1",
        }
        assert not decide(admitted(), groups=(group(phase="Pending"),)).actions
        assert sorted(made(decide(admitted(), groups=(group(),)))) == [
            "digits-master-0",
            "digits-worker-0",
            "digits-worker-1",
        ]

    def test_pods_are_created_before_group_is_admitted_with_pods_at_once(self) -> None:
        found = decide(admitted(), pods_at_once=True)
        assert kinds(found.actions) == ["CreateObject", "CreateService", "CreatePods", "CreatePods"]
        assert len(made(decide(admitted(), groups=(group(phase="Pending"),), pods_at_once=True))) == 3

    def test_missing_pod_is_replaced_while_group_is_pending(self) -> None:
        there = (pod(), pod("Worker", 0))
        described = admitted(phase="Running", restartScope="Task")
        assert list(made(decide(described, *there, groups=(group(phase="Pending", spec={}),)))) == ["digits-worker-1"]

    def test_pods_wait_for_their_group_if_the_only_existing_one_is_being_replaced(self) -> None:
        described = admitted(phase="Running", restartScope="Task", replacing=[pod().uid])
        found = decide(described, pod(), groups=(group(phase="Pending"),))
        assert of(DeletePods, found)
        assert not made(found)

    def test_gang_scheduler_of_job_overrides_setting_and_is_kept(self) -> None:
        found = decide(job(PAIR, schedulingPolicy={"gangScheduler": "none"}))
        assert kinds(found.actions) == ["WriteStatus", "CreateService", "CreatePods"]
        assert list(made(found)) == ["digits-master-0"]
        assert "volcano" not in str(made(found))
        changed = decide(admitted(), groups=(group(),), gang_scheduler="none")
        assert len(made(changed)) == 3, "an admission keeps the scheduler with which it began"

    def test_group_has_minimum_priority_and_queue_of_job(self) -> None:
        policy = {"gangQueue": "research", "priorityClassName": "high"}
        elastic = {"numMinReplicas": 2, "numMaxReplicas": 9}
        described = job({"Worker": task(5)}, schedulingPolicy=policy, torchElasticPolicy=elastic)
        picked = replace(RESERVATION, charge=described.spec.charge)
        (make,) = of(CreateObject, plan(observe(described, reservation=picked), VOLCANO, NOW))
        spec = make.manifest["spec"]
        assert (spec["minMember"], spec["minResources"]) == (2, {"cpu": "2"})
        assert (spec["queue"], spec["priorityClassName"]) == ("research", "high")

    @pytest.mark.parametrize(
        "foreign",
        [{"attempt": 0}, {"name": "digits-7"}, {"resource": replace(POD_GROUPS, group="scheduling.x-k8s.io")}],
    )
    def test_foreign_group_is_deleted(self, foreign: dict[str, Any]) -> None:
        other = group(**foreign)
        found = decide(admitted(), groups=(other,))
        assert of(DeleteObject, found) == [DeleteObject(other.resource, other.name, other.uid)]
        assert bool(of(CreateObject, found)) == (other.name != "digits-0"), (
            "the name of the old group is taken until the group is gone"
        )
        assert not made(found)

    def test_group_is_recreated_after_its_deletion(self) -> None:
        assert not of(CreateObject, decide(admitted(), *all_pods("Pending"), groups=(group(deleting=True),)))
        assert kinds(decide(admitted(), *all_pods("Pending")).actions) == ["CreateObject"]

    def test_group_shrinks_to_the_gang_and_grows_only_to_existing_pods(self) -> None:
        larger = group(spec={**group().spec, "minMember": 9})
        (shrinks,) = of(PatchObject, decide(admitted(), *all_pods("Pending"), groups=(larger,)))
        assert (shrinks.name, shrinks.change) == (
            "digits-0",
            {"spec": {"minMember": 3}, "metadata": {"uid": "group-0"}},
        )
        smaller = group(spec={**group().spec, "minMember": 1})
        assert of(PatchObject, decide(admitted(), *all_pods("Pending"), groups=(smaller,)))
        described = admitted(phase="Running", restartScope="Task")
        assert not of(PatchObject, decide(described, pod(), groups=(smaller,)))

    def test_groups_are_deleted_when_the_job_ends(self) -> None:
        remove = [DeleteObject(POD_GROUPS, "digits-0", "group-0")]
        ending = decide(admitted(), *all_pods("Succeeded"), groups=(group(),))
        assert change(ending)["phase"] == "Succeeded"
        assert of(DeleteObject, ending) == remove
        gone = plan(replace(observe(None), groups=(group(),)), VOLCANO, NOW)
        ended = decide(job(PAIR, status("Succeeded", attempt=1)), groups=(group(),))
        waits = plan(replace(observe(job(PAIR), reservation=None), groups=(group(),)), VOLCANO, NOW)
        assert of(DeleteObject, gone) == of(DeleteObject, ended) == of(DeleteObject, waits) == remove
        assert not decide(job(PAIR, status("Succeeded", attempt=1)), groups=(group(deleting=True),)).actions

    def test_restart_of_whole_job_keeps_group(self) -> None:
        failed = (pod(phase="Failed", exit_code=137), *all_pods()[1:])
        described = admitted(phase="Running")
        found = decide(described, *failed, groups=(group(),))
        assert change(found)["restartGeneration"] == 1
        assert not of(DeleteObject, found)


class TestHindrances:
    def closed(self) -> GroupView:
        message = "Volcano's queue research is Closed"
        return replace(group(), phase="Refused", reason="GangQueueClosed", message=message)

    def test_refused_group_is_reported_until_it_is_admitted(self) -> None:
        found = decide(admitted(), groups=(self.closed(),))
        assert (admitted_because(found), made(found)) == ("GangQueueClosed", {})
        said = admitted(conditions=change(found)["conditions"])
        assert decide(said, groups=(self.closed(),)) == Plan(requeue_after=30), "no event tells when the queue opens"
        after = decide(said, groups=(group(),))
        assert (admitted_because(after), len(made(after))) == ("Admitted", 3)

    def test_forbidden_pods_do_not_replace_the_report_of_refused_group(self) -> None:
        said = admitted(conditions=change(decide(admitted(), groups=(self.closed(),)))["conditions"])
        forbidden = Blocker("PodsForbidden", "exceeded quota")
        found = plan(replace(observe(said), groups=(self.closed(),), obstacle=forbidden), VOLCANO, NOW)
        assert not found.actions
        alone = plan(replace(observe(admitted()), obstacle=forbidden), VOLCANO, NOW)
        assert admitted_because(alone) == "PodsForbidden"

    def test_job_sent_back_because_of_refused_group_states_the_reason(self) -> None:
        said = admitted(conditions=change(decide(admitted(), groups=(self.closed(),)))["conditions"])
        late = plan(replace(observe(said), groups=(self.closed(),)), VOLCANO, NOW + timedelta(seconds=600))
        queued = next(each for each in change(late)["conditions"] if each["type"] == "Queued")
        assert queued["reason"] == "NotRunningInTime"
        assert queued["message"].endswith("(GangQueueClosed: Volcano's queue research is Closed)")
        assert of(DeleteObject, late)

    def test_group_kept_by_finalizers_blocks_its_replacement(self) -> None:
        held = group(attempt=1, deleting=True)
        found = decide(admitted(), groups=(held,))
        assert (admitted_because(found), of(CreateObject, found), made(found)) == ("PodGroupStuck", [], {})
        said = admitted(conditions=change(found)["conditions"])
        assert not decide(said, groups=(held,)).actions
        assert of(CreateObject, decide(said))
        assert admitted_because(decide(said, groups=(group(),))) == "Admitted"

    def test_template_with_other_scheduler_blocks_the_gang(self) -> None:
        other = task(2)
        other["template"]["spec"]["schedulerName"] = "default-scheduler"
        found = decide(admitted({"Master": task(), "Worker": other}))
        assert (admitted_because(found), of(CreateObject, found), made(found)) == ("GangSchedulerMismatch", [], {})
        message = next(each["message"] for each in change(found)["conditions"] if each["type"] == "Admitted")
        assert "spec.torchTaskSpecs.Worker.template.spec.schedulerName is default-scheduler" in message
        other["template"]["spec"]["schedulerName"] = "volcano"
        assert of(CreateObject, decide(admitted({"Master": task(), "Worker": other})))

    @pytest.mark.parametrize("scheduler", ["volcano", "koordinator", "coscheduling", "kubernetes"])
    def test_templates_of_one_gang_with_different_schedulers_are_refused(self, scheduler: str) -> None:
        other = task(2)
        other["template"]["spec"]["schedulerName"] = "another"
        described = job(
            {"Master": task(), "Worker": other}, status("Admitted", admission=ADMISSION | {"gangScheduler": scheduler})
        )
        found = decide(described)
        assert (admitted_because(found), of(CreateObject, found), made(found)) == ("GangSchedulerMismatch", [], {})

    def test_setting_names_the_scheduler_of_coscheduled_pods(self) -> None:
        described = job(PAIR, status("Admitted", admission=ADMISSION | {"gangScheduler": "coscheduling"}))
        there = group(resource=COSCHEDULING_POD_GROUPS)
        found = decide(described, groups=(there,), gang_scheduler_name="plugins")
        assert {each["spec"]["schedulerName"] for each in made(found).values()} == {"plugins"}
        assert "schedulerName" not in next(iter(made(decide(described, groups=(there,))).values()))["spec"]

    def test_minimum_of_auxiliary_task_counts_for_gates_only(self) -> None:
        tasks = {"AIMaster": task(2), "Master": task()}
        described = admitted(tasks, minMembers={"AIMaster": 1})
        (make,) = of(CreateObject, decide(described))
        assert make.manifest["spec"]["minTaskMember"] == {"master": 1}
        waiting = pod("Master", 0, "Pending", shut_since=0.0)
        brains = (pod("AIMaster"), pod("AIMaster", 1, "Pending"))
        assert of(PatchPodMetadata, decide(described, *brains, waiting, groups=(group(),)))
        assert not of(PatchPodMetadata, decide(described, brains[1], waiting, groups=(group(),)))

    def test_auxiliary_task_may_have_any_scheduler(self) -> None:
        brain = task()
        brain["template"]["spec"]["schedulerName"] = "default-scheduler"
        found = decide(admitted({"AIMaster": brain, "Master": task()}))
        assert list(made(found)) == ["digits-aimaster-0"]
        assert made(found)["digits-aimaster-0"]["spec"]["schedulerName"] == "default-scheduler"
        (make,) = of(CreateObject, found)
        assert make.manifest["spec"]["minTaskMember"] == {"master": 1}


class TestGates:
    def test_pod_with_upstream_waits_at_a_gate(self) -> None:
        found = made(decide(admitted(), groups=(group(),)))
        worker, master = found["digits-worker-0"], found["digits-master-0"]
        assert "initContainers" not in master["spec"]
        (gate,) = worker["spec"]["initContainers"]
        assert gate["name"] == "torchq-start"
        assert gate["image"] == "torch:1"
        assert gate["resources"] == {"requests": {"cpu": "1"}}
        assert gate["env"] == [{"name": "TORCHQ_VOLUME_TORCHQ_START", "value": "/etc/torchq"}]
        (volume,) = [each for each in worker["spec"]["volumes"] if each["name"] == "torchq-start"]
        (item,) = volume["downwardAPI"]["items"]
        assert item == {"path": "open", "fieldRef": {"fieldPath": f"metadata.annotations['{labels.START}']"}}
        assert labels.START not in worker["metadata"]["annotations"]
        assert worker["metadata"]["annotations"][labels.CHARGE] == '{"cpu":1000,"pods":1}'

    def test_gate_opens_once_when_upstream_runs(self) -> None:
        waiting = (pod("Worker", 0, "Pending", shut_since=0.0), pod("Worker", 1, "Pending", shut_since=0.0))
        for master in (pod(phase="Pending"), pod(deleting=True), pod(phase="Unknown")):
            assert not of(PatchPodMetadata, decide(admitted(), master, *waiting, groups=(group(),)))
        (mark,) = of(PatchPodMetadata, decide(admitted(), pod(), *waiting, groups=(group(),)))
        assert (mark.pods, mark.metadata) == (waiting, {"annotations": {labels.START: "open"}})
        opened = tuple(replace(each, shut_since=None) for each in waiting)
        assert not of(PatchPodMetadata, decide(admitted(), pod(), *opened, groups=(group(),)))

    def test_pod_created_later_has_an_open_gate(self) -> None:
        described = admitted(phase="Running", restartScope="Task")
        found = decide(described, pod(phase="Pending"), pod("Worker", 0), groups=(group(),))
        assert made(found)["digits-worker-1"]["metadata"]["annotations"][labels.START] == "open"
        counted = admitted(
            phase="Running", restartScope="Task", taskStatuses={"Worker": {"active": 2, "ready": 2}, "Master": {}}
        )
        alone = decide(counted, pod(phase="Pending"), groups=(group(),))
        assert {each["metadata"]["annotations"][labels.START] for each in made(alone).values()} == {"open"}

    def test_gate_opens_when_upstream_has_its_minimum(self) -> None:
        tasks = {"Store": task(3), "Worker": task(dependsOn=[{"taskType": "Store"}])}
        waiting = pod("Worker", 0, "Pending", shut_since=0.0)
        described = admitted(tasks, minMembers={"Store": 2})
        stores = (pod("Store", 0), pod("Store", 1, "Succeeded"), pod("Store", 2, "Pending"))
        assert of(PatchPodMetadata, decide(described, *stores, waiting, groups=(group(),)))
        assert not of(PatchPodMetadata, decide(described, *stores[1:], waiting, groups=(group(),)))

    def test_gate_keeps_init_containers_and_volumes_of_template(self) -> None:
        described = task(2)
        described["template"]["spec"] |= {
            "initContainers": [{"name": "fetch", "image": "curl"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        }
        main = described["template"]["spec"]["containers"][0]
        main |= {
            "securityContext": {"runAsNonRoot": True},
            "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
        }
        spec = made(decide(admitted({"Master": task(), "Worker": described}), groups=(group(),)))["digits-worker-0"][
            "spec"
        ]
        assert [each["name"] for each in spec["initContainers"]] == ["torchq-start", "fetch"]
        assert [each["name"] for each in spec["volumes"]] == ["data", "torchq-pod", "torchq-start"]
        assert spec["initContainers"][0]["securityContext"] == {"runAsNonRoot": True}
        assert spec["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}}


class TestStages:
    def test_later_stage_is_recorded_before_its_objects_are_created(self) -> None:
        described = admitted(STEPS)
        assert not of(CreateObject, decide(described, PREPARED[0], pod("Prepare", 1), groups=(group(),)))
        found = decide(described, *PREPARED, groups=(group(),))
        assert change(found)["stages"] == {"1": {"began": "2026-01-02T03:04:05Z"}}
        assert [each.manifest["metadata"]["name"] for each in of(CreateObject, found)] == ["digits-1"]
        assert of(DeleteObject, found) == [DeleteObject(POD_GROUPS, "digits-0", "group-0")], (
            "the group of a stage that is over must request nothing"
        )
        assert list(made(found)) == ["digits-aimaster-0"]
        assert kinds(found.actions)[0] == "WriteStatus"

    def test_job_is_running_when_all_begun_stages_run(self) -> None:
        first = decide(admitted(STEPS), pod("Prepare"), pod("Prepare", 1), groups=(group(),))
        assert change(first)["phase"] == "Running"
        later = admitted(STEPS, "Running", stages=BEGAN)
        found = decide(later, *PREPARED, pod(phase="Pending"), groups=(group(1),))
        assert "phase" not in change(found)
        runs = (pod(), pod("Worker"), pod("Worker", 1))
        done = change(decide(later, *PREPARED, *runs, groups=(group(1),)))
        assert done["stages"] == {"1": {"running": "2026-01-02T03:04:05Z"}}, "the auxiliary task is not waited for"

    @pytest.mark.parametrize("master", ["Pending", "Unknown"])
    def test_job_with_bound_pod_that_does_not_run_is_not_running(self, master: str) -> None:
        found = decide(admitted(), pod(phase=master, node="n1"), *all_pods()[1:], groups=(group(),))
        assert change(found).get("phase") is None

    def test_failed_upstream_begins_no_stage(self) -> None:
        described = admitted({**STEPS, "Prepare": task(2, restartPolicy="OnFailure")}, restartScope="Task")
        found = decide(described, PREPARED[0], pod("Prepare", 1, "Failed", exit_code=137), groups=(group(),))
        assert "stages" not in change(found)
        assert not of(CreateObject, found)

    def test_pods_of_completed_stage_are_not_recreated(self) -> None:
        later = admitted(STEPS, "Running", stages=BEGAN)
        runs = (pod(), pod("Worker"), pod("Worker", 1), pod("AIMaster"))
        found = decide(later, *runs, groups=(group(1),))
        assert (made(found), of(DeleteObject, found)) == ({}, [])
        everything = decide(later, groups=(group(1),))
        assert not [each for each in made(everything) if "prepare" in each]

    def test_succeeded_count_of_completed_stage_is_kept(self) -> None:
        later = admitted(STEPS, "Running", stages=BEGAN)
        found = decide(later, pod(), pod("Worker"), pod("Worker", 1), groups=(group(1),))
        assert change(found)["taskStatuses"]["Prepare"]["succeeded"] == 2

    def test_restart_repeats_only_unfinished_stages(self) -> None:
        later = admitted(STEPS, "Running", stages={"1": {**BEGAN["1"], "running": "2026-01-02T03:03:00Z"}})
        failed = (pod(phase="Failed", exit_code=137), pod("Worker"), pod("Worker", 1))
        found = decide(later, *PREPARED, *failed, groups=(group(1),))
        assert (change(found)["restartGeneration"], change(found).get("stages")) == (1, None)
        again = admitted(STEPS, stages=BEGAN)
        again = again.model_copy(update={"status": again.status.model_copy(update={"restart_generation": 1})})
        assert sorted(made(decide(again, groups=(group(1),)))) == [
            "digits-aimaster-0",
            "digits-master-0",
            "digits-worker-0",
            "digits-worker-1",
        ]

    def test_gang_leaves_out_pods_that_are_not_recreated(self) -> None:
        """A completed task and a task that keeps running share a stage."""
        graph = {"Prepare": task(), "Board": task(dependsOn=[]), "Worker": STEPS["Master"]}
        graph["Prepare"]["dependsOn"] = [{"taskType": "Board", "phase": "Running"}]
        found = decide(admitted(graph, stages=BEGAN, minMembers={"Board": 1}))
        asked = {
            each.manifest["metadata"]["name"]: each.manifest["spec"]["minTaskMember"]
            for each in of(CreateObject, found)
        }
        assert asked == {"digits-0": {"board": 1}, "digits-1": {"worker": 1}}
        there = decide(admitted(graph, stages=BEGAN), PREPARED[0])
        assert [sum(each.manifest["spec"]["minTaskMember"].values()) for each in of(CreateObject, there)] == [2, 1]

    def test_new_admission_goes_on_with_the_stages_that_had_begun(self) -> None:
        waiting = job(STEPS, status("Queued", stages=BEGAN, attempt=1))
        picked = replace(RESERVATION, attempt=2, charge=waiting.spec.charge)
        found = plan(observe(waiting, reservation=picked), ReconcileSettings(), NOW)
        assert change(found)["stages"] == {"1": {"began": "2026-01-02T03:04:05Z"}}
        made = [name for each in of(CreatePods, found) for name in (member.name for member in each.manifests.members)]
        assert made == ["digits-master-0", "digits-aimaster-0"], "the task Prepare has succeeded"


class TestDeadlines:
    LATE = NOW + timedelta(seconds=600)

    def left(self, described: TorchJob, *pods: PodView, after: float = 0.0) -> float | None:
        return Deadline(600.0, NOW + timedelta(seconds=after)).remaining(described, pods)

    def test_time_of_later_stage_starts_when_it_begins(self) -> None:
        waits = (*PREPARED, pod(phase="Pending"))
        assert self.left(admitted(STEPS, "Running", stages=BEGAN), *waits) == 600 - 125
        ran = {"1": {**BEGAN["1"], "running": "2026-01-02T03:03:00Z"}}
        assert self.left(admitted(STEPS, "Running", stages=ran), *waits) is None
        runs = (pod(), pod("Worker"), pod("Worker", 1))
        assert self.left(admitted(STEPS, "Running", stages=BEGAN), *PREPARED, *runs) is None

    def test_time_of_stage_starts_over_after_restart(self) -> None:
        stopped = {"type": "Running", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        ran = {"1": {**BEGAN["1"], "running": "2026-01-02T03:03:00Z"}}
        described = admitted(STEPS, stages=ran, conditions=[*conditions("Admitted"), stopped])
        assert self.left(described, pod(phase="Pending")) == 600

    def test_late_stage_sends_job_back_to_its_queue(self) -> None:
        described = admitted(STEPS, "Running", stages=BEGAN)
        there = (*PREPARED, pod(phase="Pending"))
        first = plan(replace(observe(described, *there), groups=(group(1),)), VOLCANO, self.LATE)
        assert kinds(first.actions) == ["WriteStatus", "DeletePods"]
        second = plan(replace(observe(described), groups=(group(1),)), VOLCANO, self.LATE)
        assert (change(second)["phase"], "stages" in change(second)) == ("Queued", False), (
            "the record of stages is kept, since Prepare has succeeded"
        )
        assert kinds(second.actions) == ["WriteStatus", "DeleteObject", "EmitEvent"]

    def test_running_stage_has_no_deadline(self) -> None:
        assert self.left(admitted(STEPS, "Running"), pod("Prepare"), pod("Prepare", 1), after=10**6) is None
