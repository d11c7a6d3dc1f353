"""Repeated reconciles settle from any state and never do anything forbidden."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from crds.api_resources import RECREATE_REQUESTS
from crds.labels import RESTART_REQUEST
from crds.torchjob import torchjob
from reconcilers.pods import task_members
from reconcilers.settings import ReconcileSettings
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers.builders import ADMISSION, NOW, RESERVATION, manifest, pod, status, task
from tests.support.reconcilers.simulation import Simulation

pytestmark = pytest.mark.proof

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
SHAPES: tuple[dict[str, Any], ...] = (
    {"Master": task(), "Worker": task(2)},
    {"Trainer": task(2, restartPolicy="ExitCode"), "Board": task(restartPolicy="Always")},
    {
        "Prepare": task(),
        "Master": task(dependsOn=[{"taskType": "Prepare", "phase": "Succeeded"}]),
        "Worker": task(2, dependsOn=[{"taskType": "Master"}]),
        "Evaluate": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}]),
    },
)
ends = st.sampled_from([(None, ""), (None, "Evicted"), (0, ""), (1, "Error"), (137, "OOMKilled"), (128, "StartError")])


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a job that was not reconciled yet."""
    return manifest(
        copy.deepcopy(draw(st.sampled_from(SHAPES))),
        restartScope=draw(st.sampled_from(["Job", "Task"])),
        cleanPodPolicy=draw(st.sampled_from(["Running", "All", "None"])),
        backoffLimit=draw(st.integers(0, 3)),
        suspend=draw(st.booleans()),
        activeDeadlineSeconds=draw(st.sampled_from([1, 10**6])),
        ttlSecondsAfterFinished=draw(st.sampled_from([0, 10**6])),
        annotations=draw(asked_for),
    )


