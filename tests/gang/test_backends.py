"""The objects that torchq writes for each gang scheduler, and the fields that torchq reads back."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from crds import labels
from crds.api_resources import (
    ALPHA_POD_GROUPS,
    COSCHEDULING_POD_GROUPS,
    GANG_QUEUES,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    Resource,
)
from crds.torchjob.jobspec import GangScheduler
from gang import backends
from gang.values import Gang, GroupView

OWNER = {
    "apiVersion": "train.distributed.io/v1alpha1",
    "kind": "TorchJob",
    "name": "digits",
    "uid": "u1",
    "controller": True,
}
GANG = Gang(
    name="digits-0",
    namespace="team",
    owner=OWNER,
    labels={labels.JOB_NAME: "digits", labels.JOB_UID: "u1", labels.ATTEMPT: "2"},
    minimum={"master": 1, "worker": 3},
    total=6,
    resources={"cpu": 3500, "memory": 4 * 2**30, "nvidia.com/gpu": 4},
    queue="research",
    priority_class="high",
)
RESOURCES = {"cpu": "3500m", "memory": "4Gi", "nvidia.com/gpu": "4"}
SIZES: dict[str, dict[str, Any]] = {
    "volcano": {"minMember": 4, "minTaskMember": {"master": 1, "worker": 3}, "minResources": RESOURCES},
    "coscheduling": {"minMember": 4, "minResources": RESOURCES},
    "kubernetes": {"schedulingPolicy": {"gang": {"minCount": 4}}},
}
KIND_OF: dict[str, Resource] = {
    "volcano": POD_GROUPS,
    "coscheduling": COSCHEDULING_POD_GROUPS,
    "kubernetes": NATIVE_POD_GROUPS,
}


def made(name: str, gang: Gang = GANG) -> dict[str, Any]:
    """Return the group of a gang as an API server returns the group."""
    found = backends.get_backend(name).create(gang)
    assert found is not None
    return {**found, "metadata": {**found["metadata"], "uid": "g1", "resourceVersion": "7"}}


def view(name: str, gang: Gang = GANG, **more: Any) -> GroupView:
    return backends.get_backend(name).trim({**made(name, gang), **more})


def test_every_gang_scheduler_has_a_backend() -> None:
    assert set(backends.BACKENDS) == set(GangScheduler.__args__) - {""}  # type: ignore[attr-defined]
    assert {name: each.name for name, each in backends.BACKENDS.items()} == {name: name for name in backends.BACKENDS}


@pytest.mark.parametrize("name", SIZES)
def test_create_returns_pod_group_of_gang(name: str) -> None:
    body = backends.get_backend(name).create(GANG)
    assert body is not None
    assert (body["apiVersion"], body["kind"]) == (KIND_OF[name].api_version, "PodGroup")
    assert body["metadata"] == {
        "name": "digits-0",
        "namespace": "team",
        "labels": dict(GANG.labels),
        "ownerReferences": [OWNER],
    }
    assert {field: body["spec"][field] for field in SIZES[name]} == SIZES[name]


def test_volcano_group_has_queue_and_priority_class_if_set() -> None:
    assert made("volcano")["spec"] == SIZES["volcano"] | {"queue": "research", "priorityClassName": "high"}
    assert made("volcano", replace(GANG, queue="", priority_class=""))["spec"] == SIZES["volcano"]


BINDINGS: dict[str, tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Any]]] = {
    "none": ({}, {}, {}),
    "volcano": (
        {},
        {
            "scheduling.k8s.io/group-name": "digits-0",
            "scheduling.volcano.sh/group-name": "digits-0",
            "volcano.sh/task-spec": "worker",
        },
        {"schedulerName": "volcano"},
    ),
    "koordinator": (
        {},
        {
            "gang.scheduling.koordinator.sh/name": "digits-0-4",
            "gang.scheduling.koordinator.sh/min-available": "4",
            "gang.scheduling.koordinator.sh/total-number": "4",
            "gang.scheduling.koordinator.sh/mode": "Strict",
            "gang.scheduling.koordinator.sh/match-policy": "waiting-and-running",
            "gang.scheduling.koordinator.sh/waiting-time": "600s",
        },
        {"schedulerName": "koord-scheduler"},
    ),
    "coscheduling": ({"scheduling.x-k8s.io/pod-group": "digits-0"}, {}, {}),
    "kubernetes": ({}, {}, {"schedulingGroup": {"podGroupName": "digits-0"}}),
}


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_bind_returns_fields_of_backend(name: str) -> None:
    found = backends.get_backend(name).bind(GANG, "worker")
    assert (found.labels, found.annotations, found.spec) == BINDINGS[name]
    assert backends.get_backend(name).together is (name != "none")


def test_pods_of_coscheduling_get_the_scheduler_of_the_setting() -> None:
    named = backends.get_backend("coscheduling", coscheduler="scheduler-plugins-scheduler")
    assert named.bind(GANG, "worker").spec == {"schedulerName": "scheduler-plugins-scheduler"}
    assert backends.get_backend("volcano", coscheduler="scheduler-plugins-scheduler").scheduler == "volcano"


ALONE = {"volcano": "volcano", "koordinator": "koord-scheduler", "coscheduling": "plugins"}


def test_setting_says_whether_volcano_may_preempt_pods() -> None:
    marked = {"volcano.sh/preemptable": "false"}
    found = backends.get_backend("volcano", preemptable="false")
    group = found.create(GANG)
    assert group is not None
    assert group["metadata"]["annotations"] == marked
    for binding in (found.bind(GANG, "worker"), found.bind_alone("")):
        assert marked.items() <= binding.annotations.items()
    assert not {*marked} & {*backends.get_backend("volcano").bind(GANG, "worker").annotations}


@pytest.mark.parametrize("name", backends.BACKENDS)
def test_pod_of_no_gang_is_bound_alone_by_the_same_scheduler(name: str) -> None:
    found = backends.get_backend(name, coscheduler="plugins").bind_alone("research")
    assert (found.labels, found.spec.get("schedulerName")) == ({}, ALONE.get(name))
    queue = {"scheduling.volcano.sh/queue-name": "research"} if name == "volcano" else {}
    assert found.annotations == queue


@pytest.mark.parametrize("name", ["none", "koordinator"])
def test_backend_without_group_creates_and_resizes_nothing(name: str) -> None:
    backend = backends.get_backend(name)
    assert (backend.resource, backend.create(GANG), backend.resize(GANG, view("volcano"))) == (None, None, None)


@pytest.mark.parametrize("name", SIZES)
class TestSize:
    def test_resize_of_matching_group_returns_none(self, name: str) -> None:
        assert backends.get_backend(name).resize(GANG, view(name)) is None

    def test_resize_changes_all_sizes_together(self, name: str) -> None:
        smaller = replace(GANG, minimum={"master": 1, "worker": 1}, resources={"cpu": 2000, "memory": 2 * 2**30})
        change = backends.get_backend(name).resize(smaller, view(name))
        assert change is not None
        gone = {"nvidia.com/gpu": None}
        expected = {
            "volcano": {"minMember": 2, "minTaskMember": {"worker": 1}},
            "coscheduling": {"minMember": 2},
            "kubernetes": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }[name]
        resources = {} if name == "kubernetes" else {"minResources": {"cpu": "2", "memory": "2Gi"} | gone}
        assert change == {"spec": expected | resources}

    def test_resize_removes_missing_task(self, name: str) -> None:
        alone = replace(GANG, minimum={"master": 1})
        change = backends.get_backend(name).resize(alone, view(name))
        assert change is not None
        if name == "volcano":
            assert change["spec"]["minTaskMember"] == {"worker": None}

    def test_resize_ignores_equal_amounts_in_other_notation(self, name: str) -> None:
        other = made(name)
        if "minResources" in other["spec"]:
            other["spec"]["minResources"] = {"cpu": "3.5", "memory": "4194304Ki", "nvidia.com/gpu": 4}
        assert backends.get_backend(name).resize(GANG, backends.get_backend(name).trim(other)) is None

    def test_trim_returns_view_of_group(self, name: str) -> None:
        found = view(name)
        assert (found.namespace, found.name, found.uid, found.version) == ("team", "digits-0", "g1", 7)
        assert (found.job_uid, found.attempt, found.deleting) == ("u1", 2, False)
        assert found.spec == SIZES[name]
        assert found.resource == KIND_OF[name]
        going = made(name)
        going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": []}
        gone = backends.get_backend(name).trim(going)
        assert (gone.deleting, gone.job_uid) == (True, ""), "with a label but no owner, it belongs to no job"


def test_kubernetes_backend_uses_served_version() -> None:
    assert (
        backends.get_backend("kubernetes", {NATIVE_POD_GROUPS, ALPHA_POD_GROUPS}.__contains__).resource
        == NATIVE_POD_GROUPS
    )
    alpha = backends.get_backend("kubernetes", {ALPHA_POD_GROUPS}.__contains__)
    assert alpha.resource == ALPHA_POD_GROUPS
    assert backends.get_backend("kubernetes", lambda _: False).resource == NATIVE_POD_GROUPS
    assert (alpha.is_fixed, backends.get_backend("kubernetes").is_fixed) == (True, False)


def test_backend_is_found_by_kind_of_its_group() -> None:
    assert [backends.get_backend_of_kind(each).resource for each in backends.KINDS] == list(backends.KINDS)
    with pytest.raises(KeyError):
        backends.get_backend_of_kind(GANG_QUEUES)


@pytest.mark.parametrize("name", [None, "", "none", "nobody"])
def test_unknown_or_missing_name_gives_backend_none(name: str | None) -> None:
    assert backends.get_backend(name) is backends.NONE


PHASES = [
    (None, "Pending"),
    ("", "Pending"),
    ("Pending", "Pending"),
    ("Inqueue", "Ready"),
    ("Running", "Ready"),
    ("Unknown", "Ready"),
    ("Completed", "Ready"),
]


@pytest.mark.parametrize(("said", "phase"), PHASES)
def test_phase_of_volcano_group_is_mapped(said: str | None, phase: str) -> None:
    found = view("volcano", status={} if said is None else {"phase": said})
    assert (found.phase, bool(found.message)) == (phase, phase == "Pending")


def test_message_of_pending_volcano_group_contains_no_numbers() -> None:
    condition = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "2/4 tasks"}
    found = view("volcano", status={"phase": "Pending", "conditions": [condition]})
    assert found.message == "Volcano has not let the group in yet: it has no room for the gang"
    assert found.queue == "research"
    assert view("volcano", replace(GANG, queue="")).queue == "default"


def volcano_condition(kind: str, at: int, **fields: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-02T03:04:{at:02}Z", **fields}


ORIGIN = (
    "2/4 tasks in gang unschedulable: pod group is not ready. Origin reason is digits-worker-1: 2 Insufficient gpu."
)


@pytest.mark.parametrize(
    ("bound_at", "cause"), [(9, ": it has no room for the gang: digits-worker-1: 2 Insufficient gpu"), (11, "")]
)
def test_newer_condition_of_volcano_group_counts(bound_at: int, cause: str) -> None:
    against = volcano_condition("Unschedulable", 10, reason="NotEnoughResources", message=ORIGIN)
    conditions = [against, volcano_condition("Scheduled", bound_at)]
    found = view("volcano", status={"phase": "Pending", "conditions": conditions})
    assert found.message == f"Volcano has not let the group in yet{cause}"
    assert found.explained is bool(cause)


UNBOUND = {"type": "PodGroupInitiallyScheduled", "status": "False", "message": "3 Insufficient cpu"}
REPORTS: list[tuple[str, dict[str, Any], bool, str]] = [
    ("volcano", {}, False, "Volcano has not let the group in yet"),
    ("volcano", {"phase": "Running"}, True, ""),
    ("coscheduling", {}, False, ""),
    ("coscheduling", {"phase": "Scheduling"}, True, "its pods are not bound yet: the group is Scheduling"),
    ("coscheduling", {"phase": "Failed"}, True, ""),
    ("kubernetes", {}, False, ""),
    ("kubernetes", {"conditions": [UNBOUND]}, True, "its pods are not bound yet: 3 Insufficient cpu"),
    ("kubernetes", {"conditions": [{**UNBOUND, "type": "PodGroupScheduled", "status": "True"}]}, True, ""),
]


@pytest.mark.parametrize(("name", "status", "seen", "message"), REPORTS)
def test_trim_returns_what_the_scheduler_reports(name: str, status: dict[str, Any], seen: bool, message: str) -> None:
    found = view(name, status=status)
    assert (found.seen, found.message) == (seen, message)


@pytest.mark.parametrize("name", ["coscheduling", "kubernetes"])
def test_groups_of_other_schedulers_are_ready_at_once(name: str) -> None:
    assert view(name, status={"phase": "Pending"}).phase == "Ready"


QUEUES = [
    (None, "GangQueueMissing"),
    ({}, None),
    ({"state": "Open"}, None),
    ({"state": "Unknown"}, "GangQueueClosed"),
    ({"state": "Closing"}, "GangQueueClosed"),
    ({"state": "Closed"}, "GangQueueClosed"),
]


@pytest.mark.parametrize(("status", "reason"), QUEUES)
def test_volcano_queue_that_is_not_open_is_refused(status: dict[str, str] | None, reason: str | None) -> None:
    found = backends.get_backend("volcano").refusal("research", None if status is None else {"status": status})
    assert (found[0] if found else None) == reason
    if found:
        assert "research" in found[1]
        assert "spec.schedulingPolicy.gangQueue" in found[1]
