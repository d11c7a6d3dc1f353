"""The minimum of a gang whose job grows and shrinks."""

from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from gang import backends
from reconcilers.plan.gangs import Scheduling
from reconcilers.plan.plan import plan
from reconcilers.pods.grants import Grant
from reconcilers.settings import ReconcileSettings
from reconcilers.values import Action, Blocker, CreateObject, CreatePods, DeletePods, PatchObject
from tests.support.reconcilers import sizes
from tests.support.reconcilers.builders import NOW, job, observe, pod, task

VOLCANO = backends.get_backend("volcano")
SETTINGS = ReconcileSettings(gang_scheduler="volcano")
LATER = "2026-01-02T04:00:00Z"
JOINING = {"from": 2, "deadline": LATER}


def running(size: int, least: int | None = None, **scaling: Any) -> TorchJob:
    """Return a job with workers only, which Volcano binds."""
    found = sizes.granted("Running", size, scaling.pop("to", size), **scaling)
    found["admission"]["gangScheduler"] = "volcano"
    policy = {"mode": "InPlaceRestart"} | ({"numMinReplicas": least, "numMaxReplicas": 9} if least else {})
    wish = found["scaling"]["to"] if found["scaling"] else size
    return job({"Worker": task(wish)}, found, torchElasticPolicy=policy)


def decided(
    described: TorchJob, minimum: int, pods: int, pending: int = 0, *, is_seen: bool = True, **found: Any
) -> list[Action]:
    """Return the actions for a running group with a minimum, some running pods, and `pending` further pods that do not
    run. The worker has seen the group, unless told otherwise.
    """
    assert described.admission is not None
    granted = Grant(described, described.admission).job
    scheduling = Scheduling(job=granted, admission=described.admission, backend=VOLCANO)
    manifest = VOLCANO.create(scheduling.gang(granted.spec.stages[0]))
    assert manifest is not None
    manifest["metadata"] |= {"uid": "g", "resourceVersion": "7"}
    manifest["spec"] |= {
        "minMember": minimum,
        "minTaskMember": {"worker": minimum},
        "minResources": {"cpu": str(minimum)},
    }
    group = VOLCANO.trim({**manifest, "status": {"phase": "Running"}})
    workers = [pod("Worker", index, node="n1") for index in range(pods)]
    workers += [pod("Worker", pods + index, "Pending") for index in range(pending)]
    held = sizes.held(described.admission.workers or 0)
    observed = observe(described, *workers, reservation=held, groups=(group,) if is_seen else (), **found)
    return list(plan(observed, SETTINGS, NOW).actions)


def minimum(actions: list[Action]) -> list[int]:
    return [action.change["spec"]["minMember"] for action in actions if isinstance(action, PatchObject)]


@pytest.mark.parametrize(("described", "pods"), [(running(4, 2, **JOINING), 2), (running(4, 2), 4), (running(6, 2), 6)])
def test_elastic_minimum_stays(described: TorchJob, pods: int) -> None:
    assert not minimum(decided(described, 2, pods))


def test_added_pods_join_the_existing_group() -> None:
    (made,) = (action for action in decided(running(4, 2, **JOINING), 2, 2) if isinstance(action, CreatePods))
    assert {each["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for each in made.manifests} == {"digits-0"}
    assert len(made.manifests) == 2


def test_minimum_of_a_job_without_one_is_raised_when_the_added_workers_run() -> None:
    assert not minimum(decided(running(4, **JOINING), 2, 2, pending=2))
    assert minimum(decided(running(4), 2, 4)) == [4]


def test_minimum_of_a_job_without_one_is_lowered_before_victims_are_deleted() -> None:
    actions = decided(running(4, to=3, victims=["digits-worker-3"]), 4, 4)
    assert [type(action) for action in actions] == [PatchObject, DeletePods]
    assert minimum(actions) == [3]


def test_minimum_of_a_group_that_the_cache_does_not_show_is_lowered_before_victims_are_deleted() -> None:
    shrinks = running(4, to=3, victims=["digits-worker-3"])
    made, deleted = decided(shrinks, 4, 4, is_seen=False)
    assert isinstance(made, CreateObject)
    assert isinstance(deleted, DeletePods)
    assert made.correction["minMember"] == 3
    # A group that cannot be created does not keep the victims alive.
    missing = Blocker("PodGroupMissing", "the cluster has no PodGroup")
    actions = decided(shrinks, 4, 4, is_seen=False, obstacle=missing)
    assert [action for action in actions if isinstance(action, CreateObject | DeletePods)] == [deleted]
