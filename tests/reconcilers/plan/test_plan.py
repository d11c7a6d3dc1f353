"""The plan for each state of a job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from crds import labels
from crds.errors import Problem
from crds.torchjob.status import TorchJobStatus
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.moment import Deadline
from reconcilers.plan.plan import plan
from reconcilers.plan.status import admission_tries
from reconcilers.plan.status import requeue_late as late_status
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    CreatePods,
    CreateService,
    DeleteJob,
    DeletePods,
    DeleteService,
    EmitEvent,
    InvalidJob,
    InvalidPod,
    Observation,
    Plan,
    WriteStatus,
)
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import (
    ADMISSION,
    KEY,
    NOW,
    RESERVATION,
    UNDER_MASTER,
    all_pods,
    conditions,
    job,
    observe,
    pod,
    status,
    task,
)

SERVICE = ReconcileSettings()
LOOPBACK = ReconcileSettings(master_address="loopback")
NEXT = replace(RESERVATION, attempt=2)


def decide(observation: Observation, settings: ReconcileSettings = SERVICE) -> Plan:
    return plan(observation, settings, NOW)


def kinds(found: Plan) -> list[str]:
    return [type(each).__name__ for each in found.actions]


def written(found: Plan) -> dict[str, Any]:
    """Return the status change of a plan; {} if the plan has none."""
    changes = [each.change["status"] for each in found.actions if isinstance(each, WriteStatus)]
    assert len(changes) <= 1
    return dict(changes[0]) if changes else {}


def true(change: dict[str, Any]) -> set[str]:
    return {each["type"] for each in change["conditions"] if each["status"] == "True"}


def reason(change: dict[str, Any]) -> str:
    return next(str(each["reason"]) for each in change["conditions"] if each["type"] == "Admitted")


def leaving(why: str, **spec: Any) -> TorchJob:
    """Return an admitted job that gives up its pods, for example because it was suspended."""
    found = status("Admitted", restartGeneration=1, recreateGeneration=1, startTime=None)
    found["conditions"][0]["reason"] = why
    return job(status=found, **spec)


def made(found: Plan) -> list[str]:
    return [
        each["metadata"]["name"]
        for action in found.actions
        if isinstance(action, CreatePods)
        for each in action.manifests
    ]


def deleted(found: Plan) -> list[str]:
    return [each.name for action in found.actions if isinstance(action, DeletePods) for each in action.pods]


class TestWaiting:
    def test_new_job_is_queued_once(self) -> None:
        change = written(decide(observe(job(), reservation=None)))
        assert (change["phase"], true(change), change["observedGeneration"]) == ("Queued", {"Queued"}, 1)
        assert not decide(observe(job(status=status("Queued")), reservation=None)).actions

    def test_plan_does_not_write_status_fields_of_coordinator(self) -> None:
        waiting = job(status={"queue": {"name": "team", "reason": "QuotaExceeded", "message": "full"}})
        assert "queue" not in written(decide(observe(waiting, reservation=None)))

    def test_changed_spec_is_recorded_as_observed_generation(self) -> None:
        waiting = job(status=status("Queued", observedGeneration=0))
        change = written(decide(observe(waiting, reservation=None)))
        assert (change["observedGeneration"], change.keys() & {"phase"}) == (1, set())

    @pytest.mark.parametrize("phase", ["Queued", "Suspended", "Admitted", "Running", "Succeeded", "Failed"])
    def test_changed_spec_is_recorded_in_every_condition(self, phase: str) -> None:
        fields = {"suspend": True} if phase == "Suspended" else {}
        held = RESERVATION if phase in ("Admitted", "Running") else None
        before = status(phase, observedGeneration=0)
        pods = all_pods("Running" if phase == "Running" else "Pending") if held else ()
        found = decide(observe(job(status=before, **fields), *pods, reservation=held))
        assert kinds(found) == ["WriteStatus"]
        assert {each["observedGeneration"] for each in written(found)["conditions"]} == {1}
        assert not decide(observe(job(status=before | written(found), **fields), *pods, reservation=held)).actions

    def test_pods_of_unadmitted_job_are_deleted_before_status_is_written(self) -> None:
        found = decide(observe(job(), pod(), reservation=None))
        assert kinds(found) == ["DeletePods"]

    @pytest.mark.parametrize(
        ("phase", "left_behind", "granted"),
        [("Queued", 0, True), ("Queued", 1, False), ("Suspended", 1, True), ("Queued", 2, False)],
    )
    def test_reservation_of_ended_attempt_grants_nothing_to_queued_job(
        self, phase: str, left_behind: int, granted: bool
    ) -> None:
        waiting = job(status=status(phase, attempt=left_behind))
        assert ("WriteStatus" in kinds(decide(observe(waiting)))) is granted

    @pytest.mark.parametrize(
        ("edited", "host_network"),
        [({"charge": {"jobs": 1, "pods": 3, "cpu": 2000}}, False), ({"queue": "other"}, False), ({"port": 0}, True)],
    )
    def test_reservation_that_does_not_fit_edited_job_grants_nothing(
        self, edited: dict[str, Any], host_network: bool
    ) -> None:
        tasks = {"Master": task(), "Worker": task(2)}
        tasks["Master"]["template"]["spec"]["hostNetwork"] = host_network
        waiting = job(tasks, status=status("Queued", attempt=0))
        assert "CreatePods" in kinds(decide(observe(waiting)))
        assert not decide(observe(waiting, reservation=replace(RESERVATION, **edited))).actions

    def test_reservation_older_than_admission_grants_nothing(self) -> None:
        admitted = status("Running", attempt=2, admission=ADMISSION | {"attempt": 2})
        assert written(decide(observe(job(status=admitted))))["admission"] is None


class TestAdmission:
    def test_admission_is_written_before_pods_are_created(self) -> None:
        found = decide(observe(job(status=status("Queued"))))
        assert kinds(found) == ["WriteStatus", "CreateService", "CreatePods", "CreatePods"]
        change = written(found)
        assert change["phase"] == "Admitted"
        assert true(change) == {"Admitted"}
        assert change["attempt"] == 1
        assert change["selector"] == f"train.distributed.io/job-uid={KEY.uid},train.distributed.io/task-type=worker"
        assert change["admission"] == ADMISSION | {"admittedAt": "2026-01-02T03:04:05Z"}
        assert made(found) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]

    def test_status_patch_contains_resource_version_of_job(self) -> None:
        (write, *_) = decide(observe(job())).actions
        assert isinstance(write, WriteStatus)
        assert write.resource_version == "100"

    def test_loopback_address_needs_no_service(self) -> None:
        assert kinds(decide(observe(job()), LOOPBACK)) == ["WriteStatus", "CreatePods", "CreatePods"]

    def test_missing_pods_of_admitted_job_are_created(self) -> None:
        found = decide(observe(job(status=status("Admitted")), pod("Master"), pod("Worker", 1)))
        assert kinds(found) == ["CreatePods"]
        assert made(found) == ["digits-worker-0"]

    def test_plan_without_make_pods_writes_only_the_admission(self) -> None:
        elsewhere = ReconcileSettings(make_pods=False)
        found = decide(observe(job(status=status("Queued"))), elsewhere)
        assert kinds(found) == ["WriteStatus"]
        assert true(written(found)) == {"Admitted"}
        assert not decide(observe(job(status=status("Admitted"))), elsewhere).actions

    def test_admission_without_reservation_is_revoked_after_its_pods_are_deleted(self) -> None:
        admitted = job(status=status("Running"))
        assert deleted(decide(observe(admitted, *all_pods(), reservation=None))) == [each.name for each in all_pods()]
        assert not decide(observe(admitted, *all_pods(deleting=True), reservation=None)).actions
        change = written(decide(observe(admitted, reservation=None)))
        assert change["admission"] is None
        assert change["phase"] == "Queued"
        assert true(change) == {"Queued"}
        assert "attempt" not in change

    def test_pods_of_other_attempt_are_deleted_before_new_admission(self) -> None:
        admitted = job(status=status("Running"))
        mixed = decide(observe(admitted, *all_pods(), reservation=NEXT))
        assert kinds(mixed) == ["DeletePods"]
        assert not decide(observe(admitted, *all_pods(deleting=True), reservation=NEXT)).actions
        fresh = decide(observe(admitted, reservation=NEXT))
        assert written(fresh)["admission"] == {"attempt": 2, "admittedAt": "2026-01-02T03:04:05Z"}
        assert len(made(fresh)) == 3

    def test_unexpected_pod_is_deleted(self) -> None:
        found = decide(observe(job(status=status("Admitted")), *all_pods(), pod("Worker", 2)))
        assert deleted(found) == ["digits-worker-2"]

    @pytest.mark.parametrize(("asked", "expected"), [("1", 1), ("1/0", 1), ("", 2), ("10000000000000007/0", 2)])
    def test_pod_restarted_in_place_with_job_does_not_prove_that_upstream_ran(self, asked: str, expected: int) -> None:
        graph = {"Prepare": task(), "Worker": task(2, dependsOn=[{"taskType": "Prepare", "phase": "Running"}])}
        restarted = job(graph, status("Admitted", restartGeneration=1))
        found = made(decide(observe(restarted, pod("Worker", 1, restart=1, requested_restart=asked))))
        assert found == ["digits-prepare-0", "digits-worker-0"][:expected]

    def test_lost_outdated_pod_is_deleted_once(self) -> None:
        """The pod has an old restart generation, is to be replaced, and its node is dead."""
        lost = observe(job(status=status("Admitted", replacing=["worker-1"])), pod("Worker", 1, restart=1, node="n1"))
        assert deleted(decide(replace(lost, dead_nodes=frozenset({"n1"})))) == ["digits-worker-1"]


class TestRunning:
    def test_job_runs_when_every_task_has_its_minimum(self) -> None:
        change = written(decide(observe(job(status=status("Admitted")), *all_pods())))
        assert change["phase"] == "Running"
        assert true(change) == {"Admitted", "Running"}
        assert change["taskStatuses"]["Worker"] == {"active": 2, "ready": 2, "succeeded": 0, "failed": 0, "evicted": 0}

    @pytest.mark.parametrize(
        "late", [pod("Worker", 1, each) for each in ("Pending", "Unknown")] + [pod("Worker", 1, problem="ErrImagePull")]
    )
    def test_job_does_not_run_while_a_pod_is_not_running(self, late: PodView) -> None:
        assert not decide(observe(job(status=status("Admitted")), pod(), pod("Worker"), late)).actions

    def test_job_runs_with_min_members(self) -> None:
        small = job(status=status("Admitted"), minMembers={"Worker": 1})
        found = decide(observe(small, pod(), pod("Worker"), pod("Worker", 1, "Pending")))
        assert written(found)["phase"] == "Running"

    def test_plan_of_running_job_is_empty(self) -> None:
        assert decide(observe(job(status=status("Running")), *all_pods())) == Plan()

    def test_changed_counts_alone_are_not_written(self) -> None:
        pods = (pod(), pod("Worker"), pod("Worker", 1, "Succeeded"))
        assert not decide(observe(job(status=status("Running")), *pods)).actions


def ends_with_its_master() -> dict[str, Any]:
    return status("Running", admission=UNDER_MASTER)


class TestSuccess:
    @pytest.mark.parametrize("policy", ["Master", None])
    def test_job_succeeds_with_its_master_under_that_policy_or_that_of_earlier_versions(
        self, policy: str | None
    ) -> None:
        running = job(status=status("Running", admission=ADMISSION | {"successPolicy": policy}))
        found = decide(observe(running, pod(phase="Succeeded"), pod("Worker"), pod("Worker", 1)))
        change = written(found)
        assert (change["phase"], true(change)) == ("Succeeded", {"Succeeded"})
        assert change["completionTime"] == "2026-01-02T03:04:05Z"
        assert "admission" not in change  # the status keeps its last admission
        assert change["taskStatuses"]["Master"]["succeeded"] == 1
        assert deleted(found) == ["digits-worker-0", "digits-worker-1"]

    def test_job_without_master_succeeds_when_all_pods_succeed(self) -> None:
        tasks = {"Trainer": task(2)}
        running = job(tasks, status=status("Running"))
        one, two = pod("Trainer", 0, "Succeeded"), pod("Trainer", 1)
        assert not decide(observe(running, one, two)).actions
        assert written(decide(observe(running, one, replace(two, phase="Succeeded"))))["phase"] == "Succeeded"

    def test_task_with_restart_policy_always_does_not_decide_success(self) -> None:
        running = job({"Trainer": task(), "Board": task(restartPolicy="Always")}, status=status("Running"))
        found = decide(observe(running, pod("Trainer", 0, "Succeeded"), pod("Board")))
        assert written(found)["phase"] == "Succeeded"
        assert deleted(found) == ["digits-board-0"]

    def test_success_is_kept_despite_suspension_or_lost_reservation(self) -> None:
        suspended = job(status=status("Running"), suspend=True)
        pods = all_pods("Succeeded", deleting=True)
        assert written(decide(observe(suspended, *pods)))["phase"] == "Succeeded"
        assert written(decide(observe(job(status=status("Running")), *pods, reservation=None)))["phase"] == "Succeeded"

    @pytest.mark.parametrize(
        ("policy", "left"),
        [
            ("Running", ["digits-worker-0", "digits-worker-1"]),
            ("All", ["digits-master-0", "digits-worker-0", "digits-worker-1"]),
            ("None", []),
        ],
    )
    def test_finished_job_deletes_pods_and_services_by_clean_pod_policy(self, policy: str, left: list[str]) -> None:
        pods = (pod(phase="Succeeded", service="digits-master-0"), pod("Worker"), pod("Worker", 1))
        found = decide(observe(job(status=ends_with_its_master(), cleanPodPolicy=policy), *pods))
        assert deleted(found) == left
        assert (DeleteService("digits-master-0") in found.actions) is (policy != "None")
        # The clean-up of a finished job deletes the same pods.
        ended = job(status=status("Succeeded", attempt=1), cleanPodPolicy=policy)
        assert deleted(decide(observe(ended, *pods))) == left
        assert not decide(observe(ended, *(replace(each, deleting=True) for each in pods))).actions

    def test_finished_job_deletes_services_of_missing_pods(self) -> None:
        refused = decide(observe(job(status=status("Admitted")), obstacle=InvalidPod("spec: bad")))
        assert DeleteService("digits-master-0") in refused.actions
        there = (pod(phase="Succeeded", service="digits-master-0", deleting=True), pod("Worker"))
        assert DeleteService("digits-master-0") in decide(observe(job(status=ends_with_its_master()), *there)).actions
        nameless = decide(observe(job(status=ends_with_its_master()), pod(phase="Succeeded"), pod("Worker")))
        assert not any(isinstance(each, DeleteService) for each in nameless.actions)

    def test_success_is_written_before_pods_are_deleted(self) -> None:
        running = job(status=status("Running"), cleanPodPolicy="All")
        assert kinds(decide(observe(running, *all_pods("Succeeded")))) == ["WriteStatus", "DeletePods"]


class TestSuspension:
    def test_queued_job_is_suspended_at_once(self) -> None:
        change = written(decide(observe(job(status=status("Queued"), suspend=True), reservation=None)))
        assert (change["phase"], true(change)) == ("Suspended", {"Suspended"})
        assert not decide(observe(job(status=status("Suspended"), suspend=True), reservation=None)).actions

    def test_admitted_job_is_suspended_after_its_pods_are_deleted(self) -> None:
        suspended = job(status=status("Running"), suspend=True)
        found = decide(observe(suspended, *all_pods()))
        assert kinds(found) == ["WriteStatus", "DeletePods"]
        assert reason(written(found)) == "Suspending"
        assert not decide(observe(leaving("Suspending", suspend=True), pod(deleting=True))).actions
        change = written(decide(observe(suspended)))
        assert change["admission"] is None
        assert change["phase"] == "Suspended"
        assert true(change) == {"Suspended"}
        assert written(found)["startTime"] is None

    @pytest.mark.parametrize("scope", ["Job", "Task"])
    @pytest.mark.parametrize("why", ["Suspending", "Draining", "Resizing"])
    def test_job_that_continues_before_its_pods_are_deleted_counts_no_disruption(self, why: str, scope: str) -> None:
        """The job continues while its old pods terminate: the plan waits for their end and then creates new pods."""
        held = leaving(why, restartScope=scope)
        change = written(decide(observe(held, *all_pods(deleting=True))))
        assert (reason(change), change.keys() & {"disruptions", "restartGeneration"}) == ("Restarting", set())
        waits = leaving("Restarting", restartScope=scope)
        assert not decide(observe(waits, *all_pods(deleting=True))).actions
        assert not decide(observe(waits, pod("Worker", 0, "Failed", exit_code=1, deleting=True))).actions
        assert made(decide(observe(waits))) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]

    def test_pods_that_succeed_during_suspension_do_not_complete_job(self) -> None:
        suspended = leaving("Suspending", suspend=True)
        assert not decide(observe(suspended, *all_pods("Succeeded", deleting=True))).actions

    def test_resumed_job_is_queued(self) -> None:
        change = written(decide(observe(job(status=status("Suspended", attempt=1)), reservation=None)))
        assert (change["phase"], true(change)) == ("Queued", {"Queued"})


class TestResizing:
    BOUNDS: ClassVar = {"numMinReplicas": 1, "numMaxReplicas": 4, "mode": "InPlaceRestart"}

    def elastic(self, workers: int, phase: str = "Running", **fields: Any) -> TorchJob:
        """Return a job that was admitted with two workers."""
        tasks = {"Master": task(), "Worker": task(workers, dependsOn=[])}
        admission = {"admission": ADMISSION | {"workers": 2}} if phase != "Queued" else {}
        return job(tasks, status=status(phase, **admission, **fields), torchElasticPolicy=self.BOUNDS)

    def test_admission_of_elastic_job_records_its_workers(self) -> None:
        found = decide(observe(self.elastic(2, "Queued")))
        assert written(found)["admission"]["workers"] == 2
        assert not decide(observe(self.elastic(2), *all_pods())).actions

    @pytest.mark.parametrize("workers", [1, 3])
    def test_resized_job_gives_back_its_resources_and_is_queued_first(self, workers: int) -> None:
        found = decide(observe(self.elastic(workers), *all_pods()))
        assert kinds(found) == ["WriteStatus", "DeletePods"]
        assert (reason(written(found)), len(deleted(found))) == ("Resizing", 3)
        going = leaving("Resizing").status.manifest() | {"admission": ADMISSION | {"workers": 2}}
        held = job(
            {"Master": task(), "Worker": task(workers, dependsOn=[])}, status=going, torchElasticPolicy=self.BOUNDS
        )
        assert not decide(observe(held, *all_pods(deleting=True))).actions
        change = written(decide(observe(held)))
        assert (change["phase"], change["admission"], change["queue"]["drained"]) == ("Queued", None, True)
        assert change["queue"]["held"] == ADMISSION["charge"]
        assert "restartCount" not in change
        back = self.elastic(workers, "Queued", attempt=1)
        assert not decide(observe(back)).actions  # the earlier reservation does not fit the new size
        charge = {"jobs": 1, "pods": 1 + workers, "cpu": 1000 * (1 + workers)}
        found = decide(observe(back, reservation=replace(RESERVATION, attempt=2, charge=charge)))
        assert len(made(found)) == 1 + workers

    def test_job_resized_back_before_its_pods_are_deleted_keeps_its_admission(self) -> None:
        going = leaving("Resizing").status.manifest() | {"admission": ADMISSION | {"workers": 2}}
        held = job(status=going, torchElasticPolicy=self.BOUNDS)
        change = written(decide(observe(held, *all_pods(deleting=True))))
        assert (reason(change), "admission" in change) == ("Restarting", False)


class TestTime:
    @pytest.mark.parametrize(("seconds", "left"), [(246, 1.0), (300, 55.0)])
    def test_running_job_is_requeued_at_its_active_deadline(self, seconds: int, left: float) -> None:
        running = job(status=status("Running"), activeDeadlineSeconds=seconds)
        assert decide(observe(running, *all_pods())) == Plan(requeue_after=left)

    def test_job_beyond_its_active_deadline_fails(self) -> None:
        found = decide(observe(job(status=status("Running"), activeDeadlineSeconds=245), *all_pods()))
        said = next(each for each in written(found)["conditions"] if each["type"] == "Failed")
        assert (said["reason"], said["message"]) == ("DeadlineExceeded", "ran longer than activeDeadlineSeconds 245")
        assert len(deleted(found)) == 3

    def test_finished_job_is_deleted_after_its_ttl(self) -> None:
        done = status("Succeeded", completionTime="2026-01-02T03:04:00Z")
        early = decide(observe(job(status=done, ttlSecondsAfterFinished=60), pod(phase="Succeeded")))
        assert early == Plan(requeue_after=55.0)
        assert decide(observe(job(status=done, ttlSecondsAfterFinished=5))) == Plan((DeleteJob(),))
        assert decide(observe(job(status=done))) == Plan()


class TestGone:
    def test_deleted_job_loses_its_pods_and_services(self) -> None:
        pods = (pod(service="digits-master-0"), pod("Worker", 0, "Succeeded"))
        assert decide(observe(None, *pods)) == Plan((DeleteService("digits-master-0"), DeletePods(pods)))

    def test_plan_of_deleted_job_without_pods_is_empty(self) -> None:
        assert not decide(observe(None)).actions
        assert not decide(observe(None, pod(deleting=True, service="digits-master-0"))).actions


ENDLESS = 2**31


def graces(found: Plan) -> dict[str, int | None]:
    """Return the grace period with which each pod is deleted; None means the pod's own grace period."""
    actions = (each for each in found.actions if isinstance(each, DeletePods))
    return {each.name: action.seconds for action in actions for each in action.pods}


