"""Placement of pods of PodGroups and the status of the groups, as tables and as properties."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crds import labels
from crds.resources.amounts import add, fits
from embedded import pod as pod_fields
from embedded.pod import LocalPod
from embedded.scheduler import placement, podgroup_status, podgroups
from embedded.scheduler.node_capacity import Node
from embedded.scheduler.placement import Bind, Hold, Wait
from embedded.scheduler.podgroups import Gangs, PodGroup

NODE = Node("local", {"cpu": 8000, "nvidia.com/gpu": 4, "pods": 20}, {})
NOW = 1_800_000_000.0


def member(name: str, group: str = "g", age: int = 0, **given: Any) -> LocalPod:
    """Return a pod of a PodGroup.

    The options cpu, gpus, port, task, node, phase, deleting and annotations set its resources, metadata and status.
    All other options become fields of its spec.
    """
    resources = {"cpu": str(given.pop("cpu", 1)), "nvidia.com/gpu": str(given.pop("gpus", 0))}
    own = {"scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": given.pop("task", "")}
    metadata = {
        "namespace": "ns",
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": f"2026-01-01T00:00:{age:02}Z",
        "annotations": {**{key: value for key, value in own.items() if value}, **given.pop("annotations", {})},
        "labels": given.pop("labels", {}),
        "ownerReferences": [{"uid": "an-owner", "controller": True}],
        **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if given.pop("deleting", False) else {}),
    }
    port = given.pop("port", None)
    ports = [{"containerPort": port, "hostPort": port}] if port else []
    status = {"phase": given.pop("phase", "Pending")}
    container = {"name": "c", "resources": {"requests": resources}, "ports": ports}
    spec = {"containers": [container], "schedulerName": "volcano", "nodeName": given.pop("node", ""), **given}
    return pod_fields.read({"metadata": metadata, "spec": spec, "status": status})


def known(*groups: PodGroup, **queues: bool) -> Gangs:
    return Gangs({group.key: group for group in groups}, {"default": True, **queues})


def group(minimum: int, name: str = "g", **given: Any) -> PodGroup:
    return PodGroup("ns", name, f"uid-{name}", minimum=minimum, **given)


def bound(pods: list[LocalPod], gangs: Gangs) -> list[str]:
    return [each.pod.name for each in placement.place(pods, NODE, gangs) if isinstance(each, Bind)]


def held(pods: list[LocalPod], gangs: Gangs) -> dict[str, str]:
    return {each.group.name: each.reason for each in placement.place(pods, NODE, gangs) if isinstance(each, Hold)}


A, B = group(2, "a"), group(2, "b")
RUNS = {"node": "local", "phase": "Running"}
TABLE: dict[str, tuple[list[LocalPod], Gangs, list[str], dict[str, str]]] = {
    "a minimum that fits is bound at once": ([member("m1"), member("m2")], known(group(2)), ["m1", "m2"], {}),
    "no pod of a minimum that does not fit is bound": (
        [member("m1", cpu=5), member("m2", cpu=5)],
        known(group(2)),
        [],
        {"g": "NotEnoughResources"},
    ),
    "pods beyond the minimum are bound as they fit": (
        [member(f"m{i}", cpu=3) for i in range(4)],
        known(group(2)),
        ["m0", "m1"],
        {},
    ),
    "the smallest pods fill the minimum": (
        [member("m1", cpu=8), member("m2"), member("m3")],
        known(group(2)),
        ["m2", "m3"],
        {},
    ),
    "a group waits for missing pods": ([member("m1")], known(group(2)), [], {"g": "NotEnoughTasks"}),
    "a group without pods waits": ([], known(group(2)), [], {"g": "NotEnoughTasks"}),
    "pods being deleted do not count": (
        [member("m1"), member("m2", deleting=True), member("m3", deleting=True, **RUNS)],
        known(group(2)),
        [],
        {"g": "NotEnoughTasks"},
    ),
    "failed pods do not count": (
        [member("m1"), member("m2", node="local", phase="Failed")],
        known(group(2)),
        [],
        {"g": "NotEnoughTasks"},
    ),
    "bound and succeeded pods count": (
        [member("m1", **RUNS), member("m2", phase="Succeeded", node="local"), member("m3")],
        known(group(3)),
        ["m3"],
        {},
    ),
    "a replacement is bound alone": (
        [member("m1", **RUNS), member("m2", node="local", phase="Failed"), member("m3"), member("m4", cpu=9)],
        known(group(2)),
        ["m3"],
        {},
    ),
    "a replacement is bound in a closed queue": (
        [member("m1", **RUNS), member("m2", **RUNS), member("m3")],
        known(group(2), default=False),
        ["m3"],
        {},
    ),
    "a group in a closed queue waits": ([member("m1")], known(group(1), default=False), [], {"g": "QueueNotOpen"}),
    "a group in a missing queue waits": ([member("m1")], known(group(1, queue="none")), [], {"g": "QueueNotOpen"}),
    "a pod without its group waits": ([member("m1")], known(), [], {}),
    "a group of another namespace is ignored": (
        [member("m1")],
        known(replace(group(1), namespace="other")),
        [],
        {"g": "NotEnoughTasks"},
    ),
    "minResources must fit the node": (
        [member("m1")],
        known(group(1, resources={"cpu": 9000})),
        [],
        {"g": "NotEnoughResources"},
    ),
    "minResources need not fit the free part of the node": (
        [member("m1"), member("x", "other", cpu=7, **RUNS)],
        known(group(1, resources={"cpu": 8000}), group(1, "other")),
        ["m1"],
        {},
    ),
    "each task has its own minimum": (
        [member("w1", task="worker"), member("w2", task="worker")],
        known(group(2, tasks={"master": 1, "worker": 1})),
        [],
        {"g": "NotEnoughPodsOfTask"},
    ),
    "minimums of tasks are bound first": (
        [member("w1", task="worker", cpu=3), member("w2", task="worker", cpu=3), member("m", task="master", cpu=4)],
        known(group(2, tasks={"master": 1, "worker": 1})),
        ["w1", "m"],
        {},
    ),
    "pods of another task do not replace a pod that does not fit": (
        [member("w1", task="worker"), member("w2", task="worker"), member("m", task="master", cpu=9)],
        known(group(2, tasks={"master": 1, "worker": 1})),
        [],
        {"g": "NotEnoughResources"},
    ),
    "a task can be a label": (
        [member("m1", labels={"volcano.sh/task-spec": "master"})],
        known(group(1, tasks={"master": 1})),
        ["m1"],
        {},
    ),
    "minimums of tasks above the minimum of the group are ignored": (
        [member("m1"), member("m2")],
        known(group(2, tasks={"master": 1, "worker": 2})),
        ["m1", "m2"],
        {},
    ),
    "two gangs do not deadlock if only one fits": (
        [member(f"{name}{i}", name, i, cpu=3) for i in range(2) for name in "ab"],
        known(A, B),
        ["a0", "a1"],
        {"b": "NotEnoughResources"},
    ),
    "a small gang passes one that does not fit": (
        [member("a0", "a", 1, cpu=5), member("a1", "a", 1, cpu=5), member("b0", "b", 2), member("b1", "b", 2)],
        known(A, B),
        ["b0", "b1"],
        {"a": "NotEnoughResources"},
    ),
    "a gang with bound pods comes before a new one": (
        [member("a0", "a", 9, cpu=4), member("a1", "a", 9, cpu=1, **RUNS), member("b0", "b", 1, cpu=4)],
        known(A, group(1, "b")),
        ["a0"],
        {"b": "NotEnoughResources"},
    ),
    "a host port is used by one pod only": ([member("m1", port=80), member("m2", port=80)], known(group(2)), [],
                                  {"g": "NotEnoughResources"}),
    "a pod with a scheduling gate waits": ([member("m1", schedulingGates=[{"name": "x"}])], known(group(1)), [],
                                           {"g": "NotEnoughResources"}),
    "a group without a minimum is bound as it fits": ([member("m1"), member("m2", cpu=9)], known(group(0)), ["m1"], {}),
    "pods of other schedulers do not belong to the group": (
        [member("m1", schedulerName="default-scheduler"), member("m2")],
        known(group(2)),
        ["m1"],
        {"g": "NotEnoughTasks"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "gangs", "expected", "holds"), TABLE.values(), ids=TABLE.keys())
def test_place_binds_the_expected_pods_of_groups(
    pods: list[LocalPod], gangs: Gangs, expected: list[str], holds: dict[str, str]
) -> None:
    assert sorted(bound(pods, gangs)) == sorted(expected)
    assert held(pods, gangs) == holds


def test_volcano_pods_without_a_group_are_bound_alone() -> None:
    alone = [member("m1", ""), member("m2", "", cpu=9)]
    assert bound(alone, known()) == ["m1"]
    gang = {labels.GANG: "x", labels.GANG_SIZE: "2"}
    assert bound([member("m1", "", annotations=gang)], known()) == []
    assert bound([member(name, "", annotations=gang) for name in ("m1", "m2")], known()) == ["m1", "m2"]


def test_every_waiting_pod_has_a_reason_with_stable_text() -> None:
    def messages(*pods: LocalPod, minimum: int = 2) -> dict[str, str]:
        decisions = placement.place(pods, NODE, known(group(minimum)))
        return {each.pod.name: each.message for each in decisions if isinstance(each, Wait)}

    assert messages(member("m1")) == {"m1": "not all of the group's 2 pods exist yet"}
    full = member("x", "", cpu=5, **RUNS)
    expected = "the minimum of the group does not fit together: insufficient cpu"
    assert messages(member("m1", cpu=2), member("m2", cpu=2), full) == dict.fromkeys(("m1", "m2"), expected)
    assert messages(member("m1"), member("m2"), member("m3", cpu=9)) == {
        "m3": "the whole node has less cpu than requested"
    }
    gated = messages(member("m1", schedulingGates=[{"name": "x"}]))
    assert gated == {"m1": "a scheduling gate is closed"}


GROUPS = st.fixed_dictionaries({name: st.integers(0, 4) for name in "abc"})
PODS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from(["", "", "", "", "local"]),
        st.sampled_from(["Running", "Succeeded", "Failed"]),
        st.integers(0, 59),
        st.booleans(),
    ),
    max_size=16,
)


def _drawn(drawn: list[tuple[Any, ...]]) -> list[LocalPod]:
    return [
        member(f"p{i}", name, age, cpu=cpu, gpus=gpus, node=node, phase=phase if node else "Pending", deleting=going)
        for i, (name, cpu, gpus, node, phase, age, going) in enumerate(drawn)
    ]


@settings(deadline=None)
@given(GROUPS, PODS)
def test_place_never_overcommits_the_node_or_binds_part_of_a_minimum(
    minimums: dict[str, int], drawn: list[tuple[Any, ...]]
) -> None:
    pods = _drawn(drawn)
    decisions = placement.place(pods, NODE, known(*(group(count, name) for name, count in minimums.items())))
    chosen = [each.pod for each in decisions if isinstance(each, Bind)]
    told = [each.pod.name for each in decisions if not isinstance(each, Hold)]
    assert sorted(told) == sorted(pod.name for pod in pods if not (pod.node or pod.is_finished or pod.is_deleting))

    used: dict[str, int] = {}
    for pod in [each for each in pods if each.node and not each.is_finished]:
        used = add(used, pod.demand)
    if fits(used, {}, NODE.allocatable):
        for pod in chosen:
            used = add(used, pod.demand)
        assert not chosen or fits(used, {}, NODE.allocatable)

    begun = [
        pod for pod in pods if (pod.node and not pod.is_deleting and pod.phase != "Failed") or pod.phase == "Succeeded"
    ]
    after = Counter(pod.pod_group for pod in (*begun, *chosen))
    for name in Counter(pod.pod_group for pod in chosen):
        assert after[name] >= minimums[name]  # a pod of a group that does not exist raises KeyError here


@settings(deadline=None)
@given(GROUPS, PODS)
def test_every_gang_that_fits_the_empty_node_runs_eventually(
    minimums: dict[str, int], drawn: list[tuple[Any, ...]]
) -> None:
    """Each round binds the chosen pods and then ends them, so that every gang gets its turn."""
    pods = [replace(pod, node="", phase="Pending", deletion_grace=None) for pod in _drawn(drawn)]
    gangs = known(*(group(count, name) for name, count in minimums.items()))
    for _ in range(len(pods) + 1):
        chosen = {each.pod.uid for each in placement.place(pods, NODE, gangs) if isinstance(each, Bind)}
        pods = [replace(pod, node="local", phase="Succeeded") if pod.uid in chosen else pod for pod in pods]
    for name, count in minimums.items():
        mine = [pod for pod in pods if pod.pod_group == name]
        smallest = sorted(mine, key=lambda pod: pod.demand.get("cpu", 0))[:count]
        total: dict[str, int] = {}
        for pod in mine:
            total = add(total, pod.demand)
        if len(smallest) == count and fits(total, {}, NODE.allocatable):
            assert all(pod.node for pod in mine)


STATUS: dict[str, tuple[list[LocalPod], Gangs, str, tuple[int, int, int], str]] = {
    "no pod exists": ([], known(group(2)), "Inqueue", (0, 0, 0), "NotEnoughTasks"),
    "the queue is closed": ([], known(group(2), default=False), "Pending", (0, 0, 0), "QueueNotOpen"),
    "the group is too large for the node": (
        [], known(group(2, resources={"cpu": 9000})), "Pending", (0, 0, 0), "NotEnoughResources"),
    "all pods are bound": (
        [member("m1", node="local"), member("m2", **RUNS)], known(group(2)), "Running", (1, 0, 0), ""),
    "one pod has failed": (
        [member("m1", node="local", phase="Failed"), member("m2", **RUNS)],
        known(group(2)),
        "Running",
        (1, 0, 1),
        "NotEnoughTasks",
    ),
    "one pod is deleted": ([member("m2", **RUNS)], known(group(2)), "Inqueue", (1, 0, 0), "NotEnoughTasks"),
    "all pods have succeeded": (
        [member(f"m{i}", node="local", phase="Succeeded") for i in range(3)],
        known(group(2)),
        "Completed",
        (0, 3, 0),
        "",
    ),
    "some pods of a completed group are deleted": (
        [member("m1", node="local", phase="Succeeded")],
        known(group(2, status={"phase": "Completed", "succeeded": 2})),
        "Completed",
        (0, 2, 0),
        "",
    ),
    "a completed group has a new pod": (
        [member("m1", node="local", phase="Succeeded"), member("m2", cpu=9)],
        known(group(2, status={"phase": "Completed", "succeeded": 2})),
        "Inqueue",
        (0, 1, 0),
        "NotEnoughResources",
    ),
    "all pods of a completed group are deleted": (
        [], known(group(2, status={"phase": "Completed", "succeeded": 2})), "Completed", (0, 2, 0), ""),
}  # fmt: skip


@pytest.mark.parametrize(("pods", "gangs", "phase", "counts", "reason"), STATUS.values(), ids=STATUS.keys())
def test_the_status_of_a_group_has_the_expected_phase_counts_and_reason(
    pods: list[LocalPod], gangs: Gangs, phase: str, counts: tuple[int, int, int], reason: str
) -> None:
    (told,) = gangs.groups.values()
    holds = [each for each in placement.place(pods, NODE, gangs) if isinstance(each, Hold)]
    found = podgroup_status.status(told, pods, next(iter(holds), None), NOW)
    assert found["phase"] == phase
    assert tuple(found.get(name, 0) for name in ("running", "succeeded", "failed")) == counts
    assert [each["reason"] for each in found.get("conditions", [])] == ([reason] if reason else [])
    later = podgroup_status.status(replace(told, status=found), pods, next(iter(holds), None), NOW + 60)
    assert not podgroup_status.differs(later, found)


def test_read_returns_a_pod_group_and_reports_invalid_resources() -> None:
    metadata = {"namespace": "ns", "name": "g", "uid": "u", "resourceVersion": "7"}
    assert podgroups.read({"metadata": metadata}) == PodGroup("ns", "g", "u", 7)
    spec = {"minMember": 2, "minTaskMember": {"w": 2}, "minResources": {"cpu": "1500m"}, "queue": "q"}
    assert podgroups.read({"metadata": metadata, "spec": spec}) == PodGroup(
        "ns", "g", "u", 7, 2, {"w": 2}, {"cpu": 1500}, "q"
    )
    odd = podgroups.read({"metadata": metadata, "spec": {"minResources": {"cpu": "many"}}})
    assert "spec.minResources cannot be read" in odd.problem


@pytest.mark.parametrize(
    ("state", "expected"), [(None, True), ("Open", True), ("Closed", False), ("Closing", False), ("Unknown", False)]
)
def test_a_queue_is_open_unless_its_state_says_otherwise(state: str | None, expected: bool) -> None:
    queue = {"metadata": {"name": "q"}, "status": {"state": state} if state else {}}
    assert podgroups.is_open(queue) is expected
