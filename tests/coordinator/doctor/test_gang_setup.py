"""What `torchq doctor` finds about the set-up of gang schedulers."""

from typing import Any

import pytest

from coordinator.cache.routing_rules import RoutingRules
from coordinator.doctor import findings
from coordinator.doctor.gang_setup import SILENT_SECONDS, GangSetup
from crds import labels, timestamps
from crds.api_resources import ALPHA_POD_GROUPS, NATIVE_POD_GROUPS, POD_GROUPS, Resource
from crds.tenantqueue import TenantQueueSpec
from gang.values import GangQueue, GroupView
from tests.support.coordinator.builders import KEY, admission, job

NOW = 1_000_000.0
OLD = NOW - SILENT_SECONDS


def pod(scheduler: str = "volcano", since: float = OLD, node: str = "", *, told: bool = False) -> dict[str, Any]:
    metadata = {"name": "one-0", "namespace": "team", "labels": {labels.JOB_UID: KEY.uid}}
    return {
        "metadata": {**metadata, "creationTimestamp": timestamps.format_time(since)},
        "spec": {"schedulerName": scheduler, **({"nodeName": node} if node else {})},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False"}] if told else []},
    }


def group(resource: Resource = POD_GROUPS, **more: Any) -> GroupView:
    own = {"namespace": "team", "name": "one-0", "uid": "g", "job_uid": KEY.uid, "attempt": 1, "since": OLD}
    return GroupView(resource=resource, **{**own, **more})


def found(setup: GangSetup, *pods: dict[str, Any], scheduler: str = "volcano", **queue: Any) -> list[tuple[str, str]]:
    setup.now = NOW
    for each in pods:
        setup.note_pod(each)
    jobs = {KEY: job(admission=admission(gang_scheduler=scheduler), gang_queue=queue.pop("named", ""))}
    rules = RoutingRules(queues={"a": TenantQueueSpec(**queue)})
    return [(each.code, each.subject) for each in setup.findings(jobs, rules)]


@pytest.mark.parametrize(
    ("pods", "groups", "expected"),
    [
        ([pod()], [], "gang-scheduler-silent"),
        ([pod("mine")], [], "gang-scheduler-silent"),
        ([pod(told=True)], [], ""),
        ([pod(since=NOW - 1)], [], ""),
        ([pod(node="n1")], [], ""),
        ([], [group(seen=False)], "gang-scheduler-silent"),
        ([], [group(seen=False, since=NOW)], ""),
        ([], [group()], ""),
    ],
)
def test_a_scheduler_that_writes_nothing_is_named(pods: Any, groups: list[GroupView], expected: str) -> None:
    named = pods[0]["spec"]["schedulerName"] if pods else "volcano"
    assert found(GangSetup(groups=groups), *pods) == ([(expected, f"scheduler {named}")] if expected else [])


def test_a_kind_that_is_not_served_in_the_version_that_torchq_writes_is_named() -> None:
    assert found(GangSetup(lambda _: False))[0] == ("gang-kind-missing", "gang scheduler volcano")
    only_alpha = GangSetup(lambda kind: kind == ALPHA_POD_GROUPS)
    assert found(only_alpha, scheduler="kubernetes") == []
    assert found(GangSetup(lambda _: False), scheduler="none") == []


@pytest.mark.parametrize(
    ("seen", "node", "expected"), [(False, "n1", ["gang-gate-off"]), (True, "n1", []), (False, "", [])]
)
def test_bound_pods_of_a_group_without_a_condition_show_a_missing_gate(
    seen: bool, node: str, expected: list[str]
) -> None:
    setup = GangSetup(groups=[group(NATIVE_POD_GROUPS, seen=seen)])
    codes = [code for code, _ in found(setup, pod("default-scheduler", node=node, told=True), scheduler="kubernetes")]
    assert codes == expected


def test_gang_queues_that_are_named_exist_and_are_open() -> None:
    queues = {"open": GangQueue(name="open"), "shut": GangQueue(name="shut", refusal="Volcano's queue shut is Closed")}
    for fields in ({"gang_queues": ("open", "shut")}, {"gang_queue": "shut"}, {"named": "shut"}):
        assert found(GangSetup(queues=queues), **fields) == [("gang-queue", "gang queue shut")]
    assert found(GangSetup(queues={}), named="gone") == [("gang-queue", "gang queue gone")]
    assert found(GangSetup(), named="gone") == [], "there is no finding if the queues may not be read"


def test_pods_of_coscheduling_name_a_scheduler() -> None:
    bound = pod("default-scheduler", node="n1")
    assert found(GangSetup(), bound, scheduler="coscheduling") == [("gang-scheduler-name", str(KEY))]
    assert found(GangSetup(), pod("second", node="n1"), scheduler="coscheduling") == []


def test_findings_about_the_set_up_have_remedies_and_fail_nothing() -> None:
    assert findings.REMEDIES.keys() >= set(findings.GANG_SETUP)
    assert set(findings.GANG_SETUP) <= findings.HARMLESS & findings.NOT_REPAIRABLE
