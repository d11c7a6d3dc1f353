"""The coordinator's views of objects, including invalid objects."""

from typing import Any

import pytest
from hypothesis import given, settings

from coordinator.cache import node_views, rule_views, views
from coordinator.cache.routing_rules import RoutingRules
from coordinator.routing import route
from coordinator.wording import queue_facts as queue
from crds.keys import JobKey
from crds.torchjob import cached_parser, demand
from tests.crds.schema.test_agreement import spoilt
from tests.support.coordinator import builders, desk


def stored(template: Any, status: Any = None) -> dict[str, Any]:
    """Return a job as the API server shows it."""
    body = desk.manifest("train", "a", tasks={"Worker": {"numTasks": 3, "template": template}})
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    return {**body, "metadata": {**body["metadata"], **given}, "status": status or {}}


def requests(**amounts: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "torch", "resources": {"requests": amounts}}]}}


def test_the_view_of_a_job_has_its_charge() -> None:
    view = views.job_view(stored(requests(cpu="500m", memory="1Gi")))
    assert (view.key, view.queue, view.invalid) == (JobKey("team", "train", "u1"), "a", False)
    assert view.charge == {"jobs": 1, "pods": 3, "cpu": 1500, "memory": 3 << 30}


@pytest.mark.parametrize(("reason", "expires"), [("Cancelled", True), ("PodFailed", False)])
def test_a_cancelled_job_expires_without_a_time_to_live(reason: str, expires: bool) -> None:
    condition = {"type": "Failed", "status": "True", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    body = stored(requests(cpu="1"), {"phase": "Failed", "conditions": [condition]})
    body["spec"]["cancel"] = True
    view = views.job_view(body)
    assert (view.stopped, view.expires) == (True, expires)


def test_a_suspended_job_that_is_cancelled_is_not_at_rest() -> None:
    body = stored(requests(cpu="1"), {"phase": "Suspended"})
    body["spec"]["suspend"] = True
    assert views.job_view(body).at_rest
    body["spec"]["cancel"] = True
    assert not views.job_view(body).at_rest


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({}, id="no spec"),
        pytest.param({"spec": {"containers": 7}}, id="containers that are a number"),
        pytest.param(requests(cpu="much"), id="an invalid quantity"),
        pytest.param(requests(cpu=[1]), id="a list for a quantity"),
        pytest.param(requests(cpu="9E"), id="more cores than a number holds"),
        pytest.param(requests(memory="9E"), id="more bytes in all than a number holds"),
        pytest.param(requests(memory="4Pi"), id="more bytes in all than Lua counts"),
    ],
)
def test_the_view_of_an_invalid_job_is_marked_invalid(template: Any) -> None:
    view = views.job_view(stored(template))
    assert (view.invalid, view.finished, view.charge) == (True, False, {})


@settings(max_examples=30)
@given(spoilt())
def test_the_view_of_a_job_is_the_same_with_and_without_the_cache(manifest: dict[str, Any]) -> None:
    metadata = manifest["metadata"] | {"resourceVersion": "1"}
    cached_parser._parse_spec.cache_clear()
    first = views.job_view(manifest | {"metadata": metadata})
    assert views.job_view(manifest | {"metadata": metadata}) == first


@pytest.mark.parametrize("status", [{"phase": 5}, {"conditions": "x"}, {"admission": {"queue": "a"}}])
def test_a_job_with_an_invalid_status_is_marked_invalid(status: Any) -> None:
    assert views.job_view(stored(requests(cpu="1"), status)).invalid


def test_a_foreign_pod_takes_room_once_it_is_bound_to_a_node() -> None:
    body = {"metadata": {"namespace": "x", "name": "p"}, "spec": requests(cpu="2")["spec"]}
    assert views.pod_view(body).demand == {}
    placed = {**body, "spec": {**body["spec"], "nodeName": "one"}}
    assert views.pod_view(placed).demand == {"cpu": 2000, "pods": 1}
    assert views.pod_view(placed | {"status": {"phase": "Failed"}}).occupies is False


@pytest.mark.parametrize(("begun", "expected"), [([], False), (["0"], False), (["0", "1"], True)])
def test_the_view_of_a_job_says_whether_a_later_stage_has_begun(begun: list[str], expected: bool) -> None:
    worker = {**desk.task(), "dependsOn": [{"taskType": "Master", "phase": "Succeeded"}]}
    body = desk.manifest("train", "a", {"Master": desk.task(), "Worker": worker})
    body["metadata"] |= {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body["status"] = {"stages": {stage: {"began": "2026-01-01T00:00:00Z"} for stage in begun}}
    assert views.job_view(body).is_past_first == expected


def on_host(*, host: bool) -> dict[str, Any]:
    found = requests(cpu=1)
    if host:
        found["spec"]["hostNetwork"] = True
    return {"template": found}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [((), False), (("Master",), True), (("Worker",), False), (("AIMaster",), False), (("Evaluator",), True)],
)
def test_a_job_whose_rank_0_uses_the_host_network_needs_a_port(hosts: tuple[str, ...], expected: bool) -> None:
    """The evaluator is rank 0 of a separate stage."""
    tasks = {name: on_host(host=name in hosts) for name in ("AIMaster", "Master", "Worker", "Evaluator")}
    tasks["Evaluator"]["dependsOn"] = [{"taskType": "Master", "phase": "Succeeded"}]
    body = desk.manifest("train", "a", tasks=tasks)
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    view = views.job_view({**body, "metadata": {**body["metadata"], **given}})
    assert view.wants_port is expected
    assert route.entry(view, RoutingRules()).port is expected


