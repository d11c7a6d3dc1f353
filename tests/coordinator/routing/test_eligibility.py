"""The reasons that keep a waiting job out of the order of its queue, and the sentence about each reason in the
status.
"""

from dataclasses import replace
from typing import Any

import pytest

from coordinator.cache.job_waits import WaitState
from coordinator.cache.routing_rules import GangRoom, RoutingRules
from coordinator.cache.views import JobPods, JobView
from coordinator.leader.router import DelayedKeys
from coordinator.routing import eligibility, route
from crds.keys import JobKey
from crds.tenantqueue import NamespaceSelector, TenantQueueSpec
from crds.torchjob.demand import HostPort
from crds.torchjob.resource_quota import Limit
from queues.placement.gangs import Gang
from tests.support.coordinator.builders import KEY, admission, job, quota, refused

NOW = 1000.0
CLAIMS = "spec.torchTaskSpecs.Master.template.spec.resourceClaims"
DEVICES = "gpu.example.com.deviceclass.resource.k8s.io/devices"
SELECTED = {"namespace_selector": NamespaceSelector(match_labels={"tier": "gold"})}


def rules(**changes: Any) -> RoutingRules:
    """Return rules with queue a and one PriorityClass."""
    spec = TenantQueueSpec(**changes.pop("queue", {}))
    return RoutingRules(**{"queues": {"a": spec}, "priorities": {"urgent": 7}, "implicit": False, **changes})


