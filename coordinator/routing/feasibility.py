"""The check whether a job could ever run, given the queues and nodes that the coordinator knows.

One rule: pure, and independent of the room that is free now. Before the job is created, the check compares the job's
charge with the most that queues and nodes can give. A finding names the field of the TorchJob, the numbers, and what to
do.

    code                    the job can never run, unless an admin changes something, because
    QueueNotFound           no admin has created the queue
    NotAllowed              the queue is not for the job's namespace, or not for the gang queue that it names
    ClaimsNotCounted        it has resource claims, and the quota of the queue names devices, but no claimed ones
    PriorityClassNotFound   no admin has created the PriorityClass
    ExceedsQuota            it asks for more than the queue and its cohort can ever give
    ExceedsPool             it asks for more than the pool that an admin gives in numbers
    ExceedsNodes            all nodes of now together have less, or each of them has less than one of its pods asks for.
                            Only on an embedded cluster is this firm: elsewhere nodes may be added

    GraceTooLong            is no reason against the job: its pods have less time to end than their templates say
    SavesTooLong            is no reason against the job: it could not save for as long as it asks for
    PortTaken               is none either: it waits until another job has ended that has a port which it chose
    QueueHeld, QueueDrains  are none either: the job waits until the queue is resumed
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pydantic

from coordinator.cache.node_views import NodeView
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.routing import eligibility, pool_capacity
from coordinator.routing.pool_capacity import PoolSetting
from crds.keys import JobKey
from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob.demand import HostPort
from queues.picking import quotas
from queues.values import QueueSpec

TASKS = "spec.torchTaskSpecs"
QUEUE = "spec.schedulingPolicy.queue"
GANG_QUEUE = "spec.schedulingPolicy.gangQueue"
CHECKPOINT = "spec.schedulingPolicy.checkpointSeconds"
PRIORITY_CLASS = "spec.schedulingPolicy.priorityClassName"
LESS = "ask for less"
LATER = "it waits until there are nodes that have it"
_REMEDIES = {
    "QueueNotFound": "name another queue, or have an admin create it (torchq queue create NAME)",
    "NotAllowed": "name a queue of the namespace, or have an admin open this one to it",
    "ClaimsNotCounted": "name another queue",
    "PriorityClassNotFound": "name another one, or have an admin create it",
}
_FIELDS = {"QueueNotFound": QUEUE, "NotAllowed": QUEUE, "PriorityClassNotFound": PRIORITY_CLASS}


class JobRequest(pydantic.BaseModel):
    """The part of a job that decides whether it could ever run."""

    model_config = pydantic.ConfigDict(frozen=True)

    namespace: str
    queue: str
    priority_class: str = ""
    """The PriorityClass that gives its priority; empty if the job gives its own."""
    claims: str = ""
    """The field with resource claims; empty if there is none."""
    gang_queue: str = ""
    """The queue of the gang scheduler that it names."""
    charge: dict[str, int]
    """What it takes with its least number of workers."""
    largest: dict[str, int] = {}
    """What it takes with all workers; empty if that is the same."""
    pods: dict[str, dict[str, int]] = {}
    """By task type, the amounts that one pod requests."""
    save_seconds: int = 0
    """The seconds for which the job wants to save before its pods are deleted."""
    grace_seconds: int = 0
    """The longest grace of its pods, in seconds."""
    ports: tuple[HostPort, ...] = ()
    """The ports of a node that it chooses itself."""


class Obstacle(NamedTuple):
    """One reason why a job cannot run, or cannot have the resources that it requests."""

    code: str
    field: str
    message: str
    firm: bool = True
    """Whether the job can never run; if not, new nodes may change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """The most that queues and nodes can give."""

    rules: RoutingRules
    specs: Mapping[str, QueueSpec]
    """The TenantQueues."""
    setting: PoolSetting
    """The coordinator's setting `pool`."""
    nodes: tuple[NodeView, ...] = ()
    """The nodes, if the size of the pool follows from them."""
    longest_grace: float = math.inf
    """The seconds that pods may take to end at most, saving included."""


