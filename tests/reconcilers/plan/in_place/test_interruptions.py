"""A pod that ends with 0 while torchq asks for its end proves no success, and no rank is left completed."""

from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.api_resources import RECREATE_REQUESTS
from reconcilers.plan.in_place import interruptions
from reconcilers.plan.plan import plan
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreateObject, DeletePods, EmitEvent, PatchPodMetadata, Plan, WriteStatus
from reconcilers.views.pod_view import PodView
from reconcilers.views.recreate_request import RecreateView
from tests.support.reconcilers.builders import KEY, NOW, UNDER_MASTER, all_pods, job, observe, status

T = NOW.timestamp()
MASTER, WORKER, OTHER = all_pods(self_healing=True)
ENDED = replace(MASTER, phase="Succeeded", exit_code=0, reason="Completed", ended=T)
RUNNING = job(status=status("Running", restartRequest="a", admission=UNDER_MASTER))
OPEN = RecreateView(
    namespace="team",
    name="digits-master-0-1",
    uid="request",
    job_uid=KEY.uid,
    pod="digits-master-0",
    pod_uid=MASTER.uid,
    generation=0,
    created=T - 1,
)
LATE = ENDED.uid
"""The pod's uid, as the status names a pod that is deleted."""


def decide(of: Any, *pods: PodView, requests: tuple[RecreateView, ...] = (), driver: Any = "kruise") -> Plan:
    settings = ReconcileSettings(in_place=driver, served=frozenset({RECREATE_REQUESTS}))
    return plan(replace(observe(of, *pods), recreations=requests), settings, NOW)


def written(found: Plan) -> dict[str, Any]:
    return next((dict(each.change["status"]) for each in found.actions if isinstance(each, WriteStatus)), {})


def told(found: Plan) -> list[str]:
    return [each.message for each in found.actions if isinstance(each, EmitEvent)]


@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        ({}, (OPEN,)),
        ({}, (replace(OPEN, generation=5),)),
        ({}, (replace(OPEN, verdict="Done"),)),
        ({}, (replace(OPEN, verdict="Failed"),)),
        ({"restarts": 1}, (OPEN,)),  # its node restarted the pod, and then the request ended the pod
        ({"requested_restart": "7/0", "restart_requested_at": T}, ()),  # the cache of requests is late
        ({"restarts": 2, "requested_restart": "7/2", "restart_requested_at": T}, ()),
        ({"requested_restart": "7", "restart_requested_at": T}, ()),
        ({"requested_restart": "7", "restart_requested_at": T, "completed_restart": "6"}, ()),
    ],
)
@pytest.mark.parametrize("driver", ["kruise", "local", "recreate"])
def test_end_with_0_during_a_restart_is_no_success_and_the_pod_is_replaced(
    fields: dict[str, Any], requests: tuple[RecreateView, ...], driver: Any
) -> None:
    found = decide(RUNNING, replace(ENDED, **fields), WORKER, OTHER, requests=requests, driver=driver)
    assert (written(found).get("phase"), written(found)["replacing"]) == (None, ["master-0"])
    assert told(found) == [
        f"pod digits-master-0 is replaced, its containers were not restarted in place: {interruptions.ENDED}"
    ]


@pytest.mark.parametrize(
    ("fields", "requests"),
    [
        ({}, ()),
        ({}, (replace(OPEN, pod_uid="another"),)),
        ({"restarts": 1}, (replace(OPEN, verdict="Done"),)),
        ({"restarts": 1, "counted_restarts": 1}, (OPEN,)),
        ({"restarts": 1, "requested_restart": "7/0", "restart_requested_at": T}, ()),
        ({"requested_restart": "7/nonsense", "restart_requested_at": T}, ()),
        ({"requested_restart": "7", "restart_requested_at": T, "completed_restart": "7"}, ()),
        ({"requested_restart": "7"}, ()),
    ],
)
def test_end_with_0_after_the_restart_is_a_success(fields: dict[str, Any], requests: tuple[RecreateView, ...]) -> None:
    found = decide(RUNNING, replace(ENDED, **fields), WORKER, OTHER, requests=requests)
    assert written(found)["phase"] == "Succeeded"