PORTS = frozenset({HostPort(29500)})
OTHER = JobKey("team", "other", "u2")
ROOMS = {
    "small": GangRoom(limits=(("small", Limit("cpu", 2999, 1000, "cpu")),)),
    "large": GangRoom(limits=(("large", Limit("cpu", 3000, 1000, "cpu")), ("large", Limit("gpu", 0, 0, "gpu")))),
    "shut": GangRoom("Volcano's queue shut is Closed"),
}
UNBOUND = WaitState(until=NOW + 1, refusals=1, sent_back=NOW - 9)
TABLE = [
    (job(), rules(), "", True),
    (job(held=True), rules(), "Held", False),
    (job(queue="b"), rules(), "QueueNotFound", False),
    (job(queue="b"), rules(implicit=True), "QueueNotFound", False),
    (job(queue="team"), rules(implicit=True), "", True),
    (job(queue="default"), rules(implicit=True), "", True),
    (job(queue="team"), rules(), "QueueNotFound", False),
    (job(queue="default"), rules(), "QueueNotFound", False),
    (job(), rules(implicit=True), "", True),
    (job(), rules(queue={"namespaces": ("team",)}), "", True),
    (job(), rules(queue={"namespaces": ("others", "more")}), "NotAllowed", False),
    (job(), rules(queue=SELECTED, namespaces={"team": {"tier": "gold", "more": "x"}}), "", True),
    (job(), rules(queue=SELECTED, namespaces={"team": {"tier": "iron"}}), "NotAllowed", False),
    (job(), rules(queue=SELECTED), "NotAllowed", False),
    (job(), rules(queue={**SELECTED, "namespaces": ("team",)}), "", True),
    (job(claims=CLAIMS), rules(queue={"quota": {"requests.nvidia.com/gpu": 8}}), "ClaimsNotCounted", False),
    (job(claims=CLAIMS, uncounted=True), rules(queue={"quota": {DEVICES: 8}}), "CountingClaims", False),
    (job(claims=CLAIMS, uncounted=True), rules(queue={"quota": {"cpu": 8}}), "", True),
    (job(claims=CLAIMS, charge={DEVICES: 2, "jobs": 1}), rules(queue={"quota": {DEVICES: 8}}), "", True),
    (job(claims=CLAIMS, charge={DEVICES: 2}), rules(queue={"quota": {"nvidia.com/gpu": 8}}), "ClaimsNotCounted", False),
    (job(claims=CLAIMS), rules(queue={"quota": {"cpu": 8, "memory": "1Gi", "pods": 4, "jobs": 2}}), "", True),
    (job(claims=CLAIMS, queue="team"), rules(queues={}, implicit=True), "", True),
    (job(), rules(queue={"quota": {"nvidia.com/gpu": 8}}), "", True),
    (job(priority_class="urgent"), rules(), "", True),
    (job(priority_class="lazy"), rules(), "PriorityClassNotFound", False),
    (job(gang=Gang((), required="rack")), rules(), "", True),
    (job(gang=Gang((), required="rack")), rules(topology=("block", "rack")), "", True),
    (job(gang=Gang((), required="rack")), rules(topology=("block",)), "TopologyNotFound", False),
    (job(gang=Gang((), required="rack")), rules(topology=()), "TopologyNotFound", False),
    (job(gang=Gang((), preferred="rack")), rules(topology=()), "", True),
    (job(), rules(quotas={"team": (quota(cpu=(2000, 0)),)}), "", True),
    (job(), rules(quotas={"team": (quota(cpu=(2000, 1)),)}), "NamespaceQuota", False),
    (job(), rules(quotas={"other": (quota(cpu=(0, 0)),)}), "", True),
    (job(waits=refused(until=NOW + 1)), rules(quotas={"team": (quota(cpu=(9000, 0)),)}), "NamespaceQuota", False),
    (job(waits=refused(until=NOW)), rules(quotas={"team": (quota(cpu=(9000, 0)),)}), "", True),
    (job(waits=refused(until=NOW + 1)), rules(), "", True),
    (job(waits=refused(until=NOW)), rules(yielding={"team": frozenset({KEY})}), "NamespaceQuota", False),
    (job(held=True), rules(quotas={"team": (quota(cpu=(0, 0)),)}), "Held", False),
    (job(ports=PORTS), rules(ports={HostPort(29500): OTHER}), "PortTaken", False),
    (job(ports=PORTS, waits=WaitState(parked=True)), rules(ports={HostPort(29500): OTHER}), "PortTaken", False),
    (job(ports=PORTS), rules(ports={HostPort(29500): KEY, HostPort(29501): OTHER}), "", True),
    (job(ports=PORTS), rules(ports={HostPort(29500): KEY}, shared_address=True), "", True),
    (
        job(ports=PORTS),
        rules(shared_address=True),
        "",
        False,
    ),  # its ports are still compared with the ports of other jobs
    (job(ports=PORTS), rules(ports={HostPort(29500, "UDP"): OTHER}), "", True),
    (job(), rules(ports={HostPort(29500): OTHER}), "", True),
    (job(gang_queue="small"), rules(gang_rooms={}), "", True),  # no gang scheduler with queues binds this job
    (job(gang_queue="small"), rules(gang_scheduler="volcano"), "", True),
    (job(gang_queue="small"), rules(gang_scheduler="volcano", gang_rooms={}), "WaitingForGangQueue", False),
    (job(gang_scheduler="volcano", gang_queue="small"), rules(gang_rooms=ROOMS), "WaitingForGangQueue", False),
    (
        job(gang_scheduler="volcano"),
        rules(gang_rooms=ROOMS, queue={"gang_queue": "small"}),
        "WaitingForGangQueue",
        False,
    ),
    (job(gang_scheduler="volcano"), rules(gang_rooms=ROOMS), "", True),
    (job(gang_scheduler="volcano", gang_queue="large"), rules(gang_rooms=ROOMS), "", True),
    (job(gang_scheduler="volcano", gang_queue="shut"), rules(gang_rooms=ROOMS), "WaitingForGangQueue", False),
    (job(gang_scheduler="volcano", gang_queue="small", beyond_gangs={"cpu": 1}), rules(gang_rooms=ROOMS), "", True),
    (job(gang_queue="b"), rules(queue={"gang_queues": ("a", "b")}), "", True),
    (job(gang_queue="c"), rules(queue={"gang_queues": ("a", "b")}), "NotAllowed", False),
    (job(), rules(queue={"gang_queues": ("a", "b")}), "", True),
    (job(waits=WaitState(parked=True)), rules(), "Parked", False),
    (job(waits=WaitState(until=NOW + 1)), rules(), "BackingOff", False),
    (job(waits=WaitState(until=NOW)), rules(), "", True),
    (job(waits=UNBOUND), rules(), "WaitingForScheduler", False),
    (job(waits=UNBOUND), rules(tried_again=frozenset({KEY})), "", True),
    (job(waits=replace(UNBOUND, until=NOW)), rules(), "", True),
    (job(waits=replace(UNBOUND, retry=NOW)), rules(), "", True),
    (job(waits=replace(UNBOUND, sent_back=0.0)), rules(), "BackingOff", False),
    (job(waits=WaitState(drained=True, queue="a")), rules(queue={"stop_policy": "HoldAndDrain"}), "QueueDrained", True),
    (job(waits=WaitState(drained=True, queue="a")), rules(), "", True),
    (job(waits=WaitState(drained=True, queue="b")), rules(queue={"stop_policy": "HoldAndDrain"}), "", True),
    (job(), rules(ceilings={"a": {"cpu": 1999}}), "ExceedsQuota", True),
    (job(), rules(ceilings={"a": {"cpu": 2000}, "b": {"cpu": 1}}), "", True),
    (job(held=True, queue="b"), rules(), "Held", False),
]


