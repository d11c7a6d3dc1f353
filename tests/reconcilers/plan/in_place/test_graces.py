"""The time that a planned restart gives containers that an agent restarts: time to save, their grace period, or
none.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crds import labels
from reconcilers.plan.in_place.requested import WITH_GRACE
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import AnnotateJob, DeletePods, EmitEvent, Observation, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers.builders import NOW, all_pods, job, observe, status, task, template
from tests.support.reconcilers.resizing import Resizing, resizing

AUTO = ReconcileSettings(in_place="auto")
PODS = all_pods(has_restart_agent=True)
SAVES: dict[str, Any] = {"schedulingPolicy": {"checkpointSeconds": 30}}
STATIC: dict[str, Any] = {"numMinReplicas": 1, "numMaxReplicas": 9, "mode": "InPlaceRestart"}
NUMBER = str(int(NOW.timestamp()))
SINCE = "2026-01-02T03:04:05Z"


def graceful(seconds: int) -> dict[str, Any]:
    made = template()
    made["spec"]["terminationGracePeriodSeconds"] = seconds
    return {"Master": task(template=made), "Worker": task(2, template=made, dependsOn=[])}


def asked(request: str, tasks: Any = None, note: dict[str, str] | None = None, **fields: Any) -> Any:
    spec = fields.pop("spec", {})
    notes = {labels.RESTART_REQUEST: request} | (note or {})
    return job(tasks, status("Running", **fields), notes, **spec)


def decide(of: Any, *pods: PodView, seconds: float = 0.0, **fields: Any) -> Plan:
    observed: Observation = replace(observe(of, *(pods or PODS)), **fields)
    return plan(observed, AUTO, NOW + timedelta(seconds=seconds))


def written(found: Plan) -> dict[str, Any]:
    changes = (each.change["status"] for each in found.actions if isinstance(each, WriteStatus))
    return {name: value for change in changes for name, value in change.items() if name != "taskStatuses"}


def restarted(found: Plan) -> list[str]:
    patches = (each for each in found.actions if isinstance(each, PatchPodMetadata))
    return [pod.name for each in patches for pod in each.pods]


def deleted(found: Plan) -> list[str]:
    return [pod.name for each in found.actions if isinstance(each, DeletePods) for pod in each.pods]


@pytest.mark.parametrize(
    "request_text", ['{"id": "a"}', '{"id": "a", "how": "InPlace"}', '{"id": "a", "task": "Worker"}']
)
def test_job_saves_before_its_owner_restarts_it(request_text: str) -> None:
    first = decide(asked(request_text, spec=SAVES))
    assert (written(first), first.actions[1:]) == ({"saving": {"request": "a", "since": SINCE}}, ())
    saving = {"saving": {"request": "a", "since": SINCE}}
    waits = decide(asked(request_text, spec=SAVES, **saving), seconds=5)
    assert waits == Plan((AnnotateJob({labels.CHECKPOINT_REQUESTED: NUMBER}),), requeue_after=25.0)
    note = {labels.CHECKPOINT_REQUESTED: NUMBER, labels.CHECKPOINT_COMPLETED: NUMBER}
    everyone = [pod.name for pod in PODS if "task" not in request_text or pod.task == "worker"]
    for done in (
        decide(asked(request_text, spec=SAVES, note=note, **saving), seconds=5),
        decide(asked(request_text, spec=SAVES, **saving), seconds=30),
        decide(asked(request_text, spec=SAVES, **saving), seconds=5, reported_save=int(NUMBER)),
    ):
        change = written(done)
        assert (change["restartRequest"], change["saving"], restarted(done)) == ("a", None, everyone)


def test_save_that_is_under_way_counts_for_a_second_request() -> None:
    open_ = {"saving": {"request": "before", "since": SINCE}}
    assert written(decide(asked('{"id": "a"}', spec=SAVES, **open_), seconds=5)) == {}
    late = written(decide(asked('{"id": "a"}', spec=SAVES, **open_), seconds=30))
    assert late == {"saving": {"request": "a", "since": "2026-01-02T03:04:35Z"}}


@pytest.mark.parametrize(
    ("request_text", "seconds", "in_place"),
    [
        ('{"id": "a"}', 60, False),
        ('{"id": "a"}', 2, True),
        ('{"id": "a", "how": "InPlace"}', 60, True),
    ],
)
def test_pods_with_a_grace_are_replaced_unless_their_owner_wants_it_otherwise(
    request_text: str, seconds: int, in_place: bool
) -> None:
    found = decide(asked(request_text, graceful(seconds)))
    names = [pod.name for pod in PODS]
    assert (restarted(found), deleted(found)) == ((names, []) if in_place else ([], names))
    assert ("recreateGeneration" in written(found)) is not in_place
    told = next(each.message for each in found.actions if isinstance(each, EmitEvent))
    assert (WITH_GRACE in told) is not in_place


def test_single_pod_with_a_grace_is_replaced() -> None:
    found = decide(asked('{"id": "a", "task": "Worker", "index": 1}', graceful(60)))
    assert (written(found)["replacing"], restarted(found)) == (["worker-1"], [])


def test_owner_hears_of_pods_that_cannot_be_restarted_in_place() -> None:
    text = '{"id": "a", "task": "Worker", "how": "InPlace"}'
    found = decide(asked(text), PODS[0], PODS[1], replace(PODS[2], has_restart_agent=False))
    assert (restarted(found), written(found)["replacing"]) == (["digits-worker-0"], ["worker-1"])
    told = {each.reason: each.message for each in found.actions if isinstance(each, EmitEvent)}
    assert told["NotRestartedInPlace"].endswith(": digits-worker-1")


@pytest.mark.parametrize("tasks", [None, graceful(60)])
def test_pods_are_restarted_at_once_after_a_failure(tasks: Any) -> None:
    failed = replace(PODS[1], phase="Failed", exit_code=137)
    found = decide(job(tasks, status("Running"), **SAVES), PODS[0], failed, PODS[2])
    assert (restarted(found), deleted(found)) == (["digits-master-0", "digits-worker-1"], ["digits-worker-0"])


def test_pods_without_an_agent_are_asked_for_nothing() -> None:
    found = decide(asked('{"id": "a"}', graceful(60), spec=SAVES), *all_pods())
    assert (written(found)["restartRequest"], len(deleted(found))) == ("a", 3)


def test_pods_keep_their_grace_when_another_one_leaves_its_node() -> None:
    pods = (PODS[0], replace(PODS[1], node="n2"), PODS[2])
    leaving = {"n2": "is cordoned"}
    assert len(deleted(decide(job(graceful(60), status("Running")), *pods, departures=leaving))) == 3
    assert deleted(decide(job(status=status("Running")), *pods, departures=leaving)) == ["digits-worker-0"]


def growing(**spec: Any) -> Resizing:
    """Return a job of two workers with agents, whose third worker has reached its start gate."""
    found = resizing(2, **{"torchElasticPolicy": STATIC} | spec)
    found.settings = AUTO
    found.add_agents()
    found.want(3)
    found.work()
    found.give(3)
    found.work()
    found.run(2)
    return found


def test_growth_waits_until_the_others_have_saved() -> None:
    job = growing(**SAVES)
    job.now += timedelta(seconds=1)
    job.work()
    number = str(int(NOW.timestamp()) + 1)
    assert (job.notes[labels.CHECKPOINT_REQUESTED], job.known.status.restart_generation) == (number, 0)
    assert job.known.save_request == int(number)
    job.annotate({labels.CHECKPOINT_COMPLETED: number})
    job.work()
    job.work()
    status_after = job.known.status
    assert (status_after.restart_generation, status_after.phase, status_after.saving) == (1, "Running", None)
    assert job.known.save_request == 0


@pytest.mark.parametrize("seconds", [0, 60])
def test_growth_restarts_pods_in_place_unless_they_have_a_grace(seconds: int) -> None:
    made = template()
    if seconds:
        made["spec"]["terminationGracePeriodSeconds"] = seconds
    job = growing()
    assert job.manifest is not None
    job.manifest["spec"]["torchTaskSpecs"]["Worker"]["template"] = made
    before = {name: pod.uid for name, pod in job.pods.items()}
    for _ in range(4):
        job.work()
        job.end()
        job.run()
    after = {name: pod.uid for name, pod in job.pods.items()}
    kept = [name for name in before if after[name] == before[name]]
    assert (kept == list(before)) is not bool(seconds)
    assert "digits-worker-2" in kept, "the worker has run nothing yet"
    assert (job.known.status.phase, job.indexes()) == ("Running", [0, 1, 2])
    assert any(said.startswith("Scaled: from 2 to 3 workers") for said in job.events)


def test_growth_is_told_when_the_new_world_runs() -> None:
    job = growing()
    while job.known.status.restart_generation == 0:
        job.reconcile()
    assert not job.events
    job.work()
    job.work()
    assert [said.partition(" in ")[0] for said in job.events] == ["Scaled: from 2 to 3 workers"]


def test_removal_is_told_when_the_others_run_without_the_removed() -> None:
    job = resizing(3, torchElasticPolicy=STATIC)
    job.want(2)
    for _ in range(2):
        job.reconcile()  # the restart is requested, but the node has not made it yet
    job.end()
    for _ in range(3):
        job.reconcile()
    admission = job.known.admission
    assert admission is not None
    assert (admission.workers, job.events) == (2, [])
    job.serve()
    job.work()
    assert [said.partition(" in ")[0] for said in job.events] == ["Scaled: from 3 to 2 workers"]
    assert job.known.status.scaling is None
