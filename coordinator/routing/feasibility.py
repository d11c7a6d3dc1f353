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
    ExceedsNodes            all nodes of now together have less, each of them has less than one of its pods asks for,
                            none is one on which a pod may run, or they do not hold the pods that start together.
                            On an embedded cluster this is firm, and everywhere if a pod asks for more than the largest
                            node has, or no domain holds the pods that must share one: elsewhere nodes may be added
    TopologyNotFound        the label of nodes that it requires is no level; one that it prefers is only reported

    GraceTooLong            is no reason against the job: its pods have less time to end than their templates say
    SavesTooLong            is no reason against the job: it could not save for as long as it asks for
    PortTaken               is none either: it waits until another job has ended that has a port which it chose
    QueueHeld, QueueDrains  are none either: the job waits until the queue is resumed
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import pydantic

from coordinator.cache.node_views import NodeView
from coordinator.cache.routing_rules import RoutingRules
from coordinator.cache.views import JobView
from coordinator.routing import eligibility, node_fit, pool_capacity
from coordinator.routing.pool_capacity import PoolSetting
from crds.keys import JobKey
from crds.node_requirements import PlaceCondition
from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from crds.torchjob.demand import FirstPods, HostPort
from crds.torchjob.size_limits import MOST_TASK_TYPES
from queues.picking import quotas
from queues.values import QueueSpec

TASKS = "spec.torchTaskSpecs"
QUEUE = "spec.schedulingPolicy.queue"
TOPOLOGY = "spec.schedulingPolicy.topology"
GANG_QUEUE = "spec.schedulingPolicy.gangQueue"
CHECKPOINT = "spec.schedulingPolicy.checkpointSeconds"
PRIORITY_CLASS = "spec.schedulingPolicy.priorityClassName"
LESS = "ask for less"
INSIST = "--anyway: nodes may be added"
LATER = "it waits until there are nodes that have it"
_REMEDIES = {
    "QueueNotFound": "name another queue, or have an admin create it (torchq queue create NAME)",
    "NotAllowed": "name a queue of the namespace, or have an admin open this one to it",
    "ClaimsNotCounted": "name another queue",
    "PriorityClassNotFound": "name another one, or have an admin create it",
}
_FIELDS = {"QueueNotFound": QUEUE, "NotAllowed": QUEUE, "PriorityClassNotFound": PRIORITY_CLASS}


def _with_readable_places(starts: tuple[FirstPods, ...]) -> tuple[FirstPods, ...]:
    kinds = {"nodeSelector": dict, "tolerations": list, "domain": str}
    for each in starts:
        fields = PlaceCondition.parse(each.place).fields
        if not isinstance(fields, dict) or any(
            not isinstance(fields.get(name, kind()), kind) for name, kind in kinds.items()
        ):
            raise ValueError("the place of a pod is not readable")
    return starts


Starts = Annotated[
    tuple[FirstPods, ...], pydantic.AfterValidator(_with_readable_places), pydantic.Field(max_length=MOST_TASK_TYPES)
]
"""The pods of one stage that start together."""


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
    starts: Starts = ()
    """The pods that start together; empty if that is not known."""
    later_starts: tuple[Starts, ...] = pydantic.Field(default=(), max_length=MOST_TASK_TYPES)
    """With `required`, those of each later stage; empty if that is not known."""
    required: str = ""
    """The label of nodes of which it requires one value."""
    preferred: str = ""
    """The label of nodes of which it prefers few values."""


class Obstacle(NamedTuple):
    """One reason why a job cannot run, or cannot have the resources that it requests."""

    code: str
    field: str
    message: str
    firm: bool = True
    """Whether the job is refused unless its user insists. Of one that is not, the user is warned."""


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
    findings = [*_blocked(request, limits.rules), *_beyond_levels(request, limits.rules)]
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


def _beyond_levels(request: JobRequest, rules: RoutingRules) -> Iterator[Obstacle]:
    """Yield the obstacles that labels of the job's topology are no levels of the installation."""
    remedy = "name one of these" if rules.topology else "leave it out"
    for name, label in (("required", request.required), ("preferred", request.preferred)):
        if refusal := eligibility.topology_refusal(label, rules):
            # Where there are no levels at all, a preference may stay: the same job may go to other clusters.
            is_firm = name == "required" or bool(rules.topology)
            yield Obstacle("TopologyNotFound", f"{TOPOLOGY}.{name}", f"{refusal}: {remedy}", is_firm)


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
    if not limits.nodes:
        yield _exceeds_nodes(TASKS, "the cluster has no node")
        return
    is_unknown = bool(eligibility.topology_refusal(request.required, limits.rules))
    asked = request.model_copy(update={"required": ""}) if is_unknown else request
    yield from _beyond_nodes(asked, limits.nodes, room)


def _beyond_nodes(request: JobRequest, nodes: tuple[NodeView, ...], room: Amounts) -> Iterator[Obstacle]:
    """Yield the obstacles if all nodes were ready and empty. No second node is ever added to an embedded one."""
    is_alone = any(node.embedded for node in nodes)
    large = list(node_fit.too_large(request.pods, nodes))
    for each in large:
        field, may_come = f"{TASKS}.{each.task}", each.is_offered and not is_alone
        yield (
            Obstacle("ExceedsNodes", field, f"{each.text} ({INSIST})")
            if may_come
            else _exceeds_nodes(field, each.text, firm=is_alone)
        )
    reported = {each.resource for each in large}
    beyond = [each for each in _over(request.charge, room) if each[0] not in reported]
    for name, demand, limit in beyond:
        text = f"{_asked(request, name, demand)}, all nodes together have {limit}"
        yield _exceeds_nodes(TASKS, text, firm=is_alone)
    known = {each.task for each in large}
    misplaced = list(node_fit.misplaced([each for each in request.starts if each.task_type not in known], nodes))
    for each in misplaced:
        field, remedy = f"{TASKS}.{each.task}", "it waits until there is one" if each.about_place else LATER
        yield Obstacle("ExceedsNodes", field, f"{each.text}: {remedy}", firm=False)
    if not (large or beyond or misplaced) and (problem := node_fit.split(request.starts, nodes)) is not None:
        yield _exceeds_nodes(TASKS, problem.text, firm=is_alone)
    elif not (large or beyond or misplaced) and request.required:
        stages = (request.starts, *request.later_starts)
        if found := node_fit.undivided(stages, nodes, request.required):
            yield Obstacle("ExceedsNodes", f"{TOPOLOGY}.required", f"{found} ({INSIST})")


def _exceeds_nodes(field: str, problem: str, *, firm: bool = False) -> Obstacle:
    return Obstacle("ExceedsNodes", field, f"{problem}: {LESS if firm else LATER}", firm)


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
