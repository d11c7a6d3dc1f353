"""A gang whose group is pending again while some of its pods keep their nodes.

Volcano admits a group only if the cluster has room for all of its minResources beside the resources in use. The group's
own pods count as in use. A gang that fills the cluster and lacks one pod would therefore never be admitted.
"""

from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from gang.backends import BACKENDS
from gang.values import GroupView
from reconcilers.plan import progress
from reconcilers.plan.gangs import Scheduling
from reconcilers.values import Action, PatchObject
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import builders
from tests.support.reconcilers.builders import pod

VOLCANO = BACKENDS["volcano"]
JOB = builders.job(status=builders.status("Admitted", admission={**builders.ADMISSION, "gangScheduler": "volcano"}))
MASTER, FIRST, SECOND = (pod(kind, index, "Pending") for kind, index in (("Master", 0), ("Worker", 0), ("Worker", 1)))


def on(one: PodView, phase: str = "Pending") -> PodView:
    return pod("Master" if one.task == "master" else "Worker", one.index, phase, node="n1")


def scheduling(job: TorchJob) -> Scheduling:
    assert job.admission is not None
    return Scheduling(job=job, admission=job.admission, backend=VOLCANO)


def group(phase: str, resources: Any = "all") -> GroupView:
    manifest = VOLCANO.create(scheduling(JOB).gang(JOB.spec.stages[0]))
    assert manifest is not None
    manifest["metadata"] |= {"uid": "g", "resourceVersion": "7"}
    if resources != "all":
        manifest["spec"]["minResources"] = resources
    return VOLCANO.trim({**manifest, "status": {"phase": phase}})


def changes(found: GroupView, *pods: PodView) -> list[Action]:
    done = scheduling(JOB).groups(progress.assess(JOB, pods), (found,), pods)
    assert done.ready == {0}
    assert done.blocker is None
    return [each for each in done.actions if isinstance(each, PatchObject)]


def test_partly_bound_pending_group_requests_no_resources() -> None:
    """The field minResources stays, because Volcano would admit a group without it to a closed queue."""
    (change,) = changes(group("Pending"), MASTER, on(FIRST), on(SECOND))
    assert isinstance(change, PatchObject)
    assert change.change == {"spec": {"minResources": {"cpu": None}}, "metadata": {"uid": "g"}}
    assert changes(group("Pending", {}), MASTER, on(FIRST), on(SECOND)) == []


def test_group_requests_all_resources_once_it_is_admitted() -> None:
    (change,) = changes(group("Inqueue", {}), MASTER, on(FIRST), on(SECOND))
    assert isinstance(change, PatchObject)
    assert change.change == {"spec": {"minResources": {"cpu": "3"}}, "metadata": {"uid": "g"}}


@pytest.mark.parametrize(
    ("phase", "pods"),
    [
        ("Pending", (MASTER, FIRST, SECOND)),  # the group was not admitted yet, or all pods were restarted
        ("Pending", (on(MASTER), on(FIRST), on(SECOND))),  # the scheduler has not noticed yet that all pods are bound
        ("Pending", (MASTER, on(FIRST, "Failed"), on(SECOND, "Failed"))),  # a failed pod uses no resources
        ("Pending", (on(FIRST), on(SECOND))),  # the missing pod has to be created first
        ("Unknown", (MASTER, on(FIRST), on(SECOND))),
        ("Inqueue", (MASTER, on(FIRST), on(SECOND))),
    ],
)
def test_group_that_is_not_partly_bound_and_pending_stays_unchanged(phase: str, pods: tuple[PodView, ...]) -> None:
    assert changes(group(phase), *pods) == []


def test_group_whose_other_pods_succeeded_requests_no_resources() -> None:
    pods = (MASTER, on(FIRST, "Succeeded"), on(SECOND, "Succeeded"))
    assert changes(group("Pending"), *pods) != []
