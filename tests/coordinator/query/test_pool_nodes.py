"""The nodes of the pool by shape: what is free, the largest pod that fits, and what is in fragments."""

from typing import Any

import pytest

from coordinator.cache.node_views import NodeFree
from coordinator.query import pool_nodes
from coordinator.query.questions import Document
from crds.resources.amounts import Amounts
from tests.support.coordinator.builders import node
from tests.support.queues.builders import GPU

GIB = 2**30
WHOLE = {GPU: 8, "cpu": 64_000, "memory": 512 * GIB, "pods": 100}
CPUS = {"cpu": 16_000, "memory": 64 * GIB, "pods": 100}


def machine(offer: Amounts = WHOLE, *, ready: bool = True, foreign: Amounts | None = None, **free: int) -> NodeFree:
    left = {**offer, **{GPU if name == "gpu" else name: amount for name, amount in free.items()}}
    return NodeFree(node(allocatable=offer, ready=ready), left, foreign or {})


def rows(*nodes: NodeFree) -> list[Document]:
    return pool_nodes.document("nodes", nodes, "leader")["items"]


def test_alike_nodes_are_one_row_with_the_largest_pod_and_the_fragments() -> None:
    nodes = [machine()] * 3 + [machine(gpu=4, cpu=40_000)] * 2 + [machine(gpu=0)] + [machine(ready=False)]
    assert rows(*nodes) == [
        {
            "shape": {"cpu": "64", "memory": "512Gi", GPU: "8"},
            "resource": GPU,
            "nodes": 7,
            "ready": 6,
            "capacity": {GPU: "56", "cpu": "448", "memory": "3584Gi"},
            "free": {GPU: "32", "cpu": "336", "memory": "3Ti"},
            "largestPod": {GPU: "8", "cpu": "64", "memory": "512Gi"},
            "largestPodNodes": 3,
            "fragments": "8",
        }
    ]


def test_the_largest_pod_asks_for_what_each_of_its_nodes_has() -> None:
    (row,) = rows(machine(gpu=4, cpu=20_500), machine(gpu=4, cpu=40_000, memory=100 * GIB + 1), machine(gpu=2))
    assert (row["largestPod"], row["largestPodNodes"]) == ({GPU: "4", "cpu": "20", "memory": "100Gi"}, 2)
    assert row["fragments"] == "10"


@pytest.mark.parametrize("gone", [{"cpu": 0}, {"memory": -5}, {"pods": 0}])
def test_devices_of_a_node_that_takes_no_pod_are_free_in_fragments(gone: dict[str, int]) -> None:
    (row,) = rows(machine(**gone))
    assert (row["free"][GPU], row["largestPod"], row["largestPodNodes"], row["fragments"]) == ("8", {}, 0, "8")


def test_nodes_without_gpus_count_cpu_and_what_daemons_use_makes_no_fragments() -> None:
    daemons = {"cpu": 500, "pods": 3}
    (row,) = rows(
        machine(CPUS, foreign=daemons, cpu=15_500),
        machine(CPUS, foreign=daemons, cpu=15_700),
        machine(CPUS, foreign=daemons, cpu=3_500),
    )
    assert (row["resource"], row["fragments"]) == ("cpu", "3")
    assert (row["largestPod"]["cpu"], row["largestPodNodes"]) == ("15", 2)
    assert pool_nodes.fragments([machine(CPUS, foreign=daemons, cpu=3_500), machine(gpu=3), machine()]) == {
        "cpu": 3_500,
        GPU: 3,
    }


def test_nodes_that_differ_by_less_than_a_core_and_a_gib_are_alike() -> None:
    near = {**WHOLE, "cpu": 64_900, "memory": 512 * GIB + 5}
    (row,) = rows(machine(), machine(near))
    assert (row["nodes"], row["largestPodNodes"]) == (2, 2)


def test_rows_begin_with_the_largest_devices() -> None:
    small = {**WHOLE, GPU: 2}
    found = rows(machine(CPUS), machine(small), machine(), machine({**CPUS, "amd.com/gpu": 4}))
    assert [row["shape"].get(row["resource"]) for row in found] == ["8", "4", "2", "16"]


def test_a_node_that_is_used_beyond_what_it_offers_has_nothing_free() -> None:
    (row,) = rows(machine(gpu=-2), machine(gpu=3))
    assert (row["free"][GPU], row["fragments"]) == ("3", "3")


@pytest.mark.parametrize("offer", [{}, {"cpu": 0}, {"cpu": 10**18, "memory": 10**18, "pods": 1, GPU: 10**18}])
def test_odd_amounts_are_shown(offer: dict[str, Any]) -> None:
    (row,) = rows(machine(offer))
    assert row["nodes"] == 1


@pytest.mark.parametrize(
    ("kind", "words"), [("nodes", "has no node"), ("numbers", "in numbers"), ("none", "has no limit")]
)
def test_without_rows_the_document_says_why(kind: Any, words: str) -> None:
    found = pool_nodes.document(kind, (), "replica")
    assert (found["items"], found["source"], found["pool"]) == ([], "replica", kind)
    assert words in found["message"]