def shortened(found: Plan) -> list[str]:
    return [
        each.message for each in found.actions if isinstance(each, EmitEvent) and each.reason == "GracePeriodShortened"
    ]


class TestGracePeriods:
    """The grace period of a template is limited wherever a worker deletes pods."""

    MASTER, OTHER = pod(grace=ENDLESS), pod("Worker", 0, grace=30)

    def test_draining_shortens_grace_to_the_longest_and_emits_event(self) -> None:
        running = job(status=status("Running"))
        found = decide(replace(observe(running, self.MASTER, self.OTHER), draining=True))
        assert graces(found) == {"digits-master-0": 600, "digits-worker-0": None}
        (said,) = shortened(found)
        assert "up to 2147483648 s of grace, get 600 s (setting longest_grace): digits-master-0" in said

    @pytest.mark.parametrize("phase", ["Running", "Suspended"])
    def test_grace_of_terminating_pod_is_shortened_when_its_resources_are_needed(self, phase: str) -> None:
        going = pod(grace=ENDLESS, deleting=True, deadline=NOW.timestamp() + ENDLESS)
        observed = observe(job(status=status("Running"), suspend=phase == "Suspended"), going, self.OTHER)
        found = decide(replace(observed, draining=phase == "Running"))
        assert graces(found) == {"digits-master-0": 600, "digits-worker-0": None}
        short = replace(going, grace=600, deadline=NOW.timestamp() + 600)
        again = decide(replace(observed, pods=(short, replace(self.OTHER, deleting=True)), draining=phase == "Running"))
        assert (graces(again), shortened(again)) == ({}, [])

    def test_grace_is_shortened_for_lost_ended_and_late_jobs(self) -> None:
        running = job(status=status("Running"))
        lost = observe(running, self.MASTER, reservation=None)
        ended = observe(job(status=status("Failed", completionTime="2026-01-02T03:04:00Z")), self.MASTER)
        late = replace(observe(job(status=status("Admitted")), replace(self.MASTER, phase="Pending")))
        times = ReconcileSettings(admission_timeout=1.0, longest_grace=60.0)
        for each in (lost, ended, late):
            found = plan(each, times, NOW)
            assert graces(found) == {"digits-master-0": 60}
            assert len(shortened(found)) == 1
        over = observe(job(status=status("Running"), activeDeadlineSeconds=1), self.MASTER)
        assert graces(plan(over, times, NOW)) == {"digits-master-0": 60}

    def test_event_gives_the_setting_that_has_shortened_the_grace_to_a_second(self) -> None:
        observed = replace(observe(job(status=status("Running")), self.MASTER), draining=True)
        (said,) = shortened(plan(observed, ReconcileSettings(longest_grace=1.0), NOW))
        assert "get 1 s (setting longest_grace)" in said

    def test_pods_of_deleted_job_keep_their_grace_until_queue_is_drained(self) -> None:
        gone = observe(None, self.MASTER)
        assert (graces(decide(gone)), shortened(decide(gone))) == ({"digits-master-0": None}, [])
        going = observe(None, pod(grace=ENDLESS, deleting=True, deadline=NOW.timestamp() + ENDLESS))
        assert graces(decide(going)) == {}
        assert graces(decide(replace(going, draining=True))) == {"digits-master-0": 600}

    def test_draining_deletes_running_containers_of_finished_job(self) -> None:
        lingers = pod(phase="Succeeded", has_running_containers=True)
        done = job(status=status("Succeeded", admission=ADMISSION, attempt=1), cleanPodPolicy="None")
        observed = observe(done, lingers, pod("Worker", 0, "Succeeded"))
        assert deleted(decide(observed)) == []
        assert deleted(decide(replace(observed, draining=True))) == ["digits-master-0"]

    def test_grace_of_terminating_pod_on_dead_node_is_shortened(self) -> None:
        going = pod(grace=ENDLESS, deleting=True, deadline=NOW.timestamp() + ENDLESS, node="n1")
        observed = replace(observe(job(status=status("Running")), going), dead_nodes=frozenset({"n1"}), draining=True)
        assert graces(decide(observed)) == {"digits-master-0": 600}

    def test_shortened_grace_of_ended_pod_emits_no_event(self) -> None:
        done = replace(self.MASTER, phase="Failed", exit_code=1)
        assert shortened(decide(replace(observe(job(status=status("Running")), done), draining=True))) == []


