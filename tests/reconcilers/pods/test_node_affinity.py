"""The node that a pod prefers: the one on which its job was placed."""

from dataclasses import replace
from typing import Any

import pytest

from crds.torchjob.torchjob import TorchJob
from reconcilers.plan.plan import plan
from reconcilers.pods import node_affinity, task_members
from reconcilers.settings import ReconcileSettings
from reconcilers.values import CreatePods
from tests.support.reconcilers.builders import NOW, RESERVATION, job, observe, pod, status, task, template

LARGE = template(resources={"requests": {"cpu": "4"}})
HELD = replace(RESERVATION, nodes="0=n1*2,n2*1")
"""The reservation of a Master and two workers that are alike."""


def hint(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": 100, "preference": {"matchFields": [field]}}


def avoided(node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]}
    return {"weight": 100, "preference": {"matchExpressions": [expression]}}


def preferences(wanted: TorchJob, *pods: Any, **fields: Any) -> dict[str, Any]:
    """Return what the new pods of a job prefer, by the last parts of their names."""
    settings = ReconcileSettings(placement_hints=fields.pop("placement_hints", True))
    found = plan(observe(wanted, *pods, **{"reservation": HELD, **fields}), settings, NOW)
    made = [each for action in found.actions if isinstance(action, CreatePods) for each in action.manifests]
    affinities = {each["metadata"]["name"]: each["spec"].get("affinity") or {"nodeAffinity": {}} for each in made}
    return {
        name.removeprefix("digits-"): each["nodeAffinity"].get(node_affinity.PREFERRED)
        for name, each in affinities.items()
    }


def test_each_term_of_a_required_affinity_gets_the_domain_and_an_empty_term_stays_without_nodes() -> None:
    rack = {"key": "rack", "operator": "In", "values": ["r1"]}
    kinds = [{"matchExpressions": [{"key": "kind", "operator": "In", "values": [kind]}]} for kind in ("a", "b")]
    own = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    for terms, expected in (
        ([], [{"matchExpressions": [rack]}]),
        (kinds, [{"matchExpressions": [*kind["matchExpressions"], rack]} for kind in kinds]),
        ([own, {}], [own | {"matchExpressions": [rack]}]),
        ([{}], [{}]),
    ):
        affinity = {"nodeAffinity": {node_affinity.REQUIRED: {"nodeSelectorTerms": terms}}} if terms else {}
        spec: dict[str, Any] = {"affinity": affinity}
        node_affinity.require(spec, "rack=r1")
        assert spec["affinity"]["nodeAffinity"][node_affinity.REQUIRED]["nodeSelectorTerms"] == expected


@pytest.mark.parametrize(
    ("tasks", "nodes", "expected"),
    [
        ({"Master": task(), "Worker": task(2)}, "0=n1*2,n2*1", ["n1", "n1", "n2"]),
        ({"Master": task(), "Worker": task(2, template=LARGE)}, "1=n2*2 0=n1*1", ["n1", "n2", "n2"]),
        ({"Master": task(), "Worker": task(2, template=LARGE)}, "1=n2*1,n3*1", [None, "n2", "n3"]),
        ({"Master": task(), "Worker": task(3)}, "0=n1*2 0=n2*1", ["n1", "n1", "n2", None]),
        ({"Master": task(), "Worker": task(1)}, "0=n1*1 5=n2*1", ["n1", None]),
        ({"Master": task(), "Worker": task(1)}, "", [None, None]),
    ],
)
def test_alike_pods_take_the_nodes_in_the_order_of_tasks_and_indexes(
    tasks: dict[str, Any], nodes: str, expected: list[str | None]
) -> None:
    wanted = job(tasks)
    members = task_members.members(wanted, 1)
    found = node_affinity.places(wanted, members.values(), nodes)
    assert [found.get(name) for name in members] == expected


def test_tasks_of_a_later_stage_have_no_places() -> None:
    after = [{"taskType": "Worker", "phase": "Succeeded"}]
    wanted = job({"Worker": task(1), "Evaluator": task(1, dependsOn=after)})
    members = task_members.members(wanted, 1)
    assert node_affinity.places(wanted, members.values(), "0=n1*9") == {"digits-worker-0": "n1"}


ADMITTED = job(status=status("Admitted"))


def test_new_pods_prefer_the_nodes_in_the_reservation() -> None:
    found = preferences(ADMITTED)
    assert found == {"master-0": [hint("n1")], "worker-0": [hint("n1")], "worker-1": [hint("n2")]}


def test_a_pod_that_is_created_anew_prefers_the_place_of_its_predecessor() -> None:
    found = preferences(ADMITTED, pod("Master", phase="Pending"), pod("Worker", 0, phase="Pending"))
    assert found == {"worker-1": [hint("n2")]}


@pytest.mark.parametrize("fields", [{"placement_hints": False}, {"reservation": RESERVATION}])
def test_pods_prefer_nothing_without_places_or_if_hints_are_off(fields: dict[str, Any]) -> None:
    assert preferences(ADMITTED, **fields) == {"master-0": None, "worker-0": None, "worker-1": None}


def test_a_node_that_a_pod_avoids_is_not_preferred() -> None:
    excluding = job(status=status("Admitted", nodeFailures={"n1": 3}, excludedNodes=["n1"]))
    found = preferences(excluding)
    assert found == {name: [avoided("n1")] for name in ("master-0", "worker-0")} | {
        "worker-1": [avoided("n1"), hint("n2")]
    }
    leaving = job(
        status=status("Admitted", departed={"digits-worker-1": {"node": "n2", "since": "2026-01-02T03:00:00Z"}})
    )
    left = preferences(leaving)
    assert left["worker-1"] == [avoided("n2")]
    assert left["worker-0"] == [avoided("n2"), hint("n1")]


def test_preferences_of_the_template_stay() -> None:
    theirs = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": {node_affinity.PREFERRED: [theirs]}, "podAffinity": {}}}
    before = {"nodeAffinity": {node_affinity.PREFERRED: [theirs]}, "podAffinity": {}}
    given = spec["affinity"]
    node_affinity.prefer(spec, "n1")
    assert spec["affinity"] == {"nodeAffinity": {node_affinity.PREFERRED: [theirs, hint("n1")]}, "podAffinity": {}}
    assert given == before
