"""Node affinity: the required terms that the node of an embedded cluster meets."""

from typing import Any

import pytest

from embedded import affinity

LABELS = {"kubernetes.io/hostname": "local", "disk": "ssd", "size": "8"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    return {"matchFields" if field else "matchExpressions": [expression]}


HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("terms", "met"),
    [
        ([term("disk", "In", "hdd", "ssd")], True),
        ([term("disk", "In", "hdd")], False),
        ([term("zone", "In", "a")], False),
        ([term(HOST, "NotIn", "local")], False),
        ([term(HOST, "NotIn", "other")], True),
        ([term("zone", "NotIn", "a")], True),
        ([term("disk", "Exists")], True),
        ([term("zone", "Exists")], False),
        ([term("disk", "DoesNotExist")], False),
        ([term("zone", "DoesNotExist")], True),
        ([term("size", "Gt", "7")], True),
        ([term("size", "Gt", "8")], False),
        ([term("size", "Lt", "9")], True),
        ([term("metadata.name", "In", "local", field=True)], True),
        ([term("metadata.name", "NotIn", "local", field=True)], False),
        ([term("disk", "In", "hdd"), term("disk", "In", "ssd")], True),
        ([{**term("disk", "In", "ssd"), **term("metadata.name", "In", "other", field=True)}], False),
        ([{}], False),
        ([{}, term("disk", "Exists")], True),
    ],
)
def test_node_affinity_is_met_if_any_of_its_terms_matches(terms: list[dict[str, Any]], met: bool) -> None:
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    objection = affinity.objection(spec, "local", LABELS)
    assert (objection == "") is met
    assert met or "does not meet" in objection


@pytest.mark.parametrize(
    ("kind", "required"),
    [
        ("nodeAffinity", {"nodeSelectorTerms": [term("disk", "Near", "5")]}),
        ("nodeAffinity", {"nodeSelectorTerms": [term("spec.unschedulable", "In", "x", field=True)]}),
        ("nodeAffinity", {"nodeSelectorTerms": [{"matchSomething": []}]}),
        ("nodeAffinity", {"nodeSelectorTerms": [5]}),
        ("nodeAffinity", {"nodeSelectorTerms": [{"matchExpressions": [5]}]}),
        ("nodeAffinity", {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": []}]}]}),
        ("nodeAffinity", {"other": 1}),
        ("podAffinity", [{}]),
        ("podAntiAffinity", [{}]),
    ],
)
def test_an_unsupported_affinity_requirement_keeps_the_pod_waiting(kind: str, required: Any) -> None:
    objection = affinity.objection({"affinity": {kind: {REQUIRED: required}}}, "local", LABELS)
    assert (
        objection
        == f"spec.affinity.{kind} has a requirement that the embedded scheduler does not support; make it a preference"
    )


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": None},
        {"affinity": {"nodeAffinity": None}},
        {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"nodeSelector": {"disk": "ssd"}},
    ],
)
def test_a_pod_without_required_affinity_fits_any_node(spec: dict[str, Any]) -> None:
    assert affinity.objection(spec, "local", LABELS) == ""