def request_of(job: JobView) -> JobRequest:
    """Return the request of an existing job. Only the charge of the job is known, not the requests of single pods."""
    return JobRequest(
        namespace=job.key.namespace,
        queue=job.queue,
        priority_class=job.priority_class,
        claims=job.claims,
        gang_queue=job.gang_queue,
        charge=dict(job.least_charge),
    )


def judge(request: JobRequest, limits: ClusterLimits) -> list[Obstacle]:
    """Return every reason why the job could not run; no reason if it could."""
    findings = list(_blocked(request, limits.rules))
    spec = limits.specs.get(request.queue)
    if spec is not None and not any(finding.field == QUEUE for finding in findings):
        findings += _beyond_quota(request, spec, limits.specs.values())
    findings += [*_beyond_pool(request, limits), *_beyond_grace(request, limits.longest_grace)]
    block = eligibility.port_block(JobKey(request.namespace, "", ""), request.ports, limits.rules)
    if block is not None:
        findings.append(
            Obstacle("PortTaken", TASKS, f"{block.sentence}: the job waits until that one has ended", False)
        )
    return findings


def judge_submission(request: JobRequest, limits: ClusterLimits) -> list[Obstacle]:
    """Return every reason why a new job could not run, and why it would wait whatever room is free."""
    return [*_held(request, limits.rules), *judge(request, limits)]


def _held(request: JobRequest, rules: RoutingRules) -> Iterator[Obstacle]:
    queue = rules.queues.get(request.queue)
    if queue is None or queue.is_open:
        return
    drains = queue.stop_policy == "HoldAndDrain"
    state = "is on hold and drains" if drains else "is on hold"
    message = f"queue {request.queue} {state}: the job waits until an admin resumes it (torchq queue resume)"
    yield Obstacle("QueueDrains" if drains else "QueueHeld", QUEUE, message, firm=False)


def _beyond_grace(request: JobRequest, longest: float) -> Iterator[Obstacle]:
    if request.grace_seconds > longest:
        yield Obstacle(
            "GraceTooLong",
            TASKS,
            f"the grace of its pods, {request.grace_seconds} s, is more than the setting longest_grace, {longest:g} s: "
            "pods that a worker deletes have no more to end",
            firm=False,
        )
    if not request.save_seconds or request.save_seconds + request.grace_seconds <= longest:
        return
    left = max(0.0, longest - request.grace_seconds)
    yield Obstacle(
        "SavesTooLong",
        CHECKPOINT,
        f"{request.save_seconds} s and the grace of its pods, {request.grace_seconds} s, are more than the setting "
        f"longest_grace, {longest:g} s: before it is suspended or drained, the job has {left:g} s to save",
        firm=False,
    )


def _blocked(request: JobRequest, rules: RoutingRules) -> Iterator[Obstacle]:
    """Yield the obstacles that routing would find: the job's queue, its claims or its PriorityClass."""
    view = JobView(
        key=JobKey(request.namespace, "", ""),
        queue=request.queue,
        submitted=0.0,
        priority_class=request.priority_class,
        claims=request.claims,
        uncounted=bool(request.claims),
        gang_queue=request.gang_queue,
    )
    anywhere = replace(rules, queues={}, implicit=True)
    jobs = ((replace(view, priority_class=""), rules), (replace(view, queue=request.namespace, claims=""), anywhere))
    for job, job_rules in jobs:
        job_eligibility = eligibility.of(job, job_rules, 0.0)
        if job_eligibility.code in _REMEDIES:
            sentence = job_eligibility.sentence.removesuffix(eligibility.UNTIL_CREATED)
            field = _FIELDS.get(job_eligibility.code, request.claims)
            remedy = _REMEDIES[job_eligibility.code]
            spec = rules.queues.get(job.queue)
            if spec is not None and not spec.allows_gang_queue(job.gang_queue):
                field, remedy = GANG_QUEUE, "name one of these, or have an admin add it (torchq queue set-gang-queues)"
            if job_eligibility.code == "QueueNotFound":
                remedy = f"{remedy}; {eligibility.suggest_queues(request.queue, request.namespace, rules)}"
            yield Obstacle(job_eligibility.code, field, f"{sentence}: {remedy}")