class TestRefusals:
    def test_invalid_job_fails_once_with_its_problem(self) -> None:
        problem = Problem("spec.torchTaskSpecs", "dependency cycle Master -> Worker -> Master")
        broken = InvalidJob(problems=(problem,), status=TorchJobStatus(), generation=3, resource_version="9")
        change = written(decide(observe(broken, reservation=None)))
        assert (change["phase"], true(change)) == ("Failed", {"Failed"})
        (condition,) = change["conditions"]
        assert (condition["reason"], condition["message"]) == ("InvalidSpec", str(problem))
        said = replace(broken, status=TorchJobStatus.model_validate(change))
        assert not decide(observe(said, reservation=None)).actions
        # An interrupted clean-up is completed, and the job is deleted after its time to live.
        assert deleted(decide(observe(said, pod(), reservation=None))) == ["digits-master-0"]
        assert decide(observe(replace(said, time_to_live=9), reservation=None)).requeue_after == 9
        assert decide(observe(replace(said, time_to_live=0), reservation=None)).actions == (DeleteJob(),)

    def test_refused_template_fails_job(self) -> None:
        refused = "pod digits-worker-0: spec.containers[0].image: Required value"
        found = decide(observe(job(status=status("Admitted")), pod(), obstacle=InvalidPod(refused)))
        change = written(found)
        failed = next(each for each in change["conditions"] if each["type"] == "Failed")
        assert (failed["reason"], failed["message"]) == ("InvalidTemplate", refused)
        assert deleted(found) == ["digits-master-0"]