@st.composite
def statuses(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a status that earlier reconciles may have written."""
    phase = draw(st.sampled_from(["", "Queued", "Admitted", "Running", "Suspended", "Succeeded", "Failed"]))
    attempt = draw(st.integers(1, 2))
    found = status(
        phase,
        restartCount=draw(st.integers(0, 2)),
        restartGeneration=draw(st.integers(0, 2)),
        recreateGeneration=draw(st.integers(0, 2)),
        disruptions=draw(st.integers(0, 2)),
        attempt=attempt,
    )
    return found | ({"admission": ADMISSION | {"attempt": attempt}} if "admission" in found else {})


@st.composite
def pods_of(draw: st.DrawFn, names: list[str]) -> dict[str, PodView]:
    """Draw pods with any history and some of the job's pod names."""
    found = {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        _, task_type, index = name.split("-")
        exit_code, reason = draw(ends)
        found[name] = pod(
            task_type,
            int(index),
            draw(st.sampled_from(PHASES)),
            attempt=draw(st.integers(0, 3)),
            restart=draw(st.integers(0, 2)),
            deleting=draw(st.booleans()),
            exit_code=exit_code,
            reason=reason,
            **draw(circumstances),
        )
    return found


circumstances = st.fixed_dictionaries(
    {
        "node": st.sampled_from(["", "n1", "n2"]),
        "deadline": st.sampled_from([None, NOW.timestamp() - 1000, NOW.timestamp() + 20]),
        "has_finalizers": st.booleans(),
        "grace": st.sampled_from([None, 0, 30, 7200, 2**62]),
        "self_healing": st.booleans(),
        "restarts": st.integers(0, 2),
        "counted_restarts": st.integers(0, 2),
        "has_restart_agent": st.booleans(),
        "requested_restart": st.sampled_from(["", "0", "1", "2", "1/0", "2/1", str(10**15), f"{10**15}/0"]),
        "restart_requested_at": st.sampled_from([None, NOW.timestamp() - 1000, NOW.timestamp() - 5]),
        "completed_restart": st.sampled_from(["", "1", "2"]),
        "failed_restart": st.sampled_from(["", "1: PodFinished", "2: PodFinished"]),
    }
)


@st.composite
def requests_of(draw: st.DrawFn, pods: dict[str, PodView]) -> dict[str, RecreateView]:
    """Draw requests in any state for existing and for deleted pods."""
    found = {}
    for index, each in enumerate(draw(st.lists(st.sampled_from(sorted(pods)), unique=True)) if pods else ()):
        name = f"request-for-{each}"
        found[name] = RecreateView(
            namespace="team",
            name=name,
            uid=f"request-{index}",
            job_uid="job",
            pod=each,
            pod_uid=draw(st.sampled_from([pods[each].uid, "gone"])),
            generation=draw(st.integers(0, 2)),
            created=NOW.timestamp() - draw(st.sampled_from([1.0, 1000.0])),
            restarts=draw(st.integers(0, 2)),
            verdict=draw(st.sampled_from(["InProgress", "Done", "Failed"])),
        )
    return found


def settings_of(draw: Any) -> ReconcileSettings:
    return ReconcileSettings(
        in_place=draw(st.sampled_from(["auto", "recreate", "local", "kruise", "kubernetes"])),
        most_disruptions=draw(st.integers(0, 2)),
        node_failures=draw(st.integers(1, 2)),
        admission_timeout=0.0,
        served=frozenset({RECREATE_REQUESTS}),
    )


asked_for = st.sampled_from(
    [
        {},
        {RESTART_REQUEST: '{"id": "again"}'},
        {RESTART_REQUEST: '{"id": "again", "how": "Recreate"}'},
        {RESTART_REQUEST: '{"id": "again", "task": "Worker", "how": "InPlace"}'},
        {RESTART_REQUEST: '{"id": "again", "task": "Master", "index": 0}'},
        {RESTART_REQUEST: '{"id": "again", "task": "Worker", "index": 1, "how": "Recreate"}'},
        {RESTART_REQUEST: "nonsense"},
    ]
)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_reconciles_from_any_state_settle(data: st.DataObject) -> None:
    described = data.draw(jobs()) | {"status": data.draw(statuses())}
    names = [*task_members.members(torchjob.parse(described), 1), "digits-worker-7"]
    reservation = data.draw(st.none() | st.integers(1, 3).map(lambda attempt: replace(RESERVATION, attempt=attempt)))
    there, pods = data.draw(st.sampled_from([described, None])), data.draw(pods_of(names))
    Simulation(
        there,
        pods,
        reservation,
        settings_of(data.draw),
        requests=data.draw(requests_of(pods)),
        dead=frozenset(data.draw(st.sets(st.just("n1")))),
    ).settle()


class Life(RuleBasedStateMachine):
    """A job, its owner, a node, a coordinator, and a worker that may crash between any two actions."""

    @initialize(data=st.data(), described=jobs(), address=st.sampled_from(["service", "loopback"]))
    def begin(self, data: st.DataObject, described: dict[str, Any], address: Any) -> None:
        self.world = Simulation(described, settings=replace(settings_of(data.draw), master_address=address))

    @rule()
    def reconcile(self) -> None:
        self.world.reconcile()

    @rule(most=st.integers(1, 2))
    def die_half_way(self, most: int) -> None:
        self.world.reconcile(most)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data(), phase=st.sampled_from(PHASES[1:]), end=ends)
    def a_pod_moves_on(self, data: st.DataObject, phase: str, end: tuple[int | None, str]) -> None:
        found = data.draw(st.sampled_from(sorted(self.world.pods.values(), key=lambda each: each.name)))
        if not found.finished:
            code, reason = end if phase == "Failed" else (None, "")
            self.world.pods[found.name] = replace(found, phase=phase, exit_code=code, reason=reason)

    @rule()
    def a_good_day(self) -> None:
        """Resume the job, reserve its resources, and start all its pods."""
        if self.world.manifest:
            self.world.manifest["spec"]["suspend"] = False
        self.the_coordinator_picks_or_releases()
        self.world.reconcile()
        for name, each in self.world.pods.items():
            started = {"phase": "Running", "node": "n1" if name.endswith("0") else "n2"}
            self.world.pods[name] = replace(each, **started) if each.phase == "Pending" else each
        self.world.reconcile()

    @rule(data=st.data(), most=st.integers(0, 2))
    def a_pod_fails_and_so_does_the_worker(self, data: st.DataObject, most: int) -> None:
        self.a_good_day()
        running = sorted(each.name for each in self.world.pods.values() if each.running)
        if running:
            name = data.draw(st.sampled_from(running))
            self.world.pods[name] = replace(self.world.pods[name], phase="Failed", exit_code=137)
            self.world.reconcile(most)

    @rule(data=st.data())
    def a_container_is_restarted_by_its_node(self, data: st.DataObject) -> None:
        running = sorted(each.name for each in self.world.pods.values() if each.running and each.self_healing)
        if running:
            found = self.world.pods[data.draw(st.sampled_from(running))]
            self.world.pods[found.name] = replace(found, restarts=found.restarts + 1, exit_code=137, reason="Error")

    @rule(data=st.data(), well=st.booleans())
    def what_was_asked_of_nodes_is_done(self, data: st.DataObject, well: bool) -> None:
        for name, each in self.world.pods.items():
            if each.running and each.requested_restart and data.draw(st.booleans()):
                done = (
                    {"completed_restart": each.requested_restart, "restarts": each.restarts + 1}
                    if well
                    else {"failed_restart": f"{each.requested_restart}: PodFinished"}
                )
                self.world.pods[name] = replace(each, **done)
        for name, request in self.world.requests.items():
            pod = self.world.pods.get(request.pod)
            if request.verdict == "InProgress" and pod is not None and data.draw(st.booleans()):
                self.world.requests[name] = replace(request, verdict="Done" if well else "Failed")
                self.world.pods[pod.name] = replace(pod, restarts=pod.restarts + well)

    @rule()
    def who_is_asked_to_end_saves_and_exits_with_0(self) -> None:
        for name in self.world.pods:
            self.world.stop(name)

    @rule(data=st.data())
    def a_pod_of_a_newer_version_has_an_agent(self, data: st.DataObject) -> None:
        for name, each in self.world.pods.items():
            if each.phase == "Pending" and data.draw(st.booleans()):
                self.world.pods[name] = replace(each, has_restart_agent=True, self_healing=False)

    @rule(dies=st.booleans())
    def a_node_dies_or_comes_back(self, dies: bool) -> None:
        self.world.dead = frozenset({"n1"}) if dies else frozenset()

    @rule(annotations=asked_for, number=st.integers(0, 9))
    def the_owner_asks_for_a_restart(self, annotations: dict[str, str], number: int) -> None:
        if self.world.manifest:
            asked = {name: text.replace("again", f"again-{number}") for name, text in annotations.items()}
            self.world.manifest["metadata"]["annotations"] = asked

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.pods)))
        self.world.pods[name] = replace(self.world.pods[name], deleting=True)

    @rule()
    def what_terminates_is_gone(self) -> None:
        self.world.pods = {name: each for name, each in self.world.pods.items() if not each.deleting}

    @rule(really=st.booleans())
    def the_owner_suspends_or_resumes(self, really: bool) -> None:
        if self.world.manifest and really:
            self.world.manifest["spec"]["suspend"] = not self.world.manifest["spec"]["suspend"]
            self.world.manifest["metadata"]["generation"] += 1

    @rule()
    def the_coordinator_picks_or_releases(self) -> None:
        job = self.world.job
        occupied = any(not each.finished for each in self.world.pods.values())
        if job is None or job.admission is None or job.is_finished:
            self.world.reservation = self.world.reservation if occupied else None
        if job and not (job.spec.suspend or job.is_finished or job.admission or self.world.reservation):
            self.world.reservation = replace(RESERVATION, attempt=job.status.attempt + 1)

    @rule()
    def a_rebuild_takes_the_room_back(self) -> None:
        self.world.reservation = None

    @rule(really=st.integers(0, 9).map(lambda number: number == 7))
    def the_job_is_deleted(self, really: bool) -> None:
        if really:
            self.world.manifest = None

    def teardown(self) -> None:
        self.world.settle()
        job = self.world.job
        if job is None or (job.spec.suspend and not job.is_finished):
            assert not self.world.pods
        elif not job.is_finished and self.world.reservation is None:
            assert job.admission is None
        elif not job.is_finished and job.admission is not None:
            assert {each.attempt for each in self.world.pods.values()} <= {job.admission.attempt}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
