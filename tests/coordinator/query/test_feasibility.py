"""Whether a job could ever run, as its queue, the cohort, the pool and the nodes decide. The answer has the field and
the numbers.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.cache.routing_rules import RoutingRules
from coordinator.routing import feasibility
from coordinator.routing.feasibility import ClusterLimits, JobRequest
from crds.resources.amounts import NOTHING, Amounts
from crds.tenantqueue import TenantQueueSpec
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
        (
            asked(pods={"Worker": {GPU: 9, "pods": 1}}, gpu=8),
            "spec.torchTaskSpecs.Worker",
            "a pod of task Worker asks for 9 of nvidia.com/gpu, the largest node has 8",
        ),
        (asked(**{"example.org/fpga": 1}), "spec.torchTaskSpecs", "1 of example.org/fpga, all nodes together have 0"),
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


@pytest.mark.parametrize(("save", "grace", "left"), [(60, 11, "59 s to save"), (1, 90, "0 s to save"), (60, 10, "")])
def test_a_job_that_may_not_save_for_as_long_as_it_wants_is_warned(save: int, grace: int, left: str) -> None:
    request = asked().model_copy(update={"save_seconds": save, "grace_seconds": grace})
    found = feasibility.judge(request, known(spec("a"), longest_grace=70.0))
    assert [(each.code, each.field, each.firm) for each in found] == (
        [("SavesTooLong", "spec.schedulingPolicy.checkpointSeconds", False)] if left else []
    )
    assert all(each.message.endswith(left) for each in found)


def test_a_pod_that_fits_on_no_single_node_is_a_finding() -> None:
    fast, large = (
        node(allocatable={"cpu": 1000, "pods": 9, GPU: 8}),
        node(name="two", allocatable={"cpu": 64_000, "pods": 9}),
    )
    by = known(spec("a"), setting="nodes", nodes=(fast, large))
    pod = {"cpu": 2000, GPU: 1, "pods": 1}
    (found,) = feasibility.judge(asked(pods={"Master": pod}, cpu=2000, gpu=1), by)
    assert "2 cpu, 1 nvidia.com/gpu, 1 pods, which no node has together" in found.message
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
    found = feasibility.judge(question, known(spec("a", gpu=0)))
    assert feasibility.parse(feasibility.document(found)) == found


@pytest.mark.parametrize("answer", [{}, {"findings": 5}, {"findings": [{"code": "X"}]}, {"findings": ["x"]}])
def test_parse_rejects_an_answer_without_findings(answer: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="has no list of findings"):
        feasibility.parse(answer)
