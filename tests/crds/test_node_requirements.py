"""Where a pod may run, as a text, and what the text says about nodes."""

from typing import Any

import pytest

from crds.node_requirements import REQUIRED, PlaceCondition, Taint, place_condition


def spec(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "torch"}], **fields}


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


def allows(pod: dict[str, Any], name: str = "n1", taints: tuple[Taint, ...] = (), **labels: str) -> bool:
    return PlaceCondition.parse(place_condition(pod)).allows(name, labels, taints)


def test_a_pod_without_requirements_has_no_condition() -> None:
    assert place_condition(spec()) == ""
    assert allows(spec())


def test_equal_requirements_have_equal_texts() -> None:
    first, second = {"a": "1", "b": "2"}, {"b": "2", "a": "1"}
    assert place_condition(spec(nodeSelector=first)) == place_condition(spec(nodeSelector=second))
    assert place_condition(spec(), ["n2", "n1"]) == place_condition(spec(), ["n1", "n2"])


def named(operator: str, *names: str) -> dict[str, Any]:
    """Return a node affinity that requires nodes by their names."""
    field = {"key": "metadata.name", "operator": operator, "values": [*names]}
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}


@pytest.mark.parametrize(
    ("pod", "allowed"),
    [
        (spec(nodeSelector={"disk": "ssd"}), True),
        (spec(nodeSelector={"disk": "hdd"}), False),
        (spec(nodeName="n1"), True),
        (spec(nodeName="n2"), False),
        (spec(affinity=required({"key": "size", "operator": "Gt", "values": ["7"]})), True),
        (spec(affinity=required({"key": "size", "operator": "Gt", "values": ["8"]})), False),
        (spec(affinity=required({"key": "size", "operator": "Lt", "values": ["9"]})), True),
        (spec(affinity=required({"key": "size", "operator": "Lt", "values": ["x"]})), False),
        (spec(affinity=required({"key": "disk", "operator": "Lt", "values": ["9"]})), False),
        (spec(affinity=required({"key": "disk", "operator": "NotIn", "values": ["hdd"]})), True),
        (spec(affinity=required({"key": "disk", "operator": "NotIn", "values": ["ssd"]})), False),
        (spec(affinity=required({"key": "rack", "operator": "NotIn", "values": ["r1"]})), True),
        (spec(affinity=named("In", "n1")), True),
        (spec(affinity=named("NotIn", "n1")), False),
        (spec(affinity=required({"key": "disk", "operator": "Near", "values": ["9"]})), True),
        (spec(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}), False),
        (spec(affinity={"podAffinity": {REQUIRED: [{}]}}), True),
        (spec(affinity=5), True),
    ],
)
def test_selector_name_and_affinity_decide(pod: dict[str, Any], allowed: bool) -> None:
    assert allows(pod, disk="ssd", size="8") is allowed


def test_a_taint_keeps_pods_away_that_do_not_tolerate_it() -> None:
    taint = (Taint("reserved", "a", "NoSchedule"),)
    assert not allows(spec(), taints=taint)
    assert allows(spec(tolerations=[{"key": "reserved", "operator": "Exists"}]), taints=taint)
    assert allows(spec(), taints=(Taint("reserved", "a", "PreferNoSchedule"),))


def test_a_taint_with_the_name_of_a_requested_device_counts_as_tolerated() -> None:
    taint = (Taint("nvidia.com/gpu", "", "NoSchedule"),)
    container = {"name": "torch", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    assert allows(spec(containers=[container]), taints=taint)
    assert not allows(spec(), taints=taint)


TERM = {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
MANY_TERMS = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM] * 15_000}}}
MANY_VALUES = required({"key": "rack", "operator": "In", "values": [f"r{number}" for number in range(100_000)]})


@pytest.mark.parametrize("affinity", [MANY_TERMS, MANY_VALUES])
def test_a_requirement_that_is_too_large_keeps_a_pod_from_no_node_and_others_still_count(
    affinity: dict[str, Any],
) -> None:
    pod = spec(affinity=affinity, nodeSelector={"disk": "ssd"})
    assert len(place_condition(pod)) < 100
    assert allows(pod, disk="ssd")
    assert not allows(pod, disk="hdd")


def test_too_many_tolerations_tolerate_everything() -> None:
    pod = spec(tolerations=[{"key": f"key-{number}", "operator": "Exists"} for number in range(20_000)])
    assert len(place_condition(pod)) < 100
    assert allows(pod, taints=(Taint("other", "", "NoSchedule"),))


def test_a_number_with_more_digits_than_schedulers_read_is_no_number() -> None:
    pod = spec(affinity=required({"key": "size", "operator": "Lt", "values": ["9" * 4000]}))
    assert not allows(pod, size="7")


@pytest.mark.parametrize(
    "fields",
    [{"tolerations": 5}, {"nodeSelector": {"a": 2**70}}, {"nodeSelector": {"a": "\ud800"}}, {"nodeName": "\ud800"}],
)
def test_what_is_no_requirement_keeps_a_pod_from_no_node(fields: dict[str, Any]) -> None:
    assert allows(spec(**fields))
