"""The nodes that pods leave early, and the taints that mark these nodes."""

from dataclasses import replace
from typing import Any

import pytest

from crds import node_requirements
from crds.node_requirements import Taint
from reconcilers.views import node_view
from reconcilers.views.node_view import NodeView
from tests.support.reconcilers.builders import ADMISSION, job, pod, status, task, template

PODS = (pod("Worker", 0, node="n1"), pod("Worker", 1, node="n2"))
KEYS = frozenset({"karpenter.sh/disrupted"})
GONE = Taint("karpenter.sh/disrupted", "", "NoSchedule")
ROOM = {"cpu": 2000, "pods": 10}
QUANTITIES = {"cpu": "2", "pods": "10"}


class Nodes:
    synced = True
    failing = ""

    def __init__(self, *nodes: NodeView) -> None:
        self._nodes = {node.name: node for node in nodes}

    def get(self, _: str, name: str) -> NodeView | None:
        return self._nodes.get(name)

    def values(self) -> list[NodeView]:
        return list(self._nodes.values())


def node(name: str, *, ready: bool = True, cordoned: bool = False, **fields: Any) -> NodeView:
    return NodeView(name, ready, None, not cordoned, fields.pop("room", ROOM), tuple(fields.pop("tainted", ())))


ELASTIC: dict[str, Any] = {"torchElasticPolicy": {"numMinReplicas": 1, "mode": "InPlaceRestart"}}


@pytest.mark.parametrize(
    ("nodes", "spec", "expected"),
    [
        ((node("n1"), node("n2")), {}, {}),
        ((node("n1"), node("n2", tainted=[GONE])), {}, {"n2": "has the taint karpenter.sh/disrupted"}),
        ((node("n1"), node("n2", tainted=[Taint("gpu", "", "NoSchedule")])), {}, {}),
        # Pods leave a cordoned node only if the other nodes could hold the job.
        ((node("n1", cordoned=True), node("n2")), {}, {"n1": "is cordoned"}),
        ((node("n1", cordoned=True), node("n2")), {"evictions": "Refuse"}, {}),
        (
            (node("n1", tainted=[GONE]), node("n2")),
            {"evictions": "Refuse"},
            {"n1": "has the taint karpenter.sh/disrupted"},
        ),
        ((node("n1", cordoned=True),), {}, {}),
        ((node("n1", cordoned=True), node("n2", cordoned=True)), {}, {}),
        ((node("n1", cordoned=True), node("n2", ready=False)), {}, {}),
        ((node("n1", cordoned=True), node("n2", room={"cpu": 1000, "pods": 10})), {}, {}),
        ((node("n1", cordoned=True), node("n2", room={"cpu": 1000, "pods": 10})), ELASTIC, {"n1": "is cordoned"}),
        ((node("n1", cordoned=True), node("n2", room={})), {}, {"n1": "is cordoned"}),
        ((node("n1", cordoned=True), node("n2", tainted=[Taint("gpu", "", "NoSchedule")])), {}, {}),
        (
            (node("n1", cordoned=True), node("n2", tainted=[GONE])),
            {},
            {"n2": "has the taint karpenter.sh/disrupted"},
        ),
        (
            (node("n1", cordoned=True), node("n2", tainted=[Taint("node.kubernetes.io/not-ready", "", "NoSchedule")])),
            {},
            {"n1": "is cordoned"},
        ),
        ((node("n1"),), {}, {}),  # a deleted node such as n2 is judged elsewhere
    ],
)
def test_departures(nodes: tuple[NodeView, ...], spec: dict[str, Any], expected: dict[str, str]) -> None:
    of = job({"Worker": task(2)}, **spec)
    assert node_view.departures(Nodes(*nodes), PODS, of, KEYS) == expected