@pytest.mark.parametrize("deleting", [False, True])
def test_end_with_0_of_a_pod_that_is_replaced_is_no_success(deleting: bool) -> None:
    going = job(status=status("Running", replacing=["master-0"]))
    found = decide(going, replace(ENDED, deleting=deleting), WORKER, OTHER)
    assert written(found) == {}
    assert [type(each) for each in found.actions] == ([] if deleting else [DeletePods])


def test_pod_that_may_run_again_is_waited_for_until_the_time_limit() -> None:
    local = replace(ENDED, self_healing=False, has_running_containers=True, requested_restart=str(10**15))
    waits = decide(RUNNING, replace(local, restart_requested_at=T - 1), WORKER, OTHER, driver="local")
    assert waits == Plan(requeue_after=59.0)
    late = decide(RUNNING, replace(local, restart_requested_at=T - 61), WORKER, OTHER, driver="local")
    assert written(late)["replacing"] == ["master-0"]


def test_container_that_an_agent_is_restarting_has_not_failed() -> None:
    killed = replace(MASTER, self_healing=False, has_restart_agent=True, phase="Failed", exit_code=137)
    asked = replace(killed, requested_restart=f"{10**15}/0", restart_requested_at=T - 1)
    waits = decide(RUNNING, replace(asked, has_running_containers=True), WORKER, OTHER, driver="auto")
    assert waits == Plan(requeue_after=59.0)
    ended = decide(RUNNING, asked, WORKER, OTHER, driver="auto")
    assert written(ended)["restartCount"] == 1, "the pod has ended, so torchq did not cause the end"


def test_restart_of_the_whole_job_replaces_it_at_once_and_says_so() -> None:
    again = job(status=status("Admitted", restartGeneration=1))
    found = decide(again, ENDED, WORKER, OTHER, requests=(replace(OPEN, generation=1),))
    assert [each.pods for each in found.actions if isinstance(each, DeletePods)] == [
        (replace(ENDED, phase="Failed", reason=interruptions.INTERRUPTED),)
    ]
    assert interruptions.ENDED in told(found)[0]


def test_completed_rank_that_is_asked_to_restart_is_replaced() -> None:
    asked = job(
        status=status("Running", admission=UNDER_MASTER),
        annotations={labels.RESTART_REQUEST: '{"id": "a", "task": "Worker"}'},
    )
    found = decide(asked, MASTER, replace(WORKER, phase="Succeeded", exit_code=0), OTHER)
    assert written(found)["replacing"] == ["worker-0"]
    assert [each.manifest["spec"]["podName"] for each in found.actions if isinstance(each, CreateObject)] == [
        "digits-worker-1"
    ]


def test_pod_is_marked_before_the_request_that_may_end_it_is_created() -> None:
    asked = job(status=status("Running"), annotations={labels.RESTART_REQUEST: '{"id": "a", "task": "Worker"}'})
    found = decide(asked, MASTER, WORKER, replace(OTHER, restarts=3, counted_restarts=3))
    marks = [each for each in found.actions if isinstance(each, PatchPodMetadata)]
    texts = [one.metadata["annotations"][labels.RESTART_CONTAINERS].partition("/")[2] for one in marks]
    assert (texts, [one.pods[0].name for one in marks]) == (["0", "3"], ["digits-worker-0", "digits-worker-1"])
    assert [type(each).__name__ for each in found.actions[:5]] == ["PatchPodMetadata"] * 2 + ["CreateObject"] * 2 + [
        "WriteStatus"
    ]
    # A worker that continues from here requests the restart again, and gives up a request that was never created.
    lost = replace(OTHER, requested_restart="7/0", restart_requested_at=T - 61)
    late = decide(job(status=status("Running", restartRequest="a", admission=UNDER_MASTER)), MASTER, WORKER, lost)
    assert written(late)["replacing"] == ["worker-1"]
