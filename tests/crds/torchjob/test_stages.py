"""Stages: the tasks of a job that can exist at the same time, for graphs of dependencies."""

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crds.torchjob import demand, stages, torchjob
from crds.torchjob.jobspec import TorchJobSpec
from tests.support.crds import builders

Graph = dict[str, list[tuple[str, str]]]

TABLE: list[tuple[str, Graph, list[tuple[set[str], set[str]]]]] = [
    ("no dependencies", {"Master": [], "Worker": []}, [(set(), {"Master", "Worker"})]),
    ("only Running", {"A": [], "B": [("A", "Running")]}, [(set(), {"A", "B"})]),
    ("a chain", {"A": [], "B": [("A", "Succeeded")]}, [(set(), {"A"}), ({"A"}, {"B"})]),
    (
        "a task also waits for the upstreams of its upstream",
        {"A": [], "B": [("A", "Succeeded")], "C": [("B", "Running")], "D": [("C", "Succeeded")]},
        [(set(), {"A"}), ({"A"}, {"B", "C"}), ({"A", "C"}, {"D"})],
    ),
    (
        "a diamond",
        {"A": [], "B": [("A", "Succeeded")], "C": [("A", "Succeeded")], "D": [("B", "Succeeded"), ("C", "Running")]},
        [(set(), {"A"}), ({"A"}, {"B", "C"}), ({"A", "B"}, {"D"})],
    ),
]


def spec_of(graph: Graph) -> TorchJobSpec:
    tasks = {
        name: builders.task(
            template=builders.template(**{f"example.com/{name.lower()}": 1}),
            dependsOn=[{"taskType": upstream, "phase": phase} for upstream, phase in upstreams],
        )
        for name, upstreams in graph.items()
    }
    return torchjob.parse(builders.job(torchTaskSpecs=tasks)).spec


@pytest.mark.parametrize(("graph", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_stages_group_tasks_by_awaited_successes(graph: Graph, expected: list[tuple[set[str], set[str]]]) -> None:
    found = spec_of(graph).stages
    assert [each.index for each in found] == list(range(len(found)))
    assert [(set(each.awaits), set(each.tasks)) for each in found] == expected


def test_stages_overlap_unless_one_waits_for_all_of_the_other() -> None:
    first, behind_both, behind_one = (
        stages.Stage(0, frozenset(), ("A", "B")),
        stages.Stage(1, frozenset({"A", "B"}), ("C",)),
        stages.Stage(2, frozenset({"A"}), ("D",)),
    )
    assert first.overlaps(first)
    assert not first.overlaps(behind_both)
    assert not behind_both.overlaps(first)
    assert first.overlaps(behind_one)
    assert behind_one.overlaps(behind_both)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph without a cycle, in any order."""
    names = draw(st.permutations(["A", "B", "C", "D", "E"]))[: draw(st.integers(1, 5))]
    phases = st.sampled_from(["", "", "Running", "Succeeded"])
    found: Graph = {}
    for place, name in enumerate(names):
        wishes = [(upstream, draw(phases)) for upstream in names[:place]]
        found[name] = [(upstream, phase) for upstream, phase in wishes if phase]
    return {name: found[name] for name in draw(st.permutations(names))}


def may_exist(spec: TorchJobSpec, there: frozenset[str]) -> bool:
    """Return whether pods of exactly these tasks may exist: a task never exists together with a task whose success it
    awaits.
    """
    behind = frozenset(chain.from_iterable(stage.awaits for stage in spec.stages if there.intersection(stage.tasks)))
    return not behind & there


@given(graphs())
def test_each_task_is_in_one_stage_after_the_tasks_that_it_awaits(graph: Graph) -> None:
    found = spec_of(graph).stages
    assert sorted(chain.from_iterable(stage.tasks for stage in found)) == sorted(graph)
    for stage in found:
        assert stage.awaits <= set(chain.from_iterable(each.tasks for each in found[: stage.index]))


@given(graphs())
def test_pods_that_exist_at_once_never_exceed_the_charge(graph: Graph) -> None:
    described = {
        name: builders.task(
            template=builders.template(cpu="1"),
            dependsOn=[{"taskType": upstream, "phase": phase} for upstream, phase in upstreams],
        )
        for name, upstreams in graph.items()
    }
    spec = torchjob.parse(builders.job(torchTaskSpecs=described)).spec
    most = max(
        len(there)
        for count in range(1, len(graph) + 1)
        for there in combinations(graph, count)
        if may_exist(spec, frozenset(there))
    )
    assert most * 1000 <= demand.job_charge(spec)["cpu"] <= len(graph) * 1000


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 4),
        ({"minMembers": {"Worker": 3}}, 3),
        ({"torchElasticPolicy": {"numMinReplicas": 2, "numMaxReplicas": 8}}, 2),
        ({"torchElasticPolicy": {"numMinReplicas": 6, "numMaxReplicas": 8}}, 4),
        ({"torchElasticPolicy": {}}, 4),
        ({"minMembers": {"Worker": 1}, "torchElasticPolicy": {"numMinReplicas": 2}}, 1),
    ],
)
def test_gang_members_follow_min_members_and_elastic_policy(fields: dict[str, object], expected: int) -> None:
    tasks = {"Master": builders.task(), "Worker": builders.task(numTasks=4)}
    spec = torchjob.parse(builders.job(torchTaskSpecs=tasks, **fields)).spec
    assert (spec.gang_members("Master"), spec.gang_members("Worker")) == (1, expected)