class TestFailures:
    def test_failure_of_two_pods_restarts_job_and_counts_once(self) -> None:
        both = (pod(), pod("Worker", 0, "Failed", exit_code=1), pod("Worker", 1, "Failed", exit_code=1))
        found = decide(observe(job(status=status("Running")), *both))
        change = written(found)
        assert kinds(found) == [
            "WriteStatus",
            "EmitEvent",
            "DeletePods",
        ]  # the failure is counted before a crash can repeat it
        assert (change["restartCount"], change["restartGeneration"]) == (1, 1)
        assert change["phase"] == "Admitted"
        assert len(deleted(found)) == 3
        counted = job(status=status("Admitted", restartCount=1, restartGeneration=1))
        again = decide(observe(counted, *both))
        assert kinds(again) == ["DeletePods"]

    def test_new_pods_are_created_after_all_old_pods_are_deleted(self) -> None:
        counted = job(status=status("Admitted", restartCount=1, restartGeneration=1))
        assert not decide(observe(counted, pod("Worker", 1, deleting=True))).actions
        found = decide(observe(counted))
        assert len(made(found)) == 3
        pods = [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]
        assert {each["metadata"]["labels"]["train.distributed.io/restart"] for each in pods} == {"1"}

    def test_permanent_failure_of_master_fails_job(self) -> None:
        failed = pod(phase="Failed", exit_code=1, reason="Error", message="ValueError: no data")
        found = decide(observe(job(status=status("Running")), failed, pod("Worker"), pod("Worker", 1)))
        change = written(found)
        said = next(each for each in change["conditions"] if each["type"] == "Failed")
        assert said["reason"] == "PodFailed"
        assert said["message"] == "pod digits-master-0 failed with exit code 1 (Error): ValueError: no data"
        assert change["phase"] == "Failed"
        assert deleted(found) == ["digits-worker-0", "digits-worker-1"]

    def test_job_fails_at_its_backoff_limit(self) -> None:
        last = job(status=status("Running", restartCount=2, restartGeneration=2), backoffLimit=2)
        failed = pod("Worker", 0, "Failed", restart=2, exit_code=1)
        change = written(decide(observe(last, pod(restart=2), failed, pod("Worker", 1, restart=2))))
        said = next(each for each in change["conditions"] if each["type"] == "Failed")
        assert said["reason"] == "BackoffLimitExceeded"
        assert "digits-worker-0 failed with exit code 1" in said["message"]
        assert "restartCount" not in change

    def test_task_scope_replaces_only_failed_pods(self) -> None:
        running = job(status=status("Running"), restartScope="Task")
        failed = pod("Worker", 0, "Failed", exit_code=1)
        found = decide(observe(running, pod(), failed, pod("Worker", 1)))
        assert kinds(found) == ["WriteStatus", "EmitEvent", "DeletePods"]
        assert deleted(found) == ["digits-worker-0"]
        assert written(found)["restartCount"] == 1
        assert written(found)["replacing"] == [failed.uid]  # the status records that the failure is counted
        assert "phase" not in written(found)
        counted = job(status=status("Running", restartCount=1, replacing=[failed.uid]), restartScope="Task")
        assert deleted(decide(observe(counted, pod(), failed, pod("Worker", 1)))) == ["digits-worker-0"]
        assert made(decide(observe(counted, pod(), pod("Worker", 1)))) == ["digits-worker-0"]
        assert not decide(observe(counted, pod(), replace(failed, deleting=True), pod("Worker", 1))).actions

    def test_deleted_pod_is_a_disruption(self) -> None:
        going = pod("Worker", 0, "Failed", exit_code=143, deleting=True)
        change = written(decide(observe(job(status=status("Running")), pod(), going, pod("Worker", 1))))
        assert (change["disruptions"], change["restartGeneration"], change["phase"]) == (1, 1, "Admitted")
        assert "restartCount" not in change

    def test_vanished_pod_is_a_disruption_if_it_was_counted(self) -> None:
        counts = {"Worker": {"active": 2, "ready": 2}, "Master": {"active": 1, "ready": 1}}
        change = written(decide(observe(job(status=status("Running", taskStatuses=counts)), pod(), pod("Worker", 1))))
        assert (change["disruptions"], change["restartGeneration"]) == (1, 1)
        counts["Worker"]["active"] = 1  # the pod may never have been created
        unknown = decide(observe(job(status=status("Running", taskStatuses=counts)), pod(), pod("Worker", 1)))
        assert made(unknown) == ["digits-worker-0"]

    def test_failed_job_deletes_running_pods_despite_clean_pod_policy_none(self) -> None:
        failed = pod(phase="Failed", exit_code=1)
        described = job(status=status("Running"), cleanPodPolicy="None")
        found = decide(observe(described, failed, pod("Worker"), pod("Worker", 1, "Succeeded")))
        assert written(found)["phase"] == "Failed"
        assert deleted(found) == ["digits-worker-0"]
        assert kinds(found) == ["WriteStatus", "DeletePods", "EmitEvent"]
        ended = job(status=status("Failed", attempt=1), cleanPodPolicy="None")
        assert deleted(decide(observe(ended, failed, pod("Worker")))) == ["digits-worker-0"]


