"""The tasks that decide the success of a job, and the ranks of its pods."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob.status import Admission
from gang import backends
from reconcilers.plan.gangs import Scheduling
from reconcilers.pods import task_members
from tests.support.reconcilers.builders import job, task


def after(upstream: str, phase: str = "Succeeded") -> dict[str, Any]:
    return task(dependsOn=[{"taskType": upstream, "phase": phase}])


@pytest.mark.parametrize(
    ("declared", "decisive"),
    [
        ({"Master": task(), "Worker": task(3)}, {"Master"}),
        ({"Trainer": task(), "Board": task()}, {"Trainer", "Board"}),
        ({"Trainer": task(), "Board": task(restartPolicy="Always")}, {"Trainer"}),
        ({"Master": task(), "Worker": after("Master", "Running")}, {"Master"}),
        ({"Prepare": task(), "Master": after("Prepare"), "Worker": after("Prepare")}, {"Master"}),
        ({"Master": task(), "Evaluate": after("Master")}, {"Master", "Evaluate"}),
        ({"AIMaster": task(), "Trainer": task()}, {"Trainer"}),
        ({"AIMaster": task()}, {"AIMaster"}),
        ({"Master": task(restartPolicy="Always"), "Worker": task(3)}, {"Worker"}),
        ({"Master": task(auxiliary=True), "Worker": task(), "Evaluate": after("Worker")}, {"Worker", "Evaluate"}),
        ({"Master": task(), "Report": after("Master") | {"auxiliary": True}}, {"Master"}),
        ({"Master": task(), "Worker": task(), "Evaluate": after("Worker")}, {"Master", "Evaluate"}),
        (
            {"Master": task(), "Evaluate": after("Master"), "Report": after("Evaluate")},
            {"Master", "Evaluate", "Report"},
        ),
    ],
)
def test_decisive_tasks_depend_on_graph_and_policies(declared: dict[str, Any], decisive: set[str]) -> None:
    assert task_members.decisive_tasks(job(declared)) == decisive


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw tasks of all sizes, some of them auxiliary, with dependencies that form no cycle."""
    names = draw(st.permutations(["Master", "Worker", "AIMaster", "Ps", "Evaluate"]))[: draw(st.integers(1, 5))]
    phases = st.sampled_from(["Running", "Succeeded"])
    return {
        name: task(
            1 if name == "Master" else draw(st.integers(1, 4)),
            dependsOn=[{"taskType": each, "phase": draw(phases)} for each in names[:place] if draw(st.booleans())],
            **({"auxiliary": draw(st.booleans())} if name != "AIMaster" else {}),
        )
        for place, name in enumerate(names)
    }


@given(specs())
def test_stage_has_every_rank_once(declared: dict[str, Any]) -> None:
    described = job(declared)
    found = task_members.members(described, 1)
    assert len(found) == sum(each["numTasks"] for each in declared.values())
    for stage in described.spec.stages:
        pods = [each for each in found.values() if each.task_type in stage.tasks]
        ranks = sorted(each.rank for each in pods if each.rank is not None)
        assert ranks == list(range(len(ranks)))
        assert {each.world_size for each in pods} == {len(ranks)}
        (lead,) = {each.lead for each in pods}
        assert lead == next((each.name for each in pods if each.rank == 0), "")
    for each in found.values():
        assert (each.rank is None) == described.spec.tasks[each.task_type].auxiliary


@given(specs())
def test_gang_size_is_within_pods_of_its_stage(declared: dict[str, Any]) -> None:
    described = job(declared, minMembers={name: 1 for name in declared if name != "Master"})
    scheduling = Scheduling(
        job=described, admission=Admission(queue="a", attempt=1, epoch=1), backend=backends.get_backend("volcano")
    )
    for stage in described.spec.stages:
        gang = scheduling.gang(stage)
        pods = [each for each in task_members.members(described, 1).values() if each.stage == stage.index]
        training = [each for each in pods if each.rank is not None]
        assert gang.size <= gang.total == len(training)
        assert set(gang.minimum) == {each.task_type.lower() for each in training}