@pytest.mark.parametrize(("rack", "expected"), [("r1", {"n1": "is cordoned"}), ("r2", {})])
def test_pods_leave_a_cordoned_node_only_for_nodes_of_their_domain(rack: str, expected: dict[str, str]) -> None:
    nodes = Nodes(replace(node("n1", cordoned=True), labels={"rack": "r1"}), replace(node("n3"), labels={"rack": rack}))
    admitted = status("Running", admission=ADMISSION | {"domain": "rack=r1"})
    assert node_view.departures(nodes, PODS, job({"Worker": task(2)}, status=admitted), KEYS) == expected


@pytest.mark.parametrize(("zone", "expected"), [("a", {"n1": "is cordoned"}), ("b", {})])
def test_pods_leave_or_avoid_a_node_only_for_nodes_that_their_template_selects(
    zone: str, expected: dict[str, str]
) -> None:
    other = node_view.trim(
        {"metadata": {"name": "n3", "labels": {"zone": zone}}, "status": {"allocatable": QUANTITIES}}
    )
    nodes = Nodes(replace(node("n1", cordoned=True), labels={"zone": "a"}), replace(other, ready=True))
    selecting = template()
    selecting["spec"]["nodeSelector"] = {"zone": "a"}
    of = job({"Worker": task(2, template=selecting)})
    assert node_view.departures(nodes, PODS, of, KEYS) == expected
    assert node_view.fits_elsewhere(nodes, ["n1"], of.spec) is bool(expected)


def in_rack(name: str, rack: str = "r1", since: float | None = None, **fields: Any) -> NodeView:
    return replace(node(name, **fields), labels={"rack": rack}, since=since)


@pytest.mark.parametrize(
    ("own", "seconds"),
    [
        ((in_rack("n1"),), None),
        ((in_rack("n1", cordoned=True),), 0.0),
        ((in_rack("n1", tainted=[GONE]),), 0.0),
        ((), 0.0),
        ((in_rack("n1", cordoned=True), in_rack("n4")), None),
        ((in_rack("n1", ready=False, since=90.0), in_rack("n4", ready=False, since=80.0)), 50.0),  # it may come back
        ((in_rack("n1", ready=False, since=10.0), in_rack("n4", cordoned=True)), -30.0),
        ((in_rack("n1", ready=False),), None),
    ],
)
def test_domain_closes_once_none_of_its_nodes_takes_pods(own: tuple[NodeView, ...], seconds: float | None) -> None:
    nodes = Nodes(*own, in_rack("n2", "r2"), node("n3"))
    assert node_view.closes_in(nodes, "rack=r1", KEYS, 60.0, 100.0) == seconds
    nodes.failing = "no connection"
    assert node_view.closes_in(nodes, "rack=r1", KEYS, 60.0, 100.0) is None


def test_departures_are_unknown_without_a_cache() -> None:
    unread = Nodes(node("n1", cordoned=True), node("n2"))
    unread.synced = False
    of = job({"Worker": task(2)})
    assert node_view.departures(unread, PODS, of, KEYS) == node_view.departures(None, PODS, of, KEYS) == {}


def test_leaving_nodes_include_tainted_ones() -> None:
    nodes = Nodes(node("n1"), node("n2", tainted=[GONE]))
    assert node_view.leaving(nodes, PODS, KEYS) == {"n2"}
    assert node_view.leaving(nodes, PODS, ()) == frozenset()


@pytest.mark.parametrize(
    "spec", [{}, {"taints": None}, {"taints": "x"}, {"taints": [None, {"effect": "NoSchedule"}, {"key": 7}]}]
)
def test_taints_that_cannot_be_read_are_left_out(spec: dict[str, Any]) -> None:
    assert node_requirements.read_taints(spec) == ()
    assert node_view.trim({"metadata": {"name": "n1"}, "spec": spec}).taints == ()


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "value": "a"}, True),
        ({"key": "gpu", "value": "b"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "a"}, False),
        (None, False),
    ],
)
def test_tolerates_all(toleration: Any, tolerated: bool) -> None:
    spec = {**template()["spec"], "tolerations": [toleration]}
    assert (
        node_requirements.tolerates_all(spec, [Taint("gpu", "a", "NoSchedule"), Taint("x", "", "PreferNoSchedule")])
        is tolerated
    )