STEPS = {
    "Master": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
    "Prepare": task(2),
    "Worker": task(2, dependsOn=[{"taskType": "Master"}]),
}


class TestDependencies:
    def test_task_starts_when_its_upstream_reaches_the_phase(self) -> None:
        assert made(decide(observe(job(STEPS)))) == ["digits-prepare-0", "digits-prepare-1"]
        admitted = job(STEPS, status=status("Admitted"))
        prepared = (pod("Prepare", 0, "Succeeded"), pod("Prepare", 1, "Succeeded"))
        assert made(decide(observe(admitted, prepared[0], pod("Prepare", 1)))) == []
        assert made(decide(observe(admitted, *prepared))) == ["digits-master-0"]
        assert made(decide(observe(admitted, pod(phase="Pending"), *prepared))) == []
        assert made(decide(observe(admitted, pod(), *prepared))) == ["digits-worker-0", "digits-worker-1"]

    def test_failed_upstream_starts_no_downstream_task(self) -> None:
        found = decide(
            observe(job(STEPS, status=status("Admitted")), *[pod("Prepare", each, "Failed") for each in (0, 1)])
        )
        assert made(found) == []

    def test_service_of_rank_0_is_created_with_its_pod(self) -> None:
        first = decide(observe(job(STEPS)))
        names = [each.manifest["metadata"]["name"] for each in first.actions if isinstance(each, CreateService)]
        assert names == ["digits-prepare-0"]

    def test_job_of_one_pod_gets_no_service(self) -> None:
        held = replace(RESERVATION, charge={"jobs": 1, "pods": 1, "cpu": 1000})
        found = decide(observe(job({"Master": task()}), reservation=held))
        assert (made(found), [each for each in found.actions if isinstance(each, CreateService)]) == (
            ["digits-master-0"],
            [],
        )


