"""The pool: nodes minus foreign pods, or an admin's word."""

import pytest

from coordinator import pool
from coordinator.views import NodeView, PodView
from crds.amounts import Amounts
from tests.coordinator.builders import node, pod

FOREIGN = pod(job=None, demand={"cpu": 3000, "pods": 1})
ONE = {"cpu": 8000, "memory": 1 << 30, "pods": 110}
TWO = {"cpu": 16_000, "memory": 2 << 30, "pods": 220}


@pytest.mark.parametrize(
    ("nodes", "pods", "demanded", "expected"),
    [
        pytest.param([], [], ["cpu"], None, id="no nodes to see: nothing is known to be scarce"),
        pytest.param([node()], [], [], ONE, id="one node"),
        pytest.param([node(), node()], [], [], TWO, id="two nodes"),
        pytest.param(
            [node()], [FOREIGN], [], {"cpu": 5000, "memory": 1 << 30, "pods": 109}, id="foreign pods take room"
        ),
        pytest.param([node()], [pod()], [], ONE, id="ours are charged, not subtracted"),
        pytest.param(
            [node()],
            [FOREIGN, FOREIGN, FOREIGN],
            [],
            {"cpu": 0, "memory": 1 << 30, "pods": 107},
            id="never below nothing",
        ),
        pytest.param(
            [node(ready=False)],
            [],
            [],
            {"cpu": 0, "memory": 0, "pods": 0},
            id="a node that is not ready has room for nobody",
        ),
        pytest.param(
            [node()],
            [],
            ["jobs", "nvidia.com/gpu"],
            {**ONE, "nvidia.com/gpu": 0},
            id="no such resource",
        ),
    ],
)
def test_capacity_from_nodes(
    nodes: list[NodeView], pods: list[PodView], demanded: list[str], expected: Amounts | None
) -> None:
    assert pool.capacity("nodes", nodes, pods, demanded) == expected


def test_an_admins_amounts_are_taken_as_they_are() -> None:
    assert pool.capacity({"cpu": 64_000}, [node()], [FOREIGN], ["nvidia.com/gpu"]) == {"cpu": 64_000}
    assert pool.capacity(None, [node()], [], []) is None


def test_what_the_pool_can_ever_be_does_not_depend_on_what_is_on_it_or_down() -> None:
    nodes = [node(), node(name="two", ready=False)]
    foreign = [pod(job=None)]
    assert pool.capacity("nodes", nodes, foreign, ["gpu"]) == {**ONE, "cpu": 7000, "gpu": 0}
    assert pool.largest("nodes", nodes, ["gpu"]) == {**TWO, "gpu": 0}
    assert pool.largest({"cpu": 1}, nodes, ["gpu"]) == {"cpu": 1}
    assert pool.largest(None, nodes, ["gpu"]) is None