@pytest.mark.parametrize(("waiting", "given", "code", "ordered"), TABLE)
def test_each_obstacle_has_its_code_and_keeps_the_job_in_or_out_of_the_order(
    waiting: JobView, given: RoutingRules, code: str, ordered: bool
) -> None:
    found = eligibility.of(waiting, given, NOW)
    assert (found.code, found.ordered) == (code, ordered)
    routed = route.route(KEY, waiting, JobPods(), given, NOW)
    assert (routed.put is not None, routed.remove) == (ordered, not ordered)
    assert (routed.reason.code if routed.reason else "") == code


def test_every_code_has_a_row_and_a_sentence_that_fits_into_a_status() -> None:
    assert {code for _, _, code, _ in TABLE if code} == eligibility.CODES
    for waiting, given, code, _ in TABLE:
        sentence = eligibility.of(waiting, given, NOW).sentence
        assert bool(sentence) == bool(code)
        assert len(sentence) <= 1024


def test_the_name_of_the_job_that_has_a_port_is_kept_up_to_date() -> None:
    taken = rules(ports={HostPort(29500): OTHER})
    shown = job(ports=PORTS, reason="PortTaken", reason_message="port 29500 is taken by job team/former")
    routed = route.route(KEY, shown, JobPods(), taken, NOW)
    assert routed.reason is not None
    assert routed.reason.sentence == "port 29500 is taken by job team/other"
    current = replace(shown, reason_message=routed.reason.sentence)
    assert route.route(KEY, current, JobPods(), taken, NOW).reason is None


def test_what_a_quota_demands_and_the_template_lacks_is_quoted() -> None:
    waiting = job(waits=refused(until=NOW + 1, hard=(("limits.cpu", "for: torch"),)))
    sentence = eligibility.of(waiting, rules(quotas={"team": (quota(limits_cpu=(9000, 0)),)}), NOW).sentence
    assert "ResourceQuota compute" in sentence
    assert "must specify limits.cpu for: torch" in sentence


def test_a_reason_is_written_once_and_removed_when_it_no_longer_holds() -> None:
    assert route.route(KEY, job(held=True, reason="Held"), JobPods(), rules(), NOW).reason is None
    over = route.route(KEY, job(reason="Held"), JobPods(), rules(), NOW).reason
    assert over == eligibility.ELIGIBLE
    assert route.route(KEY, job(reason="WaitingForPool"), JobPods(), rules(), NOW).reason is None


def test_a_priority_class_determines_the_priority() -> None:
    put = route.route(KEY, job(priority_class="urgent", priority=3), JobPods(), rules(), NOW).put
    assert put is not None
    assert put.priority == 7


def test_a_job_in_back_off_is_routed_again_at_its_end() -> None:
    found = route.route(KEY, job(waits=WaitState(until=NOW + 60)), JobPods(), rules(), NOW)
    assert found.due_at == NOW + 60


def test_attempts_before_a_job_was_sent_back_are_over() -> None:
    assert route.route(KEY, job(attempt=2), JobPods(), rules(), NOW).finished_attempt == 2
    assert route.route(KEY, job(attempt=2, phase="Suspended"), JobPods(), rules(), NOW).finished_attempt == 0
    draining = rules(queue={"stop_policy": "HoldAndDrain"})
    assert route.route(KEY, job(attempt=2), JobPods(), draining, NOW).finished_attempt == 3


@pytest.mark.parametrize(
    ("held", "returns"),
    [
        (None, True),  # the admission was written by a version that did not record the charge
        ({"jobs": 1, "pods": 1, "cpu": 4000}, True),
        ({"jobs": 1, "pods": 2, "cpu": 5000, "memory": 1}, True),
        ({"jobs": 1, "pods": 1, "cpu": 3999}, False),
        ({"jobs": 1, "pods": 1}, False),
        ({}, False),
    ],
)
def test_a_drained_job_that_requests_more_than_before_does_not_return_first(
    held: dict[str, int] | None, returns: bool
) -> None:
    drained = WaitState(drained=True, queue="a", held=held)
    asking = job(waits=drained, queue="a", charge={"jobs": 1, "pods": 1, "cpu": 4000})
    assert route.entry(asking, RoutingRules()).returning is returns


