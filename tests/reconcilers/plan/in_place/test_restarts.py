"""The steps of restarts in place for every driver."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.api_resources import RECREATE_REQUESTS
from reconcilers.plan.in_place import driver as drivers
from reconcilers.plan.in_place import kruise, restarts
from reconcilers.plan.in_place.drivers import find_drivers
from reconcilers.plan.in_place.restarts import Restarts, RestartStep
from reconcilers.plan.pod_deletion import PodDeletion
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, DeleteObject, DeletePods, PatchPodMetadata
from reconcilers.views import recreate_request
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers import recreate_requests
from tests.support.reconcilers.builders import KEY, NOW, all_pods, job, pod, status, task

T = NOW.timestamp()
MASTER, WORKER, OTHER = all_pods()
SECOND = job(status=status("Admitted", restartGeneration=1))


STORE = pod("Rendezvous")


def elastic(**fields: Any) -> Any:
    """Return an elastic job whose two workers meet at a store."""
    tasks = {"Worker": task(2), "Rendezvous": task(auxiliary=True, critical=True)}
    return job(tasks, status=status("Admitted", **fields), torchElasticPolicy={"numMinReplicas": 1})


ELASTIC = elastic(restartGeneration=1)


def scene(
    *pods: PodView, driver: Any = "local", of: Any = SECOND, requests: tuple[RecreateView, ...] = (), dead: Any = ()
) -> Restarts:
    settings = ReconcileSettings(in_place=driver, served=frozenset({RECREATE_REQUESTS}))
    shown = tuple(replace(each, self_healing=True) for each in pods) if driver == "kruise" else pods
    return Restarts(
        job=of,
        pods=shown,
        leads=frozenset({"digits-master-0"}),
        deletion=PodDeletion(T, 60.0, frozenset(dead)),
        drivers=find_drivers(of, shown, requests, settings, T),
    )


def request(pod: PodView = MASTER, **fields: Any) -> RecreateView:
    return recreate_requests.view(pod, **fields)


def deleted(step: RestartStep) -> list[str]:
    return [each.name for action in step.actions if isinstance(action, DeletePods) for each in action.pods]


def asked(step: RestartStep) -> list[str]:
    """Return the pods whose restart is requested, for any driver."""
    marked = [each for each in step.actions if isinstance(each, PatchPodMetadata) and "labels" not in each.metadata]
    made = [each.manifest["spec"]["podName"] for each in step.actions if isinstance(each, CreateObject)]
    return [each.name for action in marked for each in action.pods] + made


def through(step: RestartStep) -> list[str]:
    """Return the pods that are marked with the restart generation."""
    found = [each for each in step.actions if isinstance(each, PatchPodMetadata)]
    return [
        each.name for action in found if action.metadata.get("labels") == {labels.RESTART: "1"} for each in action.pods
    ]


class TestTheWholeJob:
    @pytest.mark.parametrize("driver", ["local", "kruise"])
    def test_all_pods_are_asked_in_one_step(self, driver: Any) -> None:
        everyone = ["digits-master-0", "digits-worker-0", "digits-worker-1"]
        assert asked(scene(MASTER, WORKER, OTHER, driver=driver).job_step()) == everyone
        led = scene(replace(MASTER, restart=1), WORKER, OTHER, driver=driver).job_step()
        assert (asked(led), led.blocked) == (everyone[1:], True)
        failed = scene(replace(MASTER, phase="Failed"), WORKER, driver=driver).job_step()
        assert (asked(failed), deleted(failed)) == (["digits-worker-0"], ["digits-master-0"])

    @pytest.mark.parametrize("fields", [{"deleting": True}, {"restart": -1}])
    def test_others_wait_for_the_end_of_a_rank_0_that_runs_and_is_replaced(self, fields: dict[str, Any]) -> None:
        going = scene(replace(MASTER, **fields), WORKER).job_step()
        assert (asked(going), going.blocked) == ([], True)

    def test_no_pod_counts_as_restarted_before_rank_0(self) -> None:
        done = replace(WORKER, requested_restart="1", restart_requested_at=T - 1, completed_restart="1")
        open_ = replace(MASTER, requested_restart="1", restart_requested_at=T - 1)
        assert through(scene(open_, done).job_step()) == []
        led = scene(replace(open_, completed_restart="1"), done).job_step()
        assert (through(led), led.done) == (["digits-master-0", "digits-worker-0"], True)
        # The pod met rank 0 from before the restart, and failed together with it. This end is no failure of the job.
        met = scene(open_, replace(done, phase="Failed", exit_code=1)).job_step()
        assert (deleted(met), through(met)) == (["digits-worker-0"], [])

    @pytest.mark.parametrize("driver", ["recreate", "kubernetes"])
    def test_driver_without_requests_replaces_all_pods(self, driver: Any) -> None:
        step = scene(MASTER, WORKER, replace(OTHER, deleting=True), driver=driver).job_step()
        assert deleted(step) == ["digits-master-0", "digits-worker-0"]
        assert asked(step) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"phase": "Failed"},
            {"phase": "Pending"},
            {"phase": "Succeeded"},
            {"phase": "Unknown"},
            {"restart": -1},
        ],
    )
    def test_unhealthy_pod_is_replaced_at_once(self, fields: dict[str, Any]) -> None:
        step = scene(MASTER, replace(WORKER, **fields), OTHER).job_step()
        assert (deleted(step), asked(step)) == (["digits-worker-0"], ["digits-master-0", "digits-worker-1"])

    def test_restart_requested_in_the_future_fails(self) -> None:
        late = scene(replace(MASTER, requested_restart="1", restart_requested_at=T + 10**9)).job_step()
        assert [pod.name for pod, _ in late.failed] == ["digits-master-0"]
        soon = scene(replace(MASTER, requested_restart="1", restart_requested_at=T + 30)).job_step()
        assert (soon.failed, soon.requeue_after) == ((), 90.0)

    def test_pod_on_dead_node_is_replaced_at_once(self) -> None:
        step = scene(replace(WORKER, node="n1"), dead={"n1"}).job_step()
        assert step.actions == (DeletePods((replace(WORKER, node="n1"),), at_once=True),)

    def test_recreate_generation_replaces_pods(self) -> None:
        fresh = job(status=status("Admitted", restartGeneration=2, recreateGeneration=2))
        assert deleted(scene(replace(MASTER, restart=1), of=fresh).job_step()) == ["digits-master-0"]
        later = job(status=status("Admitted", restartGeneration=3, recreateGeneration=2))
        assert deleted(scene(replace(MASTER, restart=2), of=later).job_step()) == []

    @pytest.mark.parametrize("driver", ["local", "kruise"])
    def test_pods_that_meet_at_a_store_get_a_new_name_and_the_store_stays(self, driver: Any) -> None:
        step = scene(STORE, WORKER, OTHER, driver=driver, of=ELASTIC).job_step()
        names = next(each.metadata["annotations"] for each in step.actions if isinstance(each, PatchPodMetadata))
        assert names[labels.RENDEZVOUS_ID] == f"{KEY.uid}-1"
        assert set(asked(step)) == {"digits-worker-0", "digits-worker-1"}
        assert (through(step), deleted(step), step.blocked) == (["digits-rendezvous-0"], [], True)

    def test_workers_do_not_wait_for_a_lost_store(self) -> None:
        step = scene(replace(STORE, phase="Failed"), WORKER, OTHER, of=ELASTIC).job_step()
        assert (deleted(step), asked(step)) == (["digits-rendezvous-0"], ["digits-worker-0", "digits-worker-1"])

    def test_store_is_replaced_with_all_other_pods_on_request(self) -> None:
        fresh = elastic(restartGeneration=1, recreateGeneration=1)
        assert deleted(scene(STORE, WORKER, of=fresh).job_step()) == ["digits-rendezvous-0", "digits-worker-0"]
        assert deleted(scene(STORE, WORKER, driver="recreate", of=ELASTIC).job_step()) == ["digits-worker-0"]

    def test_step_of_restarted_pods_is_empty(self) -> None:
        assert scene(*all_pods(restart=1)).job_step() == RestartStep()


class TestLocal:
    ASKED = replace(MASTER, requested_restart="1", restart_requested_at=T - 10)

    def test_restart_is_requested_once_with_its_time(self) -> None:
        (mark,) = scene(MASTER).job_step().actions
        assert isinstance(mark, PatchPodMetadata)
        assert mark.metadata == {
            "annotations": {labels.RESTART_CONTAINERS: "1", labels.RESTART_REQUESTED_AT: "2026-01-02T03:04:05Z"}
        }
        step = scene(self.ASKED).job_step()
        assert (step.actions, step.requeue_after, step.blocked) == ((), 50.0, True)

    def test_older_request_is_replaced(self) -> None:
        assert asked(scene(replace(self.ASKED, requested_restart="0", completed_restart="0")).job_step()) == [
            "digits-master-0"
        ]
        assert asked(scene(replace(self.ASKED, restart_requested_at=None)).job_step()) == ["digits-master-0"]

    def test_restart_is_done_when_node_reports_it(self) -> None:
        step = scene(replace(self.ASKED, completed_restart="1")).job_step()
        assert (through(step), step.done) == (["digits-master-0"], True)
        assert not scene(replace(self.ASKED, completed_restart="1"), WORKER).job_step().done

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"failed_restart": "1: PodFinished"}, "PodFinished"),
            ({"restart_requested_at": T - 61}, "not done within 60 s"),
        ],
    )
    def test_failed_or_late_restart_replaces_pod(self, fields: dict[str, Any], why: str) -> None:
        late = replace(self.ASKED, **fields)
        step = scene(late).job_step()
        assert (deleted(step), step.failed) == (["digits-master-0"], ((late, why),))

    def test_refusal_of_older_request_is_ignored(self) -> None:
        step = scene(replace(self.ASKED, failed_restart="0: PodFinished")).job_step()
        assert (deleted(step), step.failed) == ([], ())


class TestKruise:
    def test_recreate_request_has_names_owner_and_deadline(self) -> None:
        (make,) = scene(replace(MASTER, restarts=2, counted_restarts=2), driver="kruise").job_step().actions
        assert isinstance(make, CreateObject)
        assert make.resource == RECREATE_REQUESTS
        metadata, spec = make.manifest["metadata"], make.manifest["spec"]
        assert (metadata["name"], metadata["namespace"]) == ("digits-master-0-1", "team")
        assert metadata["labels"] == {labels.JOB_NAME: "digits", labels.JOB_UID: KEY.uid, labels.RESTART: "1"}
        assert metadata["annotations"] == {labels.POD_UID: "master-0", labels.RESTARTS_HANDLED: "2"}
        assert metadata["ownerReferences"][0]["uid"] == "master-0"
        assert spec == {
            "podName": "digits-master-0",
            "containers": [{"name": "torch"}],
            "strategy": {"failurePolicy": "Fail", "orderedRecreate": True},
            "activeDeadlineSeconds": 60,
            "ttlSecondsAfterFinished": 600,
        }

    def judge(self, pod: PodView, **fields: Any) -> RestartStep:
        return scene(pod, driver="kruise", requests=(request(**fields),)).job_step()

    def test_request_is_done_once_main_container_restarted(self) -> None:
        again = replace(MASTER, self_healing=True, restarts=1)
        (mark,) = self.judge(again, verdict="Done").actions
        assert isinstance(mark, PatchPodMetadata)
        assert mark.metadata == {
            "labels": {labels.RESTART: "1"},
            "annotations": {
                labels.RESTARTS_HANDLED: "1",
                labels.RESTART_CONTAINERS: "1",
            },
        }, "without the mark, the pod would prove that its upstreams exist"
        assert self.judge(MASTER, verdict="Done").actions == ()
        assert self.judge(MASTER, verdict="Done", created=T - 61).failed

    @pytest.mark.parametrize(
        ("fields", "failed"),
        [
            ({}, False),
            ({"created": T - 61}, True),  # the request is always Pending, behind another request
            ({"verdict": "Failed", "message": "pod has gone"}, True),
            ({"created": None}, True),
        ],
    )
    def test_failed_or_late_request_replaces_pod(self, fields: dict[str, Any], failed: bool) -> None:
        step = self.judge(MASTER, **fields)
        assert bool(step.failed) is failed
        assert deleted(step) == (["digits-master-0"] if failed else [])

    @pytest.mark.parametrize("fields", [{"pod_uid": "another"}, {"generation": 0}])
    def test_request_for_other_pod_or_older_generation_is_ignored(self, fields: dict[str, Any]) -> None:
        assert asked(self.judge(MASTER, verdict="Done", **fields)) == ["digits-master-0"]

    def test_requests_for_missing_pods_are_deleted(self) -> None:
        assert kruise.delete_orphans((request(), request(WORKER)), (MASTER,)) == (
            DeleteObject(RECREATE_REQUESTS, "digits-worker-0-1", "request"),
        )

    def test_handled_request_is_not_under_way(self) -> None:
        done = replace(MASTER, restart=1, self_healing=True, restarts=1, counted_restarts=1)
        again = scene(done, driver="kruise", requests=(request(verdict="Done"),))
        assert (again.pod_step(), again.pods_in_restart()) == (RestartStep(), frozenset())
        under_way = scene(replace(done, counted_restarts=0), driver="kruise", requests=(request(),))
        assert under_way.pods_in_restart() == {"master-0"}

    def test_request_for_always_restarted_pod_marks_its_restarts(self) -> None:
        serves = job({"Master": task(restartPolicy="Always")}, status("Admitted", restartGeneration=1))
        done = replace(MASTER, restart=1, restarts=5)
        (mark,) = (
            replace(scene(driver="kruise", of=serves, requests=(request(verdict="Done"),)), pods=(done,))
            .pod_step()
            .actions
        )
        assert isinstance(mark, PatchPodMetadata)
        assert mark.metadata["annotations"] == {labels.RESTARTS_HANDLED: "5"}


class TestSinglePods:
    def test_single_restarts_have_distinct_numbers(self) -> None:
        (mark,) = scene(MASTER).request_restart((MASTER,), "once")
        (again,) = scene(MASTER).request_restart((MASTER,), "twice")
        assert isinstance(mark, PatchPodMetadata)
        assert isinstance(again, PatchPodMetadata)
        numbers = [each.metadata["annotations"][labels.RESTART_CONTAINERS] for each in (mark, again)]
        assert all(each.isdecimal() and int(each) >= drivers.UNPLANNED for each in numbers)
        assert len(set(numbers)) == 2

    def test_late_single_restart_fails(self) -> None:
        late = replace(MASTER, restart=1, requested_restart="1000000000000001", restart_requested_at=T - 61)
        assert scene(late).pod_step().failed == ((late, "not done within 60 s"),)
        assert scene(replace(late, restart_requested_at=T - 1)).pod_step().requeue_after == 59.0
        assert scene(replace(late, completed_restart=late.requested_restart)).pod_step() == RestartStep()
        leaving = job(status=status("Admitted", restartGeneration=1, replacing=["master-0"]))
        assert scene(late, of=leaving).pod_step() == RestartStep()


@pytest.mark.parametrize(
    ("pod", "purpose", "name"),
    [("digits-master-0", "12", "digits-master-0-12"), ("d" * 60, "12", "d" * 60 + "-12")],
)
def test_request_name_joins_pod_and_purpose(pod: str, purpose: str, name: str) -> None:
    assert kruise.request_name(pod, purpose) == name


def test_long_request_names_are_cut_and_unique() -> None:
    names = {kruise.request_name("d" * 63, purpose) for purpose in ("1", "2", "12")}
    assert len(names) == 3
    assert {len(each) for each in names} == {63}


def test_mark_counted_marks_counted_restarts_of_node() -> None:
    counted = job(status=status("Running", replacing=["worker-0/2", "master-0"]), restartScope="Task")
    (mark,) = restarts.mark_counted(counted, (MASTER, replace(WORKER, restarts=2, counted_restarts=1)))
    assert isinstance(mark, PatchPodMetadata)
    assert (mark.pods[0].name, mark.metadata) == ("digits-worker-0", {"annotations": {labels.RESTARTS_HANDLED: "2"}})
    assert restarts.mark_counted(counted, (replace(WORKER, counted_restarts=2),)) == ()


def test_can_restart_needs_running_pod_on_live_node() -> None:
    found = scene(MASTER, dead={"n1"})
    assert found.can_restart(MASTER)
    assert not found.can_restart(replace(MASTER, node="n1"))
    assert not found.can_restart(pod(phase="Pending"))
    assert not scene(MASTER, driver="recreate").can_restart(MASTER)


def test_pod_whose_agent_cannot_run_is_not_asked() -> None:
    asked = replace(MASTER, has_restart_agent=True)
    assert scene(asked, driver="auto").can_restart(asked)
    assert not scene(asked, driver="auto").can_restart(replace(asked, agent_failure="the image has no sleep"))


def test_can_restart_with_kruise_needs_self_healing_pod() -> None:
    serves = job({"Master": task(restartPolicy="Always")}, status("Admitted", restartGeneration=1))
    assert not scene(driver="kruise").can_restart(MASTER)
    assert scene(driver="kruise").can_restart(replace(MASTER, self_healing=True))
    assert scene(driver="kruise", of=serves).can_restart(MASTER)


@pytest.mark.parametrize(
    ("owners", "notes", "uid"),
    [
        ([{"uid": "master-0"}], {labels.POD_UID: "master-0"}, "u"),
        ([{"uid": "worker-0"}], {labels.POD_UID: "master-0"}, ""),
        ([], {labels.POD_UID: "master-0"}, ""),
        ([{"uid": "master-0"}], {}, ""),
        (None, None, ""),
    ],
)
def test_request_belongs_to_job_if_its_owner_is_the_named_pod(owners: Any, notes: Any, uid: str) -> None:
    metadata = {"labels": {labels.JOB_UID: "u"}, "annotations": notes, "ownerReferences": owners}
    assert recreate_request.job_uid(metadata) == uid
