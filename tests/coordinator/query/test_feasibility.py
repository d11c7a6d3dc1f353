"""Whether a job could ever run, as its queue, the cohort, the pool and the nodes decide. The answer has the field and
the numbers.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache.node_views import NodeView
from coordinator.cache.routing_rules import RoutingRules
from coordinator.routing import feasibility
from coordinator.routing.feasibility import ClusterLimits, JobRequest, Obstacle
from crds.node_requirements import Taint, place_condition
from crds.resources.amounts import NOTHING, Amounts
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob.demand import FirstPods
from queues.values import QueueSpec
from tests.support.coordinator.builders import job, node
from tests.support.queues.builders import GPU

EMBEDDED = node(allocatable={"cpu": 8000, "pods": 100, GPU: 8}, embedded=True)
PLAIN = node(allocatable={"cpu": 8000, "pods": 100, GPU: 8})


def spec(name: str, cohort: str = "", borrowing: Amounts = NOTHING, **quota: int) -> QueueSpec:
    named = {GPU if each == "gpu" else each: amount for each, amount in quota.items()}
    return QueueSpec(name=name, quota=named, cohort=cohort, borrowing=borrowing)


def known(*specs: QueueSpec, **changes: Any) -> ClusterLimits:
    """Return queues that all namespaces may use, and an unlimited pool."""
    rules = RoutingRules(queues={each.name: TenantQueueSpec() for each in specs}, implicit=False)
    return ClusterLimits(**{"rules": rules, "specs": {each.name: each for each in specs}, "setting": None, **changes})


def asked(queue: str = "a", pods: dict[str, dict[str, int]] | None = None, **charge: int) -> JobRequest:
    named = {GPU if each == "gpu" else each: amount for each, amount in charge.items()}
    return JobRequest(namespace="team", queue=queue, charge={"jobs": 1, "pods": 1, **named}, pods=pods or {})


COHORT = (spec("a", "c", {GPU: 4}, gpu=4), spec("b", "c", gpu=8))


@pytest.mark.parametrize(
    ("demand", "by", "expected"),
    [
        pytest.param(asked(gpu=8), known(spec("a", gpu=8)), [], id="all of its quota"),
        pytest.param(
            asked(gpu=12),
            known(spec("a", gpu=8)),
            [("ExceedsQuota", "spec.torchTaskSpecs", "12 of nvidia.com/gpu, queue a can give 8 at most (its quota)")],
            id="more than its quota",
        ),
        pytest.param(
            asked(gpu=12).model_copy(update={"largest": {GPU: 16}}),
            known(spec("a", gpu=8)),
            [
                (
                    "ExceedsQuota",
                    "spec.torchTaskSpecs",
                    "the job asks for 12 of nvidia.com/gpu with its least number of workers (16 with all), queue a",
                )
            ],
            id="an elastic job",
        ),
        pytest.param(
            asked(gpu=9, cpu=1500),
            known(spec("a", gpu=8, cpu=1000)),
            [
                ("ExceedsQuota", "spec.torchTaskSpecs", "1500m of cpu, queue a can give 1 at most"),
                ("ExceedsQuota", "spec.torchTaskSpecs", "9 of nvidia.com/gpu, queue a can give 8 at most"),
            ],
            id="every resource that exceeds its quota",
        ),
        pytest.param(
            asked(), known(spec("a", jobs=0)), [("ExceedsQuota", "spec.torchTaskSpecs", "1 of jobs")], id="jobs"
        ),
        pytest.param(asked(gpu=8), known(*COHORT), [], id="what a cohort may lend counts"),
        pytest.param(
            asked(gpu=9),
            known(*COHORT),
            [
                (
                    "ExceedsQuota",
                    "spec.torchTaskSpecs",
                    "can give 8 at most (its quota, and what cohort c may lend to it)",
                )
            ],
            id="up to the borrowing limit",
        ),
        pytest.param(
            asked("b", gpu=13),
            known(*COHORT),
            [("ExceedsQuota", "spec.torchTaskSpecs", "queue b can give 12 at most")],
            id="up to the sum of the quotas of the cohort",
        ),
        pytest.param(asked(cpu=10**9), known(spec("a", gpu=1)), [], id="a quota limits only the names it has"),
        pytest.param(
            asked("nobody", gpu=12),
            known(spec("a", gpu=8)),
            [("QueueNotFound", "spec.schedulingPolicy.queue", "there is no TenantQueue nobody: name another queue")],
            id="an unknown queue",
        ),
        pytest.param(
            asked(gpu=12),
            known(
                spec("a", gpu=8),
                rules=RoutingRules(queues={"a": TenantQueueSpec(namespaces=("theirs",))}, implicit=False),
            ),
            [("NotAllowed", "spec.schedulingPolicy.queue", "queue a is not for namespace team")],
            id="a queue of other namespaces does not reveal its quota",
        ),
        pytest.param(
            asked(gpu=4).model_copy(update={"gang_queue": "theirs"}),
            known(
                spec("a", gpu=8),
                rules=RoutingRules(queues={"a": TenantQueueSpec(gang_queues=("ours", "spare"))}, implicit=False),
            ),
            [
                (
                    "NotAllowed",
                    "spec.schedulingPolicy.gangQueue",
                    "jobs of queue a may not name gangQueue theirs (its spec.gangQueues: ours, spare)",
                )
            ],
            id="a queue of the gang scheduler that the queue does not list",
        ),
        pytest.param(
            asked(gpu=5),
            known(spec("a"), setting={GPU: 4}),
            [
                (
                    "ExceedsPool",
                    "spec.torchTaskSpecs",
                    "5 of nvidia.com/gpu, all queues together have 4 (the setting pool)",
                )
            ],
            id="a pool in numbers",
        ),
        pytest.param(
            asked(cpu=10**9), known(spec("a"), setting={GPU: 4}), [], id="a pool in numbers limits only its names"
        ),
    ],
)
def test_judge_returns_code_field_and_numbers_of_each_finding(
    demand: JobRequest, by: ClusterLimits, expected: list[tuple[str, str, str]]
) -> None:
    found = feasibility.judge(demand, by)
    assert [(each.code, each.field) for each in found] == [(code, field) for code, field, _ in expected]
    assert all(words in each.message for each, (_, _, words) in zip(found, expected, strict=True)), found
    assert all(each.firm for each in found)


@pytest.mark.parametrize("firm", [True, False])
@pytest.mark.parametrize(
    ("demand", "field", "words"),
    [
        (asked(gpu=16), "spec.torchTaskSpecs", "the job asks for 16 of nvidia.com/gpu, all nodes together have 8"),
        (asked(**{"example.org/fpga": 1}), "spec.torchTaskSpecs", "1 of example.org/fpga, all nodes together have 0"),
        (
            asked(pods={"Worker": {"example.org/fpga": 1, "pods": 1}}, gpu=8),
            "spec.torchTaskSpecs.Worker",
            "a pod asks for 1 example.org/fpga, which no node has",
        ),
    ],
)
def test_exceeding_the_nodes_is_firm_only_on_the_embedded_node(
    firm: bool, demand: JobRequest, field: str, words: str
) -> None:
    by = known(spec("a"), setting="nodes", nodes=(EMBEDDED if firm else PLAIN,))
    (found,) = feasibility.judge(demand, by)
    assert (found.code, found.field, found.firm) == ("ExceedsNodes", field, firm)
    assert words in found.message
    assert ("until there are nodes" in found.message) is not firm


@pytest.mark.parametrize(("node", "remedy"), [(EMBEDDED, ": ask for less"), (PLAIN, " (--anyway: nodes may be added)")])
def test_a_pod_that_asks_for_more_than_the_largest_node_has_is_firm_everywhere(node: NodeView, remedy: str) -> None:
    pods = {"Master": {GPU: 16, "pods": 1}, "Worker": {GPU: 8, "pods": 1}}
    by = known(spec("a"), setting="nodes", nodes=(node, replace(node, name="two"), replace(node, name="three")))
    assert feasibility.judge(asked(pods=pods, gpu=24), by) == [
        Obstacle(
            "ExceedsNodes",
            "spec.torchTaskSpecs.Master",
            f"a pod asks for 16 nvidia.com/gpu, and no node has more than 8{remedy}",
        )
    ]


def test_a_pod_that_is_too_large_for_every_node_is_reported_once() -> None:
    starts = (first("Worker", 1, {"nodeSelector": {"kind": "fast"}}, gpu=16),)
    request = asked(pods={"Worker": dict(starts[0].share)}).model_copy(update={"starts": starts})
    assert [each.firm for each in feasibility.judge(request, two_nodes())] == [True]


def starting(*pods: FirstPods) -> JobRequest:
    return asked().model_copy(update={"starts": pods})


def first(task: str, pods: int, place: dict[str, Any] | None = None, **share: int) -> FirstPods:
    demand = {"pods": 1, **{GPU if name == "gpu" else name: amount for name, amount in share.items()}}
    return FirstPods(task, tuple(sorted(demand.items())), place_condition(place or {}), pods)


def two_nodes(setting: Any = "nodes", **changes: Any) -> ClusterLimits:
    marked = replace(PLAIN, labels={"kind": "slow"})
    large = node(name="two", allocatable={"cpu": 8000, "pods": 100, GPU: 8}, labels={"kind": "fast"}, **changes)
    return known(spec("a"), setting=setting, nodes=(marked, large))


TAINT = (Taint("dedicated", "ml", "NoSchedule"),)
GANG = "4 pods of 8 nvidia.com/gpu start together, and all nodes, if they were empty, have room for 2 of them"
MIXED = (
    "1 pod of 4 cpu and 3 pods of 5 cpu start together, and all nodes, if they were empty, have room for 2 of them: it "
    "waits until there are nodes that have it"
)


@pytest.mark.parametrize(
    ("starts", "by", "expected"),
    [
        ((first("Worker", 2, gpu=8),), two_nodes(), []),
        ((first("Worker", 4, gpu=8),), two_nodes(), [("", f"{GANG}: it waits until there are nodes that have it")]),
        ((first("Master", 0, cpu=1000), first("Worker", 4, gpu=8)), two_nodes(), [("", GANG)]),
        ((first("Master", 1, cpu=4000), first("Worker", 3, cpu=5000)), two_nodes(), [("", MIXED)]),
        ((first("Worker", 2, {"nodeSelector": {"kind": "fast"}}, gpu=4),), two_nodes(), []),
        (
            (first("Worker", 2, {"nodeSelector": {"kind": "new"}}, gpu=4),),
            two_nodes(),
            [(".Worker", "no node has the label kind=new that its nodeSelector asks for: it waits until there is one")],
        ),
        (
            (first("Worker", 1, {"nodeSelector": {"kind": "fast"}, "tolerations": []}, gpu=4),),
            two_nodes(taints=TAINT),
            [
                (
                    ".Worker",
                    "it does not tolerate the taints of the nodes where it may run (dedicated=ml:NoSchedule): it waits "
                    "until there is one",
                )
            ],
        ),
        (
            (first("Worker", 3, {"nodeSelector": {"kind": "fast"}}, gpu=4),),
            two_nodes(),
            [("", "3 pods of 4 nvidia.com/gpu start together, and all nodes, if they were empty, have room for 2")],
        ),
        (
            (first("Worker", 1, {"nodeName": "gone"}),),
            two_nodes(),
            [(".Worker", "no node has the name in its nodeName")],
        ),
        (
            (first("Worker", 1)._replace(place='{"domain": "rack=r1"}'),),
            two_nodes(),
            [(".Worker", "no node has the label rack=r1, and all pods of the job must run on nodes with it")],
        ),
        ((first("Worker", 9, {"nodeSelector": {"kind": "new"}}, gpu=8),), two_nodes(setting=None), []),
    ],
)
def test_pods_that_no_nodes_hold_together_or_that_may_run_on_none_are_warned_of(
    starts: tuple[FirstPods, ...], by: ClusterLimits, expected: list[tuple[str, str]]
) -> None:
    found = feasibility.judge(starting(*starts), by)
    assert [each.field for each in found] == [f"spec.torchTaskSpecs{field}" for field, _ in expected]
    assert all(each.message.startswith(words) for each, (_, words) in zip(found, expected, strict=True)), found
    assert not any(each.firm for each in found)


RACK = "example.org/rack"


def racks(*names: str) -> ClusterLimits:
    """Return nodes of 8 GPUs, each in the rack of its name; empty: in none."""
    nodes = [
        node(name=f"n{number}", allocatable=dict(PLAIN.allocatable), labels={RACK: name} if name else {})
        for number, name in enumerate(names)
    ]
    found = known(spec("a"), setting="nodes", nodes=tuple(nodes))
    return replace(found, rules=replace(found.rules, topology=(RACK,)))


def sharing(required: str, *stages: FirstPods) -> JobRequest:
    later = tuple((stage,) for stage in stages[1:])
    return starting(stages[0]).model_copy(update={"required": required, "later_starts": later})


@pytest.mark.parametrize(
    ("request_", "by", "expected"),
    [
        (sharing(RACK, first("Worker", 2, gpu=8)), racks("r1", "r1", "r2", ""), []),
        (
            sharing(RACK, first("Worker", 3, gpu=8)),
            racks("r1", "r1", "r2", ""),
            [
                f"its 3 pods (8 nvidia.com/gpu each) must share one {RACK}; r1 has room for 2, r2 for 1 if all nodes "
                "are empty (--anyway: nodes may be added)"
            ],
        ),
        (
            sharing(RACK, first("Worker", 1, gpu=8)),
            racks("", ""),
            [f"its 1 pod (8 nvidia.com/gpu each) must share one {RACK}; no node has this label"],
        ),
        (
            sharing(RACK, first("Worker", 1, {"nodeName": "n2"}, gpu=8), first("Worker", 2, gpu=8)),
            racks("r1", "r1", "r2"),
            [f"the stages of the job must share one {RACK}, and no value of it has room for each of them"],
        ),
        (
            sharing("example.org/rak", first("Worker", 1, gpu=8)),
            racks("r1"),
            [f"example.org/rak is none of the levels {RACK} (the setting topology_labels): name one of these"],
        ),
    ],
)
def test_pods_that_no_domain_could_hold_are_refused_with_the_numbers(
    request_: JobRequest, by: ClusterLimits, expected: list[str]
) -> None:
    found = feasibility.judge(request_, by)
    assert [each.field for each in found] == ["spec.schedulingPolicy.topology.required"] * len(expected)
    assert all(each.message.startswith(words) for each, words in zip(found, expected, strict=True)), found
    assert all(each.firm for each in found)


@pytest.mark.parametrize(("topology", "firm"), [((), False), ((RACK,), True)])
def test_preference_for_a_label_that_is_no_level_is_refused_only_where_there_are_levels(
    topology: tuple[str, ...], firm: bool
) -> None:
    by = known(spec("a"), rules=RoutingRules(queues={"a": TenantQueueSpec()}, topology=topology))
    (found,) = feasibility.judge(asked().model_copy(update={"preferred": "zone"}), by)
    assert (found.code, found.firm) == ("TopologyNotFound", firm)


def test_a_pod_may_be_too_large_only_for_the_nodes_where_it_may_run() -> None:
    small = node(name="small", allocatable={"cpu": 2000, "pods": 9}, labels={"kind": "small"})
    by = known(spec("a"), setting="nodes", nodes=(PLAIN, small))
    (found,) = feasibility.judge(starting(first("Worker", 1, {"nodeSelector": {"kind": "small"}}, cpu=4000)), by)
    assert (found.field, found.firm) == ("spec.torchTaskSpecs.Worker", False)
    assert found.message.startswith("a pod asks for 4 cpu, and no node where it may run has more than 2: it waits")


@pytest.mark.parametrize("place", ["5", "[]", "no", '{"tolerations": 5}', '{"nodeSelector": []}', '{"domain": 5}'])
def test_a_place_that_is_not_readable_is_refused(place: str) -> None:
    odd = FirstPods("Worker", (("cpu", 1),), place, 1)
    for fields in ({"starts": (odd,)}, {"later_starts": ((odd,),)}):
        question = asked().model_copy(update=fields).model_dump_json()
        with pytest.raises(ValueError, match=next(iter(fields))):
            JobRequest.model_validate_json(question)


def test_amounts_and_numbers_below_one_place_nothing() -> None:
    assert feasibility.judge(starting(first("Worker", 0, gpu=9), first("Master", 5, gpu=0)), two_nodes()) == []


def test_questions_of_other_versions_are_answered() -> None:
    earlier = asked(gpu=1).model_dump(mode="json", exclude={"starts"})
    assert JobRequest.model_validate(earlier) == asked(gpu=1)
    assert JobRequest.model_validate({**earlier, "later": [1]}) == asked(gpu=1)


@pytest.mark.parametrize(("save", "grace", "left"), [(60, 11, "59 s to save"), (1, 70, "0 s to save"), (60, 10, "")])
def test_a_job_that_may_not_save_for_as_long_as_it_wants_is_warned(save: int, grace: int, left: str) -> None:
    request = asked().model_copy(update={"save_seconds": save, "grace_seconds": grace})
    found = feasibility.judge(request, known(spec("a"), longest_grace=70.0))
    assert [(each.code, each.field, each.firm) for each in found] == (
        [("SavesTooLong", "spec.schedulingPolicy.checkpointSeconds", False)] if left else []
    )
    assert all(each.message.endswith(left) for each in found)


@pytest.mark.parametrize(("grace", "codes"), [(70, []), (71, ["GraceTooLong"])])
def test_a_grace_beyond_the_longest_one_is_told(grace: int, codes: list[str]) -> None:
    found = feasibility.judge(asked().model_copy(update={"grace_seconds": grace}), known(spec("a"), longest_grace=70.0))
    assert [each.code for each in found if not each.firm] == codes
    assert all("71 s, is more than the setting longest_grace, 70 s" in each.message for each in found)


def test_a_pod_that_fits_on_no_single_node_is_a_finding() -> None:
    fast, large = (
        node(allocatable={"cpu": 1000, "pods": 9, GPU: 8}),
        node(name="two", allocatable={"cpu": 64_000, "pods": 9}),
    )
    by = known(spec("a"), setting="nodes", nodes=(fast, large))
    pod = {"cpu": 2000, GPU: 1, "pods": 1}
    (found,) = feasibility.judge(asked(pods={"Master": pod}, cpu=2000, gpu=1), by)
    assert "a pod asks for 1 nvidia.com/gpu, 2 cpu, which no node has together" in found.message
    assert feasibility.judge(asked(pods={"Master": {GPU: 1, "pods": 1}}, gpu=1), by) == []


def test_a_cluster_without_nodes_yields_a_warning() -> None:
    (found,) = feasibility.judge(asked(cpu=1), known(spec("a"), setting="nodes"))
    assert (found.code, found.firm) == ("ExceedsNodes", False)


def test_a_node_that_is_not_ready_counts() -> None:
    by = known(spec("a"), setting="nodes", nodes=(node(ready=False),))
    assert feasibility.judge(asked(cpu=8000), by) == []


def test_an_unknown_queue_and_priority_class_are_both_found() -> None:
    wrong = JobRequest(namespace="team", queue="nobody", priority_class="gold", charge={"jobs": 1})
    found = feasibility.judge(wrong, known(spec("a")))
    assert [each.field for each in found] == [feasibility.QUEUE, feasibility.PRIORITY_CLASS]
    assert "there is no PriorityClass gold: name another one" in found[1].message
    silver = ClusterLimits(rules=RoutingRules(priorities={"gold": 7}, implicit=False), specs={}, setting=None)
    assert [each.field for each in feasibility.judge(wrong, silver)] == [feasibility.QUEUE]


def test_an_existing_job_is_judged_by_its_charge() -> None:
    found = feasibility.request_of(job(charge={GPU: 12, "jobs": 1}, priority_class="gold", claims="spec.x"))
    assert (found.charge, found.priority_class, found.claims) == ({GPU: 12, "jobs": 1}, "gold", "spec.x")


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", GPU, "jobs"]), st.integers(0, 9), max_size=3)


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_a_job_exceeds_its_quota_exactly_if_empty_queues_could_not_hold_it(
    charge: Amounts, quota: Amounts, other: Amounts, borrowing: Amounts
) -> None:
    mine = QueueSpec(name="a", quota=quota, cohort="c", borrowing=borrowing)
    specs = (mine, QueueSpec(name="b", quota=other, cohort="c"))
    demand = JobRequest(namespace="team", queue="a", charge=dict(charge))
    found = feasibility.judge(demand, known(*specs))
    beyond = {
        name
        for name, amount in charge.items()
        if name in quota and amount > min(quota[name] + other.get(name, 0), quota[name] + borrowing.get(name, 99))
    }
    assert len(found) == len(beyond)
    assert all(any(f"of {name}," in each.message for each in found) for name in beyond)


@given(AMOUNTS, st.text(max_size=5))
def test_questions_and_answers_survive_json(charge: dict[str, int], name: str) -> None:
    question = JobRequest(namespace="team", queue=name, charge=charge, pods={"Master": charge})
    assert JobRequest.model_validate_json(question.model_dump_json()) == question
    with_starts = question.model_copy(update={"starts": (first("Worker", 2, {"nodeName": "a"}, gpu=1),)})
    assert JobRequest.model_validate_json(with_starts.model_dump_json()) == with_starts
    found = feasibility.judge(question, known(spec("a", gpu=0)))
    assert feasibility.parse(feasibility.document(found)) == found


@pytest.mark.parametrize("answer", [{}, {"findings": 5}, {"findings": [{"code": "X"}]}, {"findings": ["x"]}])
def test_parse_rejects_an_answer_without_findings(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="has no list of findings"):
        feasibility.parse(answer)


@pytest.mark.parametrize("share", [(), (("pods", 0),), (("pods", -5),)])
@pytest.mark.parametrize("pods", [1, -3])
def test_pods_that_ask_for_nothing_find_room_in_any_domain(share: Any, pods: int) -> None:
    odd = FirstPods("Worker", share, "", pods)
    assert feasibility.judge(sharing(RACK, odd), racks("r1")) == []
    assert feasibility.judge(sharing(RACK, first("Worker", 1), odd), racks("r1")) == []