@pytest.mark.parametrize(("host", "expected"), [("Worker", False), ("Rendezvous", True)])
def test_an_elastic_job_needs_a_port_for_its_store_alone(host: str, expected: bool) -> None:
    tasks = {name: on_host(host=name == host) for name in ("Worker", "Rendezvous")}
    tasks["Rendezvous"]["auxiliary"] = True
    body = desk.manifest("train", "a", tasks=tasks)
    body["spec"]["torchElasticPolicy"] = {}
    given = {"namespace": "team", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"}
    assert views.job_view({**body, "metadata": {**body["metadata"], **given}}).wants_port is expected


def test_the_demand_of_a_foreign_pod_is_computed_from_its_containers() -> None:
    def asks(**amounts: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": amounts}}

    spec = {
        "containers": [{"name": "none"}, asks(cpu="1"), asks(cpu="2", memory="1Gi")],
        "initContainers": [{**asks(cpu="1"), "restartPolicy": "Always"}, asks(cpu="9")],
        "overhead": {"cpu": "250m"},
        "nodeName": "one",
    }
    found = views.pod_view({"metadata": {"namespace": "x", "name": "p"}, "spec": spec})
    assert found.demand == {**demand.pod_demand(spec)} == {"cpu": 10_250, "memory": 1 << 30, "pods": 1}


@pytest.mark.parametrize(
    ("phase", "node", "deleting", "occupies"),
    [
        ("Pending", "", False, True),
        ("Pending", "", True, False),
        ("Pending", "one", True, True),
        ("Running", "", True, True),
        ("Running", "one", True, True),
        ("Succeeded", "one", False, False),
        ("Failed", "", True, False),
    ],
)
def test_a_deleted_pod_that_was_never_bound_does_not_occupy_room(
    phase: str, node: str, deleting: bool, occupies: bool
) -> None:
    """A finalizer could keep such a pod forever, and with it the charge of the whole job."""
    metadata = {"namespace": "x", "name": "p", "finalizers": ["example.org/keep"]}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}
    body = {"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}}
    found = views.pod_view(body)
    assert (found.occupies, found.deleting) == (occupies, deleting)


def test_a_queue_with_a_limit_without_effect_stays_open(caplog: pytest.LogCaptureFixture) -> None:
    """An earlier version accepted such a limit."""
    stored = {"metadata": {"name": "a"}, "spec": {"quota": {"gpu": 8, "nvidia.com/gpu": "1.5", "jobs": 2}}}
    found = rule_views.queue_view(stored).spec
    assert found.is_open
    assert found.quota_amounts == {"gpu": 8, "nvidia.com/gpu": 2, "jobs": 2}
    assert caplog.records == []
    assert [each.field for each in queue.ineffective(stored)] == ["spec.quota", "spec.quota.nvidia.com/gpu"]
    assert queue.ineffective({"metadata": {"name": "a"}, "spec": {"weight": 3}}) == ()


@pytest.mark.parametrize(
    ("true", "takes_pods"),
    [
        ("", False),
        ("Ready", True),
        ("Ready MemoryPressure", True),
        ("Ready DiskPressure", False),
        ("Ready PIDPressure", False),
        ("Ready NetworkUnavailable", False),
    ],
)
def test_a_node_under_pressure_takes_no_pods(true: str, takes_pods: bool) -> None:
    types = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
    conditions = [{"type": each, "status": str(each in true.split())} for each in types]
    view = node_views.node_view({"metadata": {"name": "n1"}, "status": {"conditions": conditions}})
    assert view.ready == takes_pods


SPOT = {"key": "example.org/spot"}
CLOSED = {"unschedulable": True}


@pytest.mark.parametrize(
    ("before", "after", "loses"),
    [
        pytest.param({}, CLOSED, True, id="closed"),
        pytest.param({}, {"taints": [SPOT]}, True, id="about to go away"),
        pytest.param(CLOSED, {**CLOSED, "taints": [SPOT]}, True, id="about to go away, and closed before"),
        pytest.param({"taints": [SPOT]}, {**CLOSED, "taints": [SPOT]}, False, id="closed as well"),
        pytest.param(CLOSED, {}, False, id="opened"),
    ],
)
def test_jobs_of_a_node_are_marked_when_their_pods_may_have_to_leave_it_or_lack_a_node(
    before: dict[str, Any], after: dict[str, Any], loses: bool
) -> None:
    def node(spec: dict[str, Any]) -> node_views.NodeView:
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": "n1", "labels": {"rack": "r1"}}
        return node_views.node_view({"metadata": metadata, "spec": spec, "status": status}, {SPOT["key"]})

    pods = [builders.pod(node="n1"), builders.pod(node="n2", job=JobKey("team", "other", "u2"))]
    jobs = [
        builders.job(
            key=JobKey("team", name, name), admission=builders.admission(domain=domain), finished=name == "over"
        )
        for name, domain in (("inside", "rack=r1"), ("outside", "rack=r2"), ("free", ""), ("over", "rack=r1"))
    ]
    found = node_views.losing_jobs(node(before), node(after), pods, jobs)
    assert found == ({builders.KEY, JobKey("team", "inside", "inside")} if loses else frozenset())
