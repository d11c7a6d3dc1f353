"""Placement of pods on the node, as tables and as properties."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds import labels
from crds.resources.amounts import add, fits
from embedded import pod as pod_fields
from embedded.pod import LocalPod
from embedded.scheduler import placement
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.placement import Bind, Wait

ALLOCATABLE = {"cpu": 8000, "memory": 1000, "nvidia.com/gpu": 4, "pods": 10}
NODE = Node("local", ALLOCATABLE, {"kubernetes.io/os": "linux"})


def pod(name: str, age: int = 0, **given: Any) -> LocalPod:
    """Return a pod.

    The options cpu, gpus, port, gang, size, owner, node, phase and deleting set its resources, metadata and status.
    All other options become fields of its spec.
    """
    resources = {"cpu": str(given.pop("cpu", 1)), "nvidia.com/gpu": str(given.pop("gpus", 0))}
    annotations = {labels.GANG: given.pop("gang", None), labels.GANG_SIZE: given.pop("size", None)}
    owner = given.pop("owner", None)
    port = given.pop("port", None)
    container = {
        "name": "c",
        "resources": {"requests": resources},
        "ports": [{"containerPort": port, "hostPort": port}] if port else [],
    }
    metadata = {
        "namespace": given.pop("namespace", "ns"),
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
        "annotations": {key: str(value) for key, value in annotations.items() if value is not None},
        "ownerReferences": [{"uid": owner, "controller": True}] if owner else [],
        **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if given.pop("deleting", False) else {}),
    }
    status = {"phase": given.pop("phase", "Pending")}
    spec = {"containers": [container], "nodeName": given.pop("node", ""), **given}
    return pod_fields.read({"metadata": metadata, "spec": spec, "status": status})


def bound(*pods: LocalPod) -> list[str]:
    return [decision.pod.name for decision in placement.place(pods, NODE) if isinstance(decision, Bind)]


def reasons(*pods: LocalPod) -> dict[str, str]:
    return {each.pod.name: each.message for each in placement.place(pods, NODE) if isinstance(each, Wait)}


TABLE = {
    "pods that fit are bound, the oldest first": ([pod("b", 2), pod("a", 1)], ["a", "b"]),
    "a pod that does not fit does not block others": ([pod("a", 1, cpu=9), pod("b", 2)], ["b"]),
    "a group is bound whole or not at all": (
        [pod("a1", 1, gang="a", cpu=5), pod("a2", 2, gang="a", cpu=5), pod("b", 3, cpu=8)],
        ["b"],
    ),
    "masters of two jobs that fill the node do not deadlock": (
        [pod(f"{job}{i}", i, owner=job, cpu=4) for i in range(2) for job in "ab"],
        ["a0", "a1"],
    ),
    "a pod of another namespace joins no group": (
        [pod("a1", 1, gang="a", cpu=5), pod("b", 2, gang="a", size=9, cpu=5, namespace="other")],
        ["a1"],
    ),
    "a pod of another namespace with the same owner joins no group": (
        [pod("a1", 1, owner="u", cpu=5), pod("b", 2, owner="u", cpu=5, namespace="other")],
        ["a1"],
    ),
    "an invalid pod does not block others": (
        [pod("a", 1, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 7}}), pod("b", 2)],
        ["b"],
    ),
    "an incomplete group waits": ([pod("a1", 1, gang="a", size=2), pod("b", 2)], ["b"]),
    "a complete group is bound": ([pod("a1", 1, gang="a", size=2), pod("a2", 9, gang="a", size=2)], ["a1", "a2"]),
    "a pod being deleted does not complete a group": (
        [pod("a1", 1, gang="a", size=2), pod("a2", 1, gang="a", size=2, deleting=True)],
        [],
    ),
    "a replacement is bound alone, before new pods": (
        [pod("a1", 3, gang="a", size=2, node="local"), pod("a2", 9, gang="a", size=2, cpu=7), pod("b", 1, cpu=7)],
        ["a2"],
    ),
    "a replacement is bound if the bound pods have failed": (
        [pod("a1", 3, gang="a", size=2, node="local", phase="Failed"), pod("a2", 9, gang="a", size=2)],
        ["a2"],
    ),
    "bound pods use capacity": (
        [pod("a", node="local", cpu=8), pod("b", cpu=1)],
        [],
    ),
    "finished pods use no capacity": ([pod("a", node="local", cpu=8, phase="Succeeded"), pod("b", cpu=8)], ["b"]),
    "terminating pods use capacity": ([pod("a", node="local", cpu=8, deleting=True), pod("b", cpu=1)], []),
    "pods of another node use no capacity": ([pod("a", node="other", cpu=8), pod("b", cpu=8)], ["b"]),
    "gpus are counted": ([pod("a", 1, gpus=3), pod("b", 2, gpus=2), pod("c", 3, gpus=1)], ["a", "c"]),
    "a host port is used by one pod only": (
        [pod("a", 1, port=80), pod("b", 2, port=80), pod("c", 3, port=81)],
        ["a", "c"],
    ),
    "a group cannot use a host port twice": ([pod("a1", 1, port=80, gang="a"), pod("a2", 2, port=80, gang="a")], []),
    "pods of other schedulers are ignored": (
        [pod("a", schedulerName="other"), pod("b", schedulerName="volcano")],
        ["b"],
    ),
    "a pod with a scheduling gate waits": ([pod("a", schedulingGates=[{"name": "g"}])], []),
    "a node selector must match the labels of the node": (
        [pod("a", nodeSelector={"kubernetes.io/os": "linux"}), pod("b", nodeSelector={"disk": "ssd"})],
        ["a"],
    ),
    "the node runs a limited number of pods": (
        [pod(f"{i:02}", i, cpu=0) for i in range(12)],
        [f"{i:02}" for i in range(10)],
    ),
}


@pytest.mark.parametrize(("pods", "expected"), TABLE.values(), ids=TABLE.keys())
def test_place_binds_the_expected_pods(pods: list[LocalPod], expected: list[str]) -> None:
    assert bound(*pods) == expected


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod("a", gpus=2), pod("x", node="local", gpus=3)], "insufficient nvidia.com/gpu"),
        ([pod("a", gpus=5)], "the whole node has less nvidia.com/gpu than requested"),
        ([pod("a", gang="g", size=3)], "the group has not all of its 3 pods yet"),
        ([pod("a", port=80), pod("x", node="local", port=80)], "host port 80 is taken"),
        ([pod("a", nodeSelector={"disk": "ssd"})], "disk=ssd"),
        (
            [pod("a", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}})],
            "podAntiAffinity",
        ),
    ],
)
def test_a_waiting_pod_has_the_reason_that_it_does_not_fit(pods: list[LocalPod], expected: str) -> None:
    assert expected in reasons(*pods)["a"]


def test_a_pod_of_another_scheduler_gets_no_decision() -> None:
    assert placement.place([pod("a", schedulerName="other")], NODE) == []


PODS = st.lists(
    st.builds(
        lambda gang, size, cpu, gpus, port, node, phase, age: (gang, size, cpu, gpus, port, node, phase, age),
        st.sampled_from("abcde"),
        st.integers(0, 4),
        st.integers(0, 6),
        st.integers(0, 3),
        st.sampled_from([None, None, 80, 81]),
        st.sampled_from(["", "", "", "local", "other"]),
        st.sampled_from(["Pending", "Running", "Succeeded"]),
        st.integers(0, 59),
    ),
    max_size=16,
)


@settings(deadline=None)
@given(PODS)
def test_place_never_overcommits_the_node_or_binds_part_of_a_group(drawn: list[tuple[Any, ...]]) -> None:
    pods = []
    for index, (gang, size, cpu, gpus, port, node, phase, age) in enumerate(drawn):
        taken = {} if node == "local" else {"port": port}
        given = {"gang": gang, "size": size, "cpu": cpu, "gpus": gpus, "node": node, **taken}
        pods.append(pod(f"p{index}", age, phase=phase if node else "Pending", **given))
    decisions = placement.place(pods, NODE)
    chosen = [each.pod for each in decisions if isinstance(each, Bind)]
    waiting = [each for each in pods if not each.node and not each.is_finished]
    assert sorted(each.pod.name for each in decisions) == sorted(each.name for each in waiting)

    used: dict[str, int] = {}
    for each in pods:
        if each.node == "local" and not each.is_finished:
            used = add(used, each.demand)
    if fits(used, {}, NODE.allocatable):  # the drawn pods may exceed the node from the start
        for each in chosen:
            used = add(used, each.demand)
        assert not chosen or fits(used, {}, NODE.allocatable)
    ports = [port for each in chosen for port in each.ports]
    assert len(ports) == len(set(ports))

    begun = {each.group for each in pods if each.node}
    groups: dict[str, list[LocalPod]] = defaultdict(list)
    for each in waiting:
        groups[each.group].append(each)
    for name, members in groups.items():
        count = sum(each in chosen for each in members)
        if name not in begun:
            assert count in (0, len(members))
