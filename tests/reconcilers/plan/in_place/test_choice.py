"""The driver that restarts pods in place, the charge of a job for its agents, and pods in which an agent cannot run."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from crds import labels
from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from kube.api import Manifest
from reconcilers.plan import status as statuses
from reconcilers.plan.in_place import choice
from reconcilers.plan.moment import Moment
from reconcilers.plan.plan import plan
from reconcilers.plan.status import LATE
from reconcilers.pods import measure
from reconcilers.settings import ReconcileSettings
from reconcilers.values import (
    NOT_ASKED,
    Blocker,
    CreatePods,
    EmitEvent,
    InvalidPod,
    NoRoom,
    Observation,
    Obstacle,
    OverQuota,
    Plan,
    RaiseCharge,
)
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView
from tests.reconcilers.plan.test_plan import decide, deleted, kinds, written
from tests.support.reconcilers.builders import NOW, RESERVATION, all_pods, job, observe, pod, status, view

AUTO = ReconcileSettings(in_place="auto")
KRUISE = ReconcileSettings(in_place="auto", served=frozenset({RECREATE_REQUESTS}))
OLD_NODE = "node n2 does not declare RestartAllContainersOnContainerExits"
CHARGE = {"jobs": 1, "pods": 3, "cpu": 3000}
WITH_AGENTS = {"jobs": 1, "pods": 3, "cpu": 3003, "memory": 3 * 2**24}
AGENTS = {"driver": "kubernetes", "charged": True}


def see(described: TorchJob, *pods: PodView, obstacle: str = "", met: Obstacle | None = None) -> Observation:
    return replace(observe(described, *pods), restart_obstacle=obstacle, obstacle=met)


def merge(old: Any, change: Any) -> Any:
    """Return the result of a JSON merge patch."""
    if not isinstance(change, dict):
        return change
    base = old if isinstance(old, dict) else {}
    merged = base | {name: merge(base.get(name), value) for name, value in change.items()}
    return {name: value for name, value in merged.items() if value is not None}


def act(found: Plan, described: TorchJob) -> TorchJob:
    """Return the job after a plan was carried out."""
    merged = merge(described.status.manifest(), written(found))
    manifest = described.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"status"})
    return torchjob.parse({**manifest, "status": merged})


def replace_status(described: TorchJob, after: Any) -> TorchJob:
    return described.model_copy(update={"status": after})


def made(found: Plan) -> list[Manifest]:
    return [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]


def has_agent(manifest: Manifest) -> bool:
    return any(each["name"] == containers.RESTART_AGENT for each in manifest["spec"].get("initContainers") or ())


def views(found: Plan, **fields: Any) -> tuple[PodView, ...]:
    return tuple(replace(view(each, each["metadata"]["name"]), **fields) for each in made(found))


def running(driver: Any = AGENTS, **fields: Any) -> TorchJob:
    """Return a job whose pods have agents and which is charged for the agents."""
    begun = decide(see(job()), AUTO)
    described = act(begun, job())
    assert described.status.measured is not None
    found = {"inPlace": driver, "measured": described.status.measured.manifest(), **fields}
    found["admission"] = described.status.admission.manifest() if described.status.admission else None
    return job(status=status("Running") | found)


class TestAdmission:
    def test_job_is_charged_for_its_agents_before_it_is_admitted_and_any_pod_is_made(self) -> None:
        found = decide(see(job()), AUTO)
        assert kinds(found)[:2] == ["RaiseCharge", "WriteStatus"]
        assert found.actions[0] == RaiseCharge(1, WITH_AGENTS)
        change = written(found)
        assert (change["inPlace"], change["admission"]["charge"]) == (AGENTS, WITH_AGENTS)
        assert len(made(found)) == 3
        for each in made(found):
            assert has_agent(each)
            assert orjson.loads(each["metadata"]["annotations"][labels.CHARGE])["cpu"] == 1001
            assert not measure.is_larger(each, each)

    def test_nothing_more_is_charged_once_the_pods_exist(self) -> None:
        begun = decide(see(job()), AUTO)
        found = decide(see(act(begun, job()), *views(begun)), AUTO)
        assert (kinds(found), found.actions) == ([], ())

    def test_coordinator_and_worker_agree_on_the_charge_while_the_job_is_admitted(self) -> None:
        admitted = act(decide(see(job()), AUTO), job())
        assert admitted.admission is not None
        assert admitted.charge_of(2) == admitted.charge == admitted.admission.charge == WITH_AGENTS
        assert admitted.worker_share == {"pods": 1, "cpu": 1001, "memory": 2**24}

    def test_job_that_waits_again_does_not_wait_for_the_room_of_its_agents(self) -> None:
        admitted = act(decide(see(job()), AUTO), job())
        waits = replace_status(admitted, statuses.requeue_late(admitted, 1.0, 5, NOW))
        assert (waits.charge, waits.status.in_place) == (CHARGE, None)
        twice = replace_status(waits, statuses.requeue_late(waits, 1.0, 5, NOW))
        assert twice.charge == CHARGE
        again = replace(see(waits), reservation=replace(RESERVATION, attempt=2))
        assert decide(again, AUTO).actions[0] == RaiseCharge(2, WITH_AGENTS)

    def test_what_webhooks_have_added_to_pods_is_charged_with_and_without_agents(self) -> None:
        injected = tuple(replace(each, requests=(("cpu", 1501), ("memory", 2**24), ("pods", 1))) for each in all_pods())
        described = running()
        found = decide(see(described, *injected), AUTO)
        assert found.actions[0] == RaiseCharge(1, WITH_AGENTS | {"cpu": 4503})
        larger = act(found, described)
        assert larger.charge["cpu"] == 4503
        declined = act(decide(see(larger, *injected, met=InvalidPod("too small")), AUTO), larger)
        for waits in (larger, declined):
            for _ in range(2):
                waits = replace_status(waits, statuses.requeue_late(waits, 1.0, 5, NOW))  # noqa: PLW2901
                assert waits.charge["cpu"] == 4500

    @pytest.mark.parametrize("limit", ["quota", "cohort", "pool"])
    def test_job_without_room_for_its_agents_runs_without_them_from_now_on(self, limit: Any) -> None:
        found = decide(see(job(), met=NoRoom(limit)), AUTO)
        change = written(found)
        assert (change["inPlace"]["driver"], change["inPlace"]["settled"]) == ("recreate", True)
        assert change["inPlace"]["message"].endswith("has no room for restart agents")
        assert (change["admission"]["charge"], change.get("measured")) == (CHARGE, None)
        assert [has_agent(each) for each in made(found)] == [False] * 3
        later = act(found, job())
        assert later.charge == CHARGE, "the next admission is not charged for agents"
        again = decide(see(later, *views(found)[:2]), AUTO)
        assert [has_agent(each) for each in made(again)] == [False]
        assert "RaiseCharge" not in kinds(again)

    @pytest.mark.parametrize(
        ("settings", "obstacle", "driver", "policy"),
        [
            (AUTO, "", "kubernetes", "Never"),
            (AUTO, OLD_NODE, "recreate", "Never"),
            (KRUISE, "", "kubernetes", "Never"),
            (KRUISE, OLD_NODE, "kruise", "OnFailure"),
            (replace(KRUISE, in_place="kubernetes"), OLD_NODE, "recreate", "Never"),
            (replace(AUTO, in_place="kruise"), "", "kruise", "OnFailure"),
            (replace(AUTO, in_place="recreate"), "", "", "Never"),
            (replace(AUTO, in_place="local"), "", "", "Never"),
        ],
    )
    def test_driver_follows_from_the_setting_and_from_what_there_is(
        self, settings: ReconcileSettings, obstacle: str, driver: str, policy: str
    ) -> None:
        found = decide(see(job(), obstacle=obstacle), settings)
        chosen = written(found).get("inPlace") or {"driver": ""}
        assert chosen["driver"] == driver
        assert chosen.get("message", "") == (obstacle if settings.in_place in ("auto", "kubernetes") else "")
        assert {each["spec"]["restartPolicy"] for each in made(found)} == {policy}

    def test_without_pods_of_its_own_nothing_is_chosen(self) -> None:
        found = decide(see(job()), replace(AUTO, make_pods=False))
        assert kinds(found) == ["WriteStatus"]
        assert "inPlace" not in written(found)


class TestLater:
    def test_pods_after_an_old_node_has_come_are_made_without_agents(self) -> None:
        found = decide(see(running(), *all_pods()[:2], obstacle=OLD_NODE), AUTO)
        assert [has_agent(each) for each in made(found)] == [False]
        change = written(found)
        assert (change["inPlace"]["driver"], change["inPlace"]["message"]) == ("recreate", OLD_NODE)
        assert "admission" not in change, "a charge never falls while a job runs"
        later = act(found, running())
        assert later.charge == WITH_AGENTS, "two pods still have their agents"
        assert replace_status(later, statuses.requeue_late(later, 1.0, 5, NOW)).charge == CHARGE

    def test_an_old_node_changes_nothing_while_no_pod_is_missing(self) -> None:
        assert kinds(decide(see(running(), *all_pods(), obstacle=OLD_NODE), AUTO)) == []

    def test_job_of_an_earlier_version_gets_agents_with_its_next_pods_and_is_charged_first(self) -> None:
        found = decide(see(job(status=status("Running")), *all_pods()[:2]), AUTO)
        assert kinds(found) == ["RaiseCharge", "WriteStatus", "CreatePods"]
        assert [has_agent(each) for each in made(found)] == [True]

    def test_pods_larger_than_their_charge_are_settled_before_agents(self) -> None:
        large = replace(all_pods()[0], requests=(("cpu", 5000), ("pods", 1)))
        found = decide(see(job(status=status("Running")), large, met=NoRoom("quota")), AUTO)
        assert deleted(found), "there is no room even for the pods"


REFUSALS: list[Obstacle] = [
    InvalidPod("pod digits-worker-1: spec.initContainers[0]: too small"),
    OverQuota("cpus", {"cpu": "3"}, "exceeded quota: cpus"),
    Blocker("PodsForbidden", "minimum memory usage per Container is 1Gi"),
]


class TestRefusals:
    @pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
    def test_pods_that_the_server_refuses_with_agents_are_tried_without(self, refusal: Obstacle) -> None:
        described = running()
        found = decide(see(described, *all_pods()[:2], met=refusal), AUTO)
        assert (kinds(found), found.requeue_after) == (["WriteStatus"], 0.0)
        without = written(found)["inPlace"]
        assert (without["driver"], without["settled"]) == ("recreate", True)
        assert without["message"].startswith("refused with a restart agent: ")
        again = decide(see(act(found, described), *all_pods()[:2]), AUTO)
        assert [has_agent(each) for each in made(again)] == [False]

    @pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: type(each).__name__)
    def test_pods_that_the_server_refuses_without_agents_are_told_as_ever(self, refusal: Obstacle) -> None:
        bare = job(status=status("Running", inPlace={"driver": "recreate", "message": OLD_NODE}))
        found = decide(see(bare, *all_pods()[:2], met=refusal), AUTO)
        assert written(found)["conditions"], kinds(found)

    def test_job_whose_pods_no_node_could_hold_is_tried_again_without_agents(self) -> None:
        begun = running()
        late = statuses.vacate(begun, LATE, "not all of its pods ran in time", NOW)
        waits = [replace(each, phase="Pending", problem="Unschedulable: 0/2 nodes") for each in all_pods()]
        after = choice.decline_unbound(begun, late, waits, AUTO)
        assert after.in_place is not None
        assert (after.in_place.driver, after.in_place.settled) == ("recreate", True)
        bound = [replace(each, node="n1") for each in waits]
        assert choice.decline_unbound(begun, late, bound, AUTO).in_place == begun.status.in_place
        assert choice.decline_unbound(begun, begun.status, waits, AUTO) == begun.status, (
            "the job gives its room back for another reason"
        )


WHY = 'exec: "sh": executable file not found in $PATH'


class TestAgentsThatCannotRun:
    def test_pods_that_wait_for_their_agents_are_replaced_without_a_count(self) -> None:
        unable = [replace(each, phase="Pending", agent_failure=WHY, problem=WHY) for each in all_pods()]
        described = running()
        found = decide(see(described, *unable), AUTO)
        change = written(found)
        assert (change["inPlace"]["driver"], change["inPlace"]["settled"]) == ("recreate", True)
        assert change["inPlace"]["message"] == f"the restart agent of pod digits-master-0 cannot run: {WHY}"
        assert change["replacing"] == ["master-0", "worker-0", "worker-1"]
        assert [each.reason for each in found.actions if isinstance(each, EmitEvent)] == ["NoRestartAgent"]
        later = act(found, described)
        gone = decide(see(later, *unable), AUTO)
        assert deleted(gone) == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
        assert (later.status.restart_count, later.status.disruptions) == (0, 0)
        again = decide(see(later), AUTO)
        assert [has_agent(each) for each in made(again)] == [False] * 3
        counted = act(again, later).status
        assert (counted.restart_count, counted.disruptions) == (0, 0)

    def test_pod_that_is_found_later_is_replaced_too(self) -> None:
        settled = running(AGENTS | {"driver": "recreate", "message": WHY, "settled": True}, replacing=["master-0"])
        late = pod("Worker", 0, "Pending", agent_failure=WHY)
        assert written(decide(see(settled, *all_pods()[:1], late), AUTO))["replacing"] == ["master-0", "worker-0"]

    def test_pod_that_trains_goes_on_and_only_the_next_have_no_agent(self) -> None:
        trains = [replace(each, agent_failure="exit code 127") for each in all_pods()]
        found = decide(see(running(), *trains), AUTO)
        assert written(found)["inPlace"]["settled"] is True
        assert "replacing" not in written(found)
        assert kinds(decide(see(act(found, running()), *trains), AUTO)) == []


def test_plan_without_an_observation_of_nodes_makes_no_agents() -> None:
    found = plan(observe(job()), AUTO, NOW)
    assert [has_agent(each) for each in made(found)] == [False] * 3


@pytest.mark.parametrize(
    "driver", [AGENTS, {"driver": "recreate", "message": OLD_NODE}, {"driver": "kruise", "message": OLD_NODE}]
)
def test_choice_stays_where_an_observation_does_not_tell_whether_nodes_can(driver: dict[str, Any]) -> None:
    settings = KRUISE if driver["driver"] == "kruise" else AUTO
    described = running(driver)
    assert described.admission is not None
    unknown = see(described, *all_pods()[:2], obstacle=NOT_ASKED)
    found = choice.choose(described, described.admission, Moment(unknown, settings, NOW)).in_place
    assert found is not None
    assert (found.driver, found.message) == (driver["driver"], driver.get("message", ""))
