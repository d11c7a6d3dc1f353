"""The pool: the nodes minus foreign pods, or the amounts that an admin sets."""

import pytest

from coordinator.cache.node_views import NodeView
from coordinator.cache.views import PodView
from coordinator.routing import pool_capacity
from crds.resources import amounts
from crds.resources.amounts import Amounts
from tests.support.coordinator.builders import node, pod

FOREIGN = pod(job=None, node="one", demand={"cpu": 3000, "pods": 1})
ONE = {"cpu": 8000, "memory": 1 << 30, "pods": 110}
TWO = {"cpu": 16_000, "memory": 2 << 30, "pods": 220}


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        pytest.param([], [], {}, id="no node: no room for any job"),
        pytest.param([node()], [], ONE, id="one node"),
        pytest.param([node(), node(name="two")], [], TWO, id="two nodes"),
        pytest.param([node()], [FOREIGN], {"cpu": 5000, "memory": 1 << 30, "pods": 109}, id="foreign pods take room"),
        pytest.param([node()], [pod()], ONE, id="pods of jobs are charged, not subtracted"),
        pytest.param(
            [node()],
            [FOREIGN, FOREIGN, FOREIGN],
            {"cpu": 0, "memory": 1 << 30, "pods": 107},
            id="never below zero",
        ),
        pytest.param(
            [node(ready=False)],
            [],
            {"cpu": 0, "memory": 0, "pods": 0},
            id="a node that is not ready has no room",
        ),
        pytest.param(
            [node(), node(name="two", ready=False)],
            [
                pod(job=None, node="nowhere", demand={"cpu": 10**9, "pods": 1}),
                pod(job=None, node="two", demand={"cpu": 5000, "pods": 1}),
                pod(job=None, node="", demand={"cpu": 5000, "pods": 1}),
            ],
            ONE,
            id="a pod takes no room of another node than its own",
        ),
        pytest.param(
            [node(), node(name="two")],
            [pod(job=None, node="one", demand={"cpu": 10**9, "pods": 1})],
            {"cpu": 8000, "memory": 2 << 30, "pods": 219},
            id="a pod takes no more room than its node has",
        ),
    ],
)
def test_capacity_is_the_nodes_minus_foreign_pods(
    nodes: list[NodeView], pods: list[PodView], expected: Amounts
) -> None:
    assert pool_capacity.capacity("nodes", nodes, pods) == {**expected, "*": 0}


def test_what_jobs_hold_on_a_closed_node_is_room_of_it_as_far_as_the_node_has_it() -> None:
    nodes = [node(), node(name="two", ready=False), node(name="three", ready=False)]
    foreign = pod(job=None, node="two", demand={"cpu": 3000, "pods": 1})
    held = {"two": {"cpu": 2000, "pods": 2}, "gone": {"cpu": 1000, "pods": 1}}
    expected = {"cpu": 10_000, "memory": 1 << 30, "pods": 112, "*": 0}
    assert pool_capacity.capacity("nodes", nodes, [foreign], held) == expected
    held["two"] = {"cpu": 10**6, "example.org/made-up": 1}
    assert pool_capacity.capacity("nodes", nodes, [foreign], held) == {**ONE, "cpu": 13_000, "*": 0}


def test_amounts_of_an_admin_are_the_capacity() -> None:
    assert pool_capacity.capacity({"cpu": 64_000}, [node()], [FOREIGN]) == {"cpu": 64_000}
    assert pool_capacity.capacity(None, [node()], []) is None


def test_largest_ignores_foreign_pods_and_node_readiness() -> None:
    nodes = [node(), node(name="two", ready=False)]
    foreign = [pod(job=None, node="one", demand={"cpu": 1000, "pods": 1, "example.org/made-up": 5})]
    assert pool_capacity.capacity("nodes", nodes, foreign) == {**ONE, "cpu": 7000, "pods": 109, "*": 0}
    assert pool_capacity.largest("nodes", nodes) == {**TWO, "*": 0}
    assert pool_capacity.largest({"cpu": 1}, nodes) == {"cpu": 1}
    assert pool_capacity.largest(None, nodes) is None


def test_a_pool_without_nodes_has_no_room_and_one_of_numbers_limits_only_its_names() -> None:
    empty, numbers = pool_capacity.capacity("nodes", [], []), pool_capacity.capacity({"cpu": 64_000}, [], [])
    assert empty is not None
    assert numbers is not None
    assert pool_capacity.largest("nodes", []) is None
    for asked in ({"cpu": 1}, {"pods": 1}, {"nvidia.com/gpu": 8}):
        assert not amounts.fits({"jobs": 1, **asked}, {}, empty)
    assert amounts.fits({"jobs": 1, "nvidia.com/gpu": 8}, {}, numbers)
    assert not amounts.fits({"jobs": 1, "cpu": 64_001}, {}, numbers)


def test_a_pool_has_no_room_for_a_resource_of_no_node() -> None:
    room = pool_capacity.capacity("nodes", [node()], [])
    assert room is not None
    assert amounts.fits({"jobs": 1, "cpu": 8000}, {}, room)
    assert not amounts.fits({"jobs": 1, "nvidia.com/gpu": 1}, {}, room)
    assert amounts.fits({"jobs": 1, "nvidia.com/gpu": 0}, {}, room)