def test_a_drained_job_returns_first_in_its_own_queue_only() -> None:
    drained = WaitState(drained=True, queue="a")
    found = [route.entry(job(waits=drained, queue=queue), RoutingRules()).returning for queue in ("a", "b")]
    assert found == [True, False]


def test_an_admitted_job_of_a_draining_queue_is_routed_again_soon() -> None:
    admitted = job(admission=admission(), phase="Running")
    assert route.route(KEY, admitted, JobPods(), rules(), NOW).due_at == 0.0
    draining = rules(queue={"stop_policy": "HoldAndDrain"})
    assert NOW < route.route(KEY, admitted, JobPods(), draining, NOW).due_at < NOW + 60


def test_timers_keep_one_time_per_key() -> None:
    timers, keys = DelayedKeys(), [JobKey("team", str(at), "u") for at in range(300)]
    for at, key in enumerate(keys):
        timers.set(key, 500.0)
        timers.set(key, 100.0 + at)
    timers.set(keys[1], 0.0)
    timers.set(keys[2], 900.0)
    assert list(timers.take_due(102.0)) == [keys[0]]
    assert list(timers.take_due(102.0)) == []
    assert list(timers.take_due(1000.0)) == [*keys[3:], keys[2]]
    assert len(timers) == 0


SPECS = {name: TenantQueueSpec() for name in ("team-a", "team-b", "research")}


@pytest.mark.parametrize(
    ("queue", "given", "words"),
    [
        ("tema-a", {"queues": SPECS}, "did you mean team-a or team-b?"),
        ("reserach", {"queues": SPECS}, "did you mean research?"),
        ("defualt", {"queues": {}, "implicit": True}, "did you mean default?"),
        ("zzz", {"queues": SPECS}, "namespace team may use research, team-a, team-b"),
        ("zzz", {"queues": {}, "implicit": True}, "namespace team may use default, team"),
        (
            "zzz",
            {"queues": {"others": TenantQueueSpec(namespaces=("others",))}},
            "there is no queue for namespace team",
        ),
        (
            "zzz",
            {"queues": {f"q{number}": TenantQueueSpec() for number in range(9)}},
            "may use q0, q1, q2, q3, q4, ...",
        ),
    ],
)
def test_the_sentence_about_an_unknown_queue_suggests_queues_and_commands(
    queue: str, given: dict[str, Any], words: str
) -> None:
    asking, found = job(queue=queue), rules(**given)
    sentence = eligibility.with_hint(eligibility.of(asking, found, NOW), asking, found).sentence
    assert sentence.endswith(words)
    assert f"torchq queue create {queue}" in sentence
    assert "torchq job move train QUEUE" in sentence


def test_the_longest_sentence_fits_into_a_status() -> None:
    names = {"a" * 60 + f"{number:03}": TenantQueueSpec() for number in range(300)}
    asking, found = job(queue="a" * 63), rules(queues=names)
    assert len(eligibility.with_hint(eligibility.of(asking, found, NOW), asking, found).sentence) <= 1024


def test_a_job_of_an_existing_queue_gets_no_hint() -> None:
    asking = job(held=True)
    stands = eligibility.of(asking, rules(), NOW)
    assert eligibility.with_hint(stands, asking, rules()) is stands


@pytest.mark.parametrize(
    ("queue", "namespace", "implicit", "usable"),
    [
        ("team", "team", True, True),
        ("default", "team", True, True),
        ("default", "default", True, True),
        ("team", "default", True, False),
        ("invented", "team", True, False),
        ("team", "team", False, False),
        ("default", "team", False, False),
        ("a", "team", False, True),
    ],
)
def test_a_namespace_implies_the_queues_of_its_name_and_default(
    queue: str, namespace: str, implicit: bool, usable: bool
) -> None:
    found = rules(implicit=implicit)
    assert eligibility.is_usable(queue, namespace, found) is usable
    assert eligibility.is_withdrawn(queue, namespace, found) is not usable
    assert route.tenant("team", "team", rules(implicit=True)) == "/team", "a name alone makes no tenant"


def test_a_job_of_another_namespace_that_has_a_port_is_not_named() -> None:
    taken = rules(ports={HostPort(29500): JobKey("theirs", "secret", "uid-9")})
    routed = route.route(KEY, job(ports=PORTS), JobPods(), taken, NOW)
    assert routed.reason is not None
    assert routed.reason.sentence == "port 29500 is taken by a job of another team"
