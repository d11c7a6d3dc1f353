"""From any state of a job, reconciles do nothing forbidden and reach an end."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crds import labels
from crds.api_resources import POD_GROUPS, RECREATE_REQUESTS
from crds.errors import InvalidObject
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from gang import backends
from gang.values import GroupView
from kube.api import Manifest
from reconcilers.pods import task_members
from reconcilers.settings import ReconcileSettings
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers.anywhere import Anywhere
from tests.support.reconcilers.builders import ADMISSION, KEY, NOW, RESERVATION, manifest, pod, status, task

NAMES = ("Master", "Worker", "AIMaster", "Prepare", "Evaluate")
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
ENDS = ((None, ""), (None, "Evicted"), (0, ""), (1, "Error"), (137, "OOMKilled"), (128, "StartError"), (139, "Error"))
TIME = "2026-01-02T03:00:00Z"


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw one to four tasks with dependencies that form no cycle."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    found: dict[str, Any] = {}
    for place, name in enumerate(names):
        count = draw(st.integers(1, 3))
        upstreams = draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=2)) if place else []
        phases = [
            draw(st.sampled_from(["Running", "Succeeded"])) if found[each]["restartPolicy"] != "Always" else "Running"
            for each in upstreams
        ]
        found[name] = task(
            count,
            dependsOn=[{"taskType": each, "phase": phase} for each, phase in zip(upstreams, phases, strict=True)],
            auxiliary=draw(st.sampled_from([False, False, True])),
            critical=draw(st.booleans()),
            restartPolicy=draw(st.sampled_from(["OnFailure", "ExitCode", "Never", "Always"])),
            spotTaskSpec={"numSpotTasks": draw(st.integers(0, count)), "labels": {"spot": "yes"}},
        )
    return found


@st.composite
def jobs(draw: st.DrawFn) -> Manifest:
    """Draw a job that was not reconciled yet."""
    graph = draw(graphs())
    least = {name: draw(st.integers(1, each["numTasks"])) for name, each in graph.items() if draw(st.booleans())}
    elastic = {"torchElasticPolicy": {"numMinReplicas": 1, "numMaxReplicas": 3}} if "Worker" in graph else {}
    described = manifest(
        graph,
        minMembers=least,
        restartScope=draw(st.sampled_from(["Job", "Task"])),
        cleanPodPolicy=draw(st.sampled_from(["Running", "All", "None"])),
        backoffLimit=draw(st.sampled_from([0, 2, 9])),
        suspend=draw(st.sampled_from([False, False, True])),
        activeDeadlineSeconds=draw(st.sampled_from([10**6, 10**6, 10**6, 1])),
        ttlSecondsAfterFinished=draw(st.sampled_from([0, 10**6])),
        schedulingPolicy={"gangScheduler": draw(st.sampled_from(["volcano", "none", ""]))},
        **(elastic if draw(st.booleans()) else {}),
    )
    try:
        torchjob.parse(copy.deepcopy(described))
    except InvalidObject:
        assume(False)
    return described


@st.composite
def statuses(draw: st.DrawFn, job: TorchJob, pods: dict[str, PodView]) -> Manifest:
    """Draw a status that earlier reconciles may have written."""
    attempt, generation = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    found = status(
        draw(st.sampled_from(["Admitted", "Running", "Queued", "", "Admitted", "Running", "Suspended", "Failed"])),
        restartCount=draw(st.integers(0, 2)),
        disruptions=draw(st.integers(0, 2)),
        restartGeneration=generation,
        recreateGeneration=draw(st.integers(0, generation)),
        attempt=attempt,
        replacing=draw(st.lists(st.sampled_from([each.uid for each in pods.values()] or ["gone"]), unique=True)),
        restartRequest=draw(st.sampled_from(["", "again"])),
        nodeFailures={"n1": draw(st.integers(0, 2))},
    )
    if "admission" in found:
        scheduler = draw(st.sampled_from(["none", "volcano"]))
        found["admission"] = ADMISSION | {"attempt": attempt, "gangScheduler": scheduler}
        begun = [each for each in job.spec.stages if each.awaits and draw(st.booleans())]
        found["stages"] = {str(each.index): {"began": TIME} for each in begun}
        found["taskStatuses"] = {each: {"ready": draw(st.integers(0, 1))} for each in job.spec.tasks}
    return found


@st.composite
def pods_of(draw: st.DrawFn, names: list[str]) -> dict[str, PodView]:
    """Draw pods with any history, with names of the job and one unexpected name."""
    found = {}
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        _, task_type, index = name.split("-")
        exit_code, reason = draw(st.sampled_from(ENDS))
        phase = draw(st.sampled_from(PHASES))
        found[name] = pod(
            task_type,
            int(index),
            phase,
            uid=f"found-{name}",
            attempt=draw(st.sampled_from([-1, 0, 1, 1, 1, 2])),
            restart=draw(st.integers(0, 2)),
            deleting=draw(st.sampled_from([False, False, True])),
            shut_since=0.0 if phase == "Pending" and draw(st.booleans()) else None,
            has_running_containers=phase in ("Succeeded", "Failed") and draw(st.booleans()),
            node=draw(st.sampled_from(["n1", "n2"])) if phase != "Pending" else "",
            exit_code=exit_code if phase == "Failed" else None,
            reason=reason if phase == "Failed" else "",
            **draw(circumstances),
        )
    return found


circumstances = st.fixed_dictionaries(
    {
        "deadline": st.sampled_from([None, NOW.timestamp() - 1000, NOW.timestamp() + 20]),
        "self_healing": st.booleans(),
        "has_restart_agent": st.booleans(),
        "restarts": st.integers(0, 2),
        "counted_restarts": st.integers(0, 2),
        "requested_restart": st.sampled_from(["", "", "1", "2", "1/0", "2/1"]),
        "restart_requested_at": st.sampled_from([None, NOW.timestamp() - 1000, NOW.timestamp() - 5]),
        "completed_restart": st.sampled_from(["", "1", "2"]),
    }
)


def group(name: str, attempt: int, size: int, phase: str) -> Manifest:
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": name,
            "namespace": KEY.namespace,
            "uid": f"found-{name}",
            "resourceVersion": "1",
            "labels": {labels.JOB_UID: KEY.uid, labels.JOB_NAME: KEY.name, labels.ATTEMPT: str(attempt)},
            "ownerReferences": [{"uid": KEY.uid, "controller": True}],
        },
        "spec": {"minMember": size},
        "status": {"phase": phase},
    }


@st.composite
def groups_of(draw: st.DrawFn) -> tuple[dict[str, GroupView], dict[str, Manifest]]:
    """Draw groups of any attempt, size and phase, including groups for stages that the job does not have."""
    names = draw(st.lists(st.sampled_from(["digits-0", "digits-1", "digits-2", "digits-9"]), unique=True, max_size=3))
    phases = st.sampled_from(["Pending", "Inqueue", "Running", "Unknown", "Completed"])
    bodies = {name: group(name, draw(st.integers(0, 2)), draw(st.integers(1, 9)), draw(phases)) for name in names}
    deleting = draw(st.sets(st.sampled_from(names))) if names else set()
    views = {name: backends.get_backend("volcano").trim(body) for name, body in bodies.items()}
    return {name: replace(each, deleting=name in deleting) for name, each in views.items()}, bodies


@st.composite
def requests_of(draw: st.DrawFn, pods: dict[str, PodView]) -> dict[str, RecreateView]:
    """Draw requests in any state for existing and for deleted pods."""
    found = {}
    for each in draw(st.lists(st.sampled_from(sorted(pods)), unique=True)) if pods else ():
        name = f"request-for-{each}"
        found[name] = RecreateView(
            namespace=KEY.namespace,
            name=name,
            uid=name,
            job_uid=KEY.uid,
            pod=each,
            pod_uid=draw(st.sampled_from([pods[each].uid, "gone"])),
            generation=draw(st.integers(0, 2)),
            created=NOW.timestamp() - draw(st.sampled_from([1.0, 1000.0])),
            restarts=draw(st.integers(0, 2)),
            verdict=draw(st.sampled_from(["InProgress", "Done", "Failed"])),
        )
    return found


@st.composite
def worlds(draw: st.DrawFn) -> Anywhere:
    """Draw any job in any state."""
    described = draw(jobs())
    job = torchjob.parse(copy.deepcopy(described))
    names = [*task_members.members(job, 1), f"digits-{next(iter(job.spec.tasks)).lower()}-9"]
    pods = draw(pods_of(names))
    groups, bodies = draw(groups_of())
    asked = draw(st.sampled_from(['{"id": "again"}', '{"id": "more", "task": "Worker"}', "", "nonsense"]))
    described["status"] = draw(statuses(job, pods))
    # A pod exists only under a written admission, and the admission is removed only after its pods are deleted.
    newest = described["status"]["attempt"] - ("admission" not in described["status"])
    # A worker creates pods of a restart only after it has written the generation of that restart.
    generation = described["status"].get("restartGeneration", 0)
    pods = {
        name: replace(each, attempt=min(each.attempt, newest), restart=min(each.restart, generation))
        for name, each in pods.items()
    }
    described["metadata"]["annotations"] = {labels.RESTART_REQUEST: asked} if asked else {}
    chosen = ReconcileSettings(
        gang_scheduler=draw(st.sampled_from(["none", "volcano"])),
        in_place=draw(st.sampled_from(["auto", "recreate", "local", "kruise", "kubernetes"])),
        pods_at_once=draw(st.booleans()),
        most_disruptions=draw(st.integers(2, 4)),
        node_failures=draw(st.integers(1, 3)),
        admission_timeout=0.0,
        served=draw(st.sampled_from([frozenset(), frozenset({RECREATE_REQUESTS})])),
    )
    return Anywhere(
        described,
        pods,
        draw(st.none() | st.integers(1, 3).map(lambda attempt: replace(RESERVATION, attempt=attempt))),
        chosen,
        requests=draw(requests_of(pods)),
        dead=frozenset(draw(st.sets(st.just("n1")))),
        groups=groups,
        bodies=bodies,
    )


@pytest.mark.proof
@given(world=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_reconciles_from_any_state_reach_a_steady_state(world: Anywhere, data: st.DataObject) -> None:
    world.refresh_cache()
    for most in data.draw(st.lists(st.sampled_from([0, 1, 2, 100]), max_size=4)):
        world.reconcile_late(most)
    world.settle()


@pytest.mark.proof
@given(world=worlds(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_job_in_any_state_finishes_once_its_pods_finish(world: Anywhere, data: st.DataObject) -> None:
    job = world.job
    assert job is not None
    assume(task_members.decisive_tasks(job) and not job.spec.suspend)
    for most in data.draw(st.lists(st.sampled_from([0, 1, 2, 100]), max_size=6)):
        if data.draw(st.booleans()):
            world.refresh_cache()
        if data.draw(st.booleans()):
            world.nature()
        world.reconcile_late(most)
    world.live()
    world.settle()
    assert all(each.deleting for each in world.groups.values()), "the groups would hold the room that they requested"


def test_plan_that_writes_newer_admission_resets_stages_and_counts() -> None:
    graph = {
        "Master": task(),
        "Worker": task(dependsOn=[{"taskType": "Master", "phase": "Running"}]),
        "Evaluate": task(dependsOn=[{"taskType": "Master", "phase": "Succeeded"}]),
    }
    before = status(
        "Admitted",
        admission={**ADMISSION, "gangScheduler": "none"},
        stages={"1": {"began": TIME}},
        taskStatuses={"Worker": {"ready": 1}},
    )
    world = Anywhere(manifest(graph, before), reservation=replace(RESERVATION, attempt=2))
    world.reconcile()
    assert sorted(world.pods) == ["digits-master-0"]


def test_new_gang_admission_does_not_take_over_pods_of_previous_one() -> None:
    """Pods of the first admission still exist after its deadline. The group of the second admission is never
    admitted.
    """
    described = manifest(
        {"Worker": task(3)},
        status("Admitted"),
        activeDeadlineSeconds=1,
        schedulingPolicy={"gangScheduler": "volcano"},
    )
    pods = {f"digits-worker-{index}": pod("Worker", index, "Pending", attempt=-1) for index in range(2)}
    world = Anywhere(described, pods, replace(RESERVATION, attempt=2))
    world.settle()
    assert world.job is not None
    assert (world.job.status.attempt, world.job.status.phase) == (2, "Failed")
    assert world.pods == {}, "no pod is created before its group is admitted"