class TestDeadline:
    LATE = NOW + timedelta(seconds=600)
    STAGES: ClassVar = {"Master": task(), "Worker": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}])}

    def left(self, at: datetime, *pods: PodView, **fields: Any) -> float | None:
        return Deadline(600.0, at).remaining(job(fields.pop("tasks", None), status("Admitted", **fields)), pods)

    def test_admission_timeout_starts_with_the_admission(self) -> None:
        since = (NOW - datetime(2026, 1, 2, 3, 0, tzinfo=UTC)).total_seconds()
        assert self.left(NOW) == 600 - since
        assert Deadline(0.0, self.LATE).remaining(job(status=status("Admitted")), ()) is None
        assert Deadline(600.0, self.LATE).remaining(job(status=status("Running")), ()) is None

    def test_admission_timeout_starts_over_after_restart(self) -> None:
        ran = {"type": "Running", "status": "False", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        assert self.left(NOW, conditions=[*conditions("Admitted"), ran], restartCount=1) == 600

    def test_running_pods_have_no_deadline_unless_terminating(self) -> None:
        assert self.left(self.LATE, *all_pods()) is None
        left = self.left(self.LATE, *all_pods(deleting=True))
        assert left is not None
        assert left < 0

    def test_admission_timeout_pauses_while_no_node_is_ready(self) -> None:
        """A machine that was off for a night does not send back a job that was admitted in the evening."""
        admitted = observe(job(status=status("Admitted")), *all_pods("Pending"))
        assert "NotRunningInTime" in str(plan(admitted, ReconcileSettings(), self.LATE))
        back = replace(admitted, ready_again=self.LATE.timestamp() - 10)
        assert "NotRunningInTime" not in str(plan(back, ReconcileSettings(), self.LATE))
        assert Deadline(600.0, self.LATE, ready_again=self.LATE).remaining(admitted.job, admitted.pods) == 600.0
        earlier = NOW - timedelta(days=1)  # earlier than the admission
        assert self.left(self.LATE) == Deadline(600.0, self.LATE, ready_again=earlier).remaining(admitted.job, ())

    def test_later_stage_has_no_deadline_before_it_begins(self) -> None:
        assert self.left(self.LATE, pod("Master"), tasks=self.STAGES) is None
        assert self.left(self.LATE, pod("Master", phase="Succeeded"), tasks=self.STAGES) is None
        assert self.left(self.LATE, pod("Master", phase="Pending"), tasks=self.STAGES) is not None

    def test_late_job_loses_its_pods_before_its_admission(self) -> None:
        late = job(status=status("Admitted"))
        pods = (pod(), *all_pods("Pending", problem="ImagePullBackOff: no such image")[1:])
        first = plan(observe(late, *pods), ReconcileSettings(), self.LATE)
        assert kinds(first) == ["WriteStatus", "DeletePods"]
        why = "Worker: 2 ImagePullBackOff (digits-worker-0): no such image"
        assert [each["message"] for each in written(first)["conditions"]] == [why]
        # Neither the end of terminating pods nor a longer timeout changes the decision.
        gone = job(status=status("Admitted") | written(first))
        for there in (all_pods(deleting=True), all_pods("Succeeded", deleting=True)):
            assert not decide(observe(gone, *there)).actions
        assert kinds(decide(observe(gone, *all_pods()))) == ["DeletePods"]
        stuck = decide(observe(gone, pod(deleting=True, has_finalizers=True, deadline=0.0)))
        assert [each.reason for each in stuck.actions if isinstance(each, EmitEvent)] == ["PodsStuck"]
        change = written(decide(observe(gone)))
        assert change["admission"] is None
        assert (change["phase"], change["queue"]["tries"]) == ("Queued", 1)
        assert f": it is tried again later ({why})" in change["conditions"][-1]["message"]

    @pytest.mark.parametrize("said", ["Suspending", "Draining", "PodsStuck"])
    def test_admission_timeout_starts_over_for_job_that_continues_with_old_pods(self, said: str) -> None:
        held = leaving(said)
        going = all_pods(deleting=True, has_finalizers=True, deadline=0.0)
        late = plan(observe(held, *going), ReconcileSettings(), self.LATE)
        assert reason(written(late)) == "Restarting"
        after = job(status=held.status.manifest() | written(late))
        assert [Deadline(600.0, self.LATE).remaining(each, going) for each in (held, after)] == [None, 600]

    @pytest.mark.parametrize(("tries", "seconds"), [(0, 60), (1, 120), (2, 240), (6, 3600), (80, 3600)])
    def test_pause_of_late_job_doubles_with_each_try(self, tries: int, seconds: int) -> None:
        after = late_status(job(status=status("Admitted", queue={"tries": tries})), 60.0, 1000, NOW).queue
        assert after is not None
        assert (after.tries, after.parked) == (tries + 1, False)
        assert after.not_before is not None
        waits = (after.not_before - NOW) / timedelta(seconds=seconds)
        assert 0.75 < waits <= 1.0

    def test_pauses_of_late_jobs_differ_by_uid(self) -> None:
        late = job(status=status("Admitted"))
        metadata = [late.metadata.model_copy(update={"uid": f"uid-{number}"}) for number in range(20)]
        found = [late.model_copy(update={"metadata": each}) for each in metadata]
        times = [[late_status(each, 60.0, 9, NOW).queue for each in found] for _ in range(2)]
        assert times[0] == times[1]
        assert len({each.not_before for each in times[0] if each}) == 20

    @pytest.mark.parametrize(("asked", "expected"), [("2026-01-02T03:00:01Z", 0), ("2026-01-02T02:59:59Z", 3)])
    def test_retry_request_resets_tries_if_it_is_newer(self, asked: str, expected: int) -> None:
        waits = {"tries": 3, "parked": True, "since": "2026-01-02T03:00:00Z"}
        found = job(status=status("Queued", queue=waits), annotations={labels.RETRY_AT: asked})
        assert admission_tries(found, NOW) == expected
        for wrong in ("soon", "2026-01-02T03:00:01", ""):
            assert (
                admission_tries(job(status=status("Queued", queue=waits), annotations={labels.RETRY_AT: wrong}), NOW)
                == 3
            )

    @pytest.mark.parametrize("asked", ["9999-12-31T23:59:59Z", "2026-01-02T03:05:06Z", "9999-12-31T23:59:59-23:59"])
    def test_retry_request_in_the_future_is_ignored(self, asked: str) -> None:
        waits = {"tries": 3, "parked": True, "since": "2026-01-02T03:00:00Z"}
        found = job(status=status("Queued", queue=waits), annotations={labels.RETRY_AT: asked})
        assert found.retry_at is not None
        assert admission_tries(found, NOW) == 3
        parked = late_status(
            job(status=status("Admitted", queue=waits), annotations={labels.RETRY_AT: asked}), 60.0, 4, NOW
        )
        assert parked.queue is not None
        assert (parked.queue.tries, parked.queue.parked) == (4, True)

    def test_retry_request_may_be_one_minute_ahead(self) -> None:
        waits = {"tries": 3, "parked": True, "since": "2026-01-02T03:00:00Z"}
        found = job(status=status("Queued", queue=waits), annotations={labels.RETRY_AT: "2026-01-02T03:05:05Z"})
        assert (admission_tries(found, NOW), admission_tries(found, NOW - timedelta(seconds=1))) == (0, 3)

    def test_draining_deletes_pods_and_then_requeues_job(self) -> None:
        running = job(status=status("Running"))
        draining = [replace(observe(running, *pods), draining=True) for pods in (all_pods(), ())]
        plans = [plan(each, ReconcileSettings(), NOW) for each in draining]
        assert [kinds(each) for each in plans] == [["WriteStatus", "DeletePods"], ["WriteStatus"]]
        assert plans[1].actions[0].change["status"]["queue"]["drained"] is True  # type: ignore[union-attr]
        waiting = replace(observe(job(status=status("Queued"))), draining=True)
        assert plan(waiting, ReconcileSettings(), NOW) == Plan()
