"""What pods of jobs hold on closed nodes, and keep there: what counts as room of these nodes."""

from typing import Any

import pytest

from coordinator.routing import closed_nodes
from queues.placement.gangs import Gang, Members, Shape
from tests.support.coordinator.builders import KEY, admission, job, node, pod

OPEN = node()
CORDONED = node(name="two", ready=False, cordoned=True, keeps_pods=True)
FULL = node(name="two", ready=False, keeps_pods=True)  # under the pressure of its disk


def gang(cpu: int, pods: int, where: str = "") -> Gang:
    return Gang((Members(Shape((("cpu", cpu), ("pods", 1)), where), pods),))


@pytest.mark.parametrize(
    ("closed", "runs", "placed", "stays"),
    [
        pytest.param(CORDONED, {"refuses_evictions": True}, {}, True, id="it may not be evicted"),
        pytest.param(CORDONED, {}, {}, False, id="it leaves: the other node could hold the job"),
        pytest.param(CORDONED, {"gang": gang(9000, 1)}, {}, True, id="no other node is large enough"),
        pytest.param(CORDONED, {"charge": {"cpu": 9000, "jobs": 1}}, {}, True, id="the others together are not"),
        pytest.param(CORDONED, {"gang": gang(1, 1, '{"nodeName":"two"}')}, {}, True, id="it may run there alone"),
        pytest.param(CORDONED, {"admission": admission(domain="rack=r2")}, {}, True, id="its domain is closed"),
        pytest.param(CORDONED, {"gang": None}, {}, False, id="its pods are not known"),
        pytest.param(FULL, {}, {}, True, id="no pod leaves a node under pressure"),
        pytest.param(node(name="two", ready=False, cordoned=True), {"refuses_evictions": True}, {}, False, id="silent"),
        pytest.param(node(name="two"), {"refuses_evictions": True}, {}, False, id="the node is open"),
        pytest.param(node(name="three"), {"refuses_evictions": True}, {}, False, id="the node is gone"),
        pytest.param(FULL, {}, {"deleting": True}, False, id="the pod is being deleted"),
        pytest.param(FULL, {}, {"occupies": False}, False, id="the pod has ended"),
        pytest.param(FULL, {}, {"job": None}, False, id="the pod is foreign"),
        pytest.param(FULL, {"admission": None}, {}, False, id="the job has no admission"),
    ],
)
def test_what_stays_on_a_closed_node_is_held_there(
    closed: Any, runs: dict[str, Any], placed: dict[str, Any], stays: bool
) -> None:
    owner = job(**{"admission": admission(), "gang": gang(1000, 2), "phase": "Running", **runs})
    pods = [pod(**{"node": "two", **placed}), pod(**{"node": "two", "name": "train-worker-0", **placed})]
    expected = {"two": {"cpu": 2000}} if stays else {}
    assert closed_nodes.held([OPEN, closed], [*pods, pod(node="one")], {KEY: owner}) == expected
