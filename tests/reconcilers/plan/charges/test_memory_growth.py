"""Memory that grows after a pod was killed for using it up: the growth is charged before any pod has the memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from crds.api_resources import RECREATE_REQUESTS
from crds.torchjob.torchjob import TorchJob
from reconcilers.plan import grown_memory
from reconcilers.plan.plan import plan
from reconcilers.pods import measure
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, EmitEvent, NoMemory, Plan, RaiseCharge
from reconcilers.views import pod_view
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import builders
from tests.support.reconcilers.simulation import Simulation

GIB = 2**30
STATIC: dict[str, Any] = {}
SINGLE = {"restartScope": "Task"}
MINIMUM = {"restartScope": "Task", "minMembers": {"Worker": 1}}
ELASTIC = {"torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 4, "mode": "InPlaceRestart"}}
MEETING = {"torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 4}}
EVERY = [
    pytest.param(STATIC, id="static"),
    pytest.param(SINGLE, id="single"),
    pytest.param(MINIMUM, id="minimum"),
    pytest.param(ELASTIC, id="elastic"),
    pytest.param(MEETING, id="meeting"),
]


@dataclass
class Growing(Simulation):
    """A job of three workers, and a quota of memory. No pod is made for which the job is not charged."""

    quota: int = 100 * GIB
    events: list[str] = field(default_factory=list)

    @property
    def known(self) -> TorchJob:
        job = self.job
        assert job is not None
        return job

    def plan(self) -> Plan:
        found = super().plan()
        raises = [each for each in found.actions if isinstance(each, RaiseCharge)]
        if any(each.charge["memory"] > self.quota for each in raises):
            assert isinstance(found.actions[0], RaiseCharge), "no other action comes before there is room"
            found = plan(replace(self.observe(), obstacle=NoMemory("quota")), self.settings, self.now)
        return found

    def carry_out(self, action: Action) -> None:
        match action:
            case RaiseCharge(attempt, charge):
                assert self.reservation is not None
                assert attempt == self.reservation.attempt
                self.reservation = replace(self.reservation, charge=charge)
            case EmitEvent(reason, message):
                self.events.append(f"{reason}: {message}")
            case _:
                super().carry_out(action)
        self._check()

    def _write(self, change: Mapping[str, Any], resource_version: str) -> None:
        super()._write({name: value for name, value in change.items() if name != "queue"}, resource_version)

    def _check(self) -> None:
        """Check that the job pays for its pods, in the store and by its status."""
        asked = sum(dict(pod.requests)["memory"] for pod in self.pods.values() if pod_view.occupies(pod))
        assert self.reservation is not None
        assert asked <= self.reservation.charge["memory"]
        admission = self.known.admission
        assert admission is None or asked <= admission.charge["memory"] <= self.reservation.charge["memory"]

    def go(self) -> None:
        """Reconcile until nothing is left to do. Terminating pods disappear, and the others run."""
        for _ in range(40):
            acted = self.reconcile()
            self.pods = {
                name: replace(pod, phase="Running" if pod.phase == "Pending" else pod.phase, node="n1", shut_since=None)
                for name, pod in self.pods.items()
                if not pod.deleting
            }
            for name, pod in self.pods.items():
                if pod.requested_restart != pod.completed_restart:
                    self.pods[name] = replace(pod, completed_restart=pod.requested_restart)
            if not acted and not self.reconcile():
                return
        raise AssertionError(f"no end to it: {self.plan()}")

    def memory(self) -> dict[str, float]:
        """Return the memory that each running worker requests, in GiB."""
        return {
            name.removeprefix("digits-"): dict(pod.requests)["memory"] / GIB
            for name, pod in sorted(self.pods.items())
            if pod.task == "worker"
        }

    def kill(self, index: int, **how: Any) -> None:
        """Kill a worker that has used up its memory."""
        name = f"digits-worker-{index}"
        pod = self.pods[name]
        ends = {"phase": "Failed", "reason": "OOMKilled", "exit_code": 137, "ended": self.now.timestamp() - 60}
        self.pods[name] = replace(pod, **(ends | {"used_memory": dict(pod.requests)["memory"]} | how))


def started(spec: dict[str, Any], most: str = "6Gi", quota: float = 100, **settings: Any) -> Growing:
    """Return a job that runs with three workers of 2Gi each."""
    pod = builders.template(resources={"requests": {"cpu": "1"}, "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"}})
    store = builders.template(resources={"requests": {"memory": "1"}})
    tasks = {"Worker": builders.task(3, template=pod, memoryGrowth={"max": most})}
    if "torchElasticPolicy" in spec and "mode" not in spec["torchElasticPolicy"]:
        tasks["Rendezvous"] = builders.task(template=store)
    described = builders.manifest(tasks, **spec)
    job = builders.job(tasks, **spec)
    held = replace(builders.RESERVATION, charge=dict(job.charge), size=3 if spec in (MINIMUM, ELASTIC, MEETING) else 0)
    found = Growing(described, reservation=held, quota=int(quota * GIB), settings=ReconcileSettings(**settings))
    found.go()
    assert found.known.status.phase == "Running"
    assert set(found.memory().values()) == {2.0}
    return found


@pytest.mark.parametrize("spec", EVERY)
def test_memory_grows_and_is_charged_before_a_pod_has_it(spec: dict[str, Any]) -> None:
    found = started(spec, in_place="local")
    before = found.reservation
    assert before is not None
    found.kill(1)
    found.go()
    assert found.known.status.memory == {"Worker": 3 * GIB}
    whole = found.known.spec.scope == "Job"
    assert found.memory() == {"worker-0": 3.0 if whole else 2.0, "worker-1": 3.0, "worker-2": 3.0 if whole else 2.0}
    assert found.reservation is not None
    assert found.reservation.charge == {**before.charge, "memory": before.charge["memory"] + 3 * GIB}
    assert (found.known.status.phase, found.known.status.restart_count) == ("Running", 1)
    assert "MemoryGrown: a pod of Worker used up its memory: the next ones get 3Gi" in found.events


@pytest.mark.parametrize("spec", EVERY)
def test_without_room_for_more_memory_no_pod_is_made_until_there_is_some(spec: dict[str, Any]) -> None:
    found = started(spec, quota=8.5, in_place="local")
    found.kill(1)
    found.go()
    assert "worker-1" not in found.memory()
    assert found.plan().actions == ()
    assert 0 < (found.plan().requeue_after or 0) <= grown_memory.TRY_AGAIN, "the job tries again later"
    (told,) = (each for each in found.known.status.conditions if each.reason == "NoRoomForMemory")
    assert told.message == (
        "a pod used up its memory: the next ones get 3Gi of memory for Worker, 3Gi more in all; "
        "the quota of queue team has no room for that"
    )
    found.quota = 9 * GIB + 1
    found.go()
    assert found.memory()["worker-1"] == 3.0
    assert found.known.status.phase == "Running"
    assert not any(each.reason == "NoRoomForMemory" for each in found.known.status.conditions)
    assert found.known.status.restart_count == 1, "the wait is no failure"


def test_job_that_cannot_run_without_more_memory_waits_in_its_queue_at_last() -> None:
    found = started(SINGLE, quota=8.5, admission_timeout=100)
    found.kill(1)
    found.go()
    assert found.known.status.phase == "Admitted"
    found.now += timedelta(seconds=101)
    found.go()
    waiting = found.known
    assert (waiting.status.phase, waiting.admission, len(found.pods)) == ("Queued", None, 0)
    (told,) = (each for each in waiting.status.conditions if each.type == "Queued" and each.status == "True")
    assert (told.reason, "queue team has no room for that" in told.message) == ("NotRunningInTime", True)
    assert waiting.charge["memory"] == 9 * GIB


def test_memory_grows_up_to_its_maximum_and_then_counts_as_any_failure() -> None:
    found = started(SINGLE, most="4Gi")
    for expected in (3.0, 4.0, 4.0):
        found.kill(1)
        found.go()
        found.now += timedelta(seconds=100)
        found.go()
        assert found.memory()["worker-1"] == expected
    assert found.known.status.memory == {"Worker": 4 * GIB}
    assert found.known.status.restart_count == 3


def test_pods_from_before_the_growth_do_not_make_it_grow_further() -> None:
    found = started(SINGLE)
    found.kill(1)
    found.go()
    found.kill(2)
    found.now += timedelta(seconds=100)
    found.go()
    found.now += timedelta(seconds=100)
    found.go()
    assert found.memory() == {"worker-0": 2.0, "worker-1": 3.0, "worker-2": 3.0}


@pytest.mark.parametrize(
    "how", [{"used_memory": 0, "reason": "Error"}, {"phase": "Failed", "reason": "Evicted", "used_memory": 0}]
)
def test_other_failures_leave_the_memory_as_it_is(how: dict[str, Any]) -> None:
    found = started(SINGLE)
    found.kill(1, **how)
    found.go()
    assert found.known.status.memory == {}
    assert found.memory()["worker-1"] == 2.0


def test_pod_that_its_node_restarts_is_replaced_by_one_with_more_memory() -> None:
    found = started(SINGLE, in_place="kruise")
    name = "digits-worker-1"
    uid = found.pods[name].uid
    found.kill(1, phase="Running", restarts=1)
    found.go()
    assert found.pods[name].uid != uid
    assert found.memory()["worker-1"] == 3.0


def test_job_that_waits_again_asks_for_its_grown_memory() -> None:
    found = started(ELASTIC)
    share = found.known.worker_share["memory"]
    found.kill(1)
    found.go()
    assert found.manifest is not None
    found.manifest["spec"]["suspend"] = True
    found.go()
    waiting = found.known
    assert (waiting.status.phase, waiting.admission) == ("Suspended", None)
    assert (share, waiting.worker_share["memory"]) == (2 * GIB, 3 * GIB)
    assert waiting.charge["memory"] == 9 * GIB
    assert waiting.least_charge["memory"] == 3 * GIB


def test_view_shows_the_memory_of_a_main_container_that_used_it_up() -> None:
    def view(container: str, reason: str) -> PodView:
        state = {"terminated": {"exitCode": 137, "reason": reason, "finishedAt": "2026-01-01T00:00:00Z"}}
        pod = builders.template(resources={"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}})
        pod["spec"]["containers"].append({"name": "log"})
        described = {"metadata": {"name": "a", "namespace": "b", "uid": "u"}, **pod}
        return pod_view.trim(
            {**described, "status": {"phase": "Failed", "containerStatuses": [{"name": container, "state": state}]}}
        )

    assert view("torch", "OOMKilled").used_memory == 2 * GIB
    assert view("torch", "Error").used_memory == 0
    assert view("log", "OOMKilled").used_memory == 0


def test_pod_that_its_node_would_restart_as_it_was_is_not_left_to_it() -> None:
    found = started(STATIC, quota=8.5, in_place="kruise", served=frozenset({RECREATE_REQUESTS}))
    found.kill(1, phase="Running", restarts=1)
    found.go()
    assert "worker-1" not in found.memory()


def test_pods_that_the_api_server_made_larger_are_found_while_their_task_waits_for_more_memory() -> None:
    found = started(SINGLE, quota=8.5)
    found.kill(1)
    found.go()
    job, admission = found.known, found.known.admission
    assert admission is not None
    larger = replace(found.pods["digits-worker-0"], requests=(("memory", 5 * GIB // 2), ("pods", 1)))
    excess = measure.find_excess(job, admission.charge, [larger])
    assert excess is not None
    assert excess.charge["memory"] == 15 * GIB // 2