def _asked(request: JobRequest, name: str, demand: str) -> str:
    """Return the beginning of a sentence about the least requests of a job, with the requests of all of its workers."""
    if not request.largest:
        return f"the job asks for {demand} of {name}"
    most = quantities.format_amount(name, request.largest.get(name, 0))
    return f"the job asks for {demand} of {name} with its least number of workers ({most} with all)"


def _beyond_quota(request: JobRequest, spec: QueueSpec, specs: Iterable[QueueSpec]) -> Iterator[Obstacle]:
    cohort = quotas.cohorts(specs).get(spec.cohort)
    ceiling = quotas.ceiling(spec, cohort, NOTHING)
    source = f"its quota, and what cohort {spec.cohort} may lend to it" if cohort else "its quota"
    remedy = f"{LESS}, or have an admin raise the quota (torchq queue set-quota)"
    for name, demand, limit in _over(request.charge, ceiling):
        problem = f"{_asked(request, name, demand)}, queue {spec.name} can give {limit} at most ({source})"
        yield Obstacle("ExceedsQuota", TASKS, f"{problem}: {remedy}")


def _beyond_pool(request: JobRequest, limits: ClusterLimits) -> Iterator[Obstacle]:
    room = pool_capacity.largest(limits.setting, limits.nodes) or NOTHING
    if limits.setting != "nodes":
        for name, demand, limit in _over(request.charge, room):
            problem = f"{_asked(request, name, demand)}, all queues together have {limit} (the setting pool)"
            yield Obstacle("ExceedsPool", TASKS, f"{problem}: {LESS}")
        return
    firm = any(node.embedded for node in limits.nodes)
    if not limits.nodes:
        yield _nodes(TASKS, "the cluster has no node", firm=False)
        return
    reported = set()
    for name, demand, limit in _over(request.charge, room):
        reported.add(name)
        yield _nodes(TASKS, f"{_asked(request, name, demand)}, all nodes together have {limit}", firm=firm)
    for task, pod in request.pods.items():
        for problem in _too_large(task, pod, limits.nodes, reported):
            yield _nodes(f"{TASKS}.{task}", problem, firm=firm)


def _nodes(field: str, problem: str, *, firm: bool) -> Obstacle:
    return Obstacle("ExceedsNodes", field, f"{problem}: {LESS if firm else LATER}", firm)


def _too_large(task: str, demand: Amounts, nodes: tuple[NodeView, ...], reported: set[str]) -> Iterator[str]:
    """Yield the problems of a pod that would fit no node even if all nodes were empty. Resources in `reported` are left
    out."""
    request = {name: amount for name, amount in demand.items() if name not in reported}
    if any(amounts.fits(request, NOTHING, {**node.allocatable, amounts.OTHERS: 0}) for node in nodes):
        return
    largest = {name: max(node.allocatable.get(name, 0) for node in nodes) for name in request}
    over = list(_over(request, largest))
    for name, quantity, limit in over:
        yield f"a pod of task {task} asks for {quantity} of {name}, the largest node has {limit}"
    if not over:
        together = ", ".join(
            f"{quantities.format_amount(name, amount)} {name}" for name, amount in sorted(request.items())
        )
        yield f"a pod of task {task} asks for {together}, which no node has together"


def _over(demand: Amounts, limit: Amounts) -> Iterator[tuple[str, str, str]]:
    """Yield the resources whose demand exceeds their limit, with both amounts as quantities."""
    for name, amount in sorted(demand.items()):
        if not amounts.fits({name: amount}, NOTHING, limit):
            most = quantities.format_amount(name, amounts.limit_for(limit, name) or 0)
            yield name, quantities.format_amount(name, amount), most


def document(findings: Iterable[Obstacle]) -> dict[str, Any]:
    """Return findings as the JSON document of an answer."""
    return {"findings": [finding._asdict() for finding in findings]}


def parse(answer: Mapping[str, Any]) -> list[Obstacle]:
    """Return the findings in such a document. Raises ValueError if the document has another form."""
    try:
        return [Obstacle(**{name: item[name] for name in Obstacle._fields}) for item in answer["findings"]]
    except (KeyError, TypeError) as error:
        raise ValueError("the coordinator's answer has no list of findings") from error
