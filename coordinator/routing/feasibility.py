"""Whether a job could ever run, by what the coordinator knows of queues and nodes.

One rule: pure, and asked before there is a job: what is judged is what the job would be charged, whatever is free now.
A finding names the field of the TorchJob, the numbers, and what to do.

    code                    the job can never run, unless an admin changes something, because
    QueueNotFound           no admin has created the queue
    NotAllowed              the queue is not for the job's namespace
    ClaimsNotCounted        it has resource claims, and the quota of the queue names a device
    PriorityClassNotFound   no admin has created the PriorityClass
    ExceedsQuota            it asks for more than the queue and its cohort can ever give
    ExceedsPool             it asks for more than the pool that an admin gives in numbers
    ExceedsNodes            all nodes of now together have less, or each of them has less than one of its pods asks for.
                            This is firm on an embedded cluster alone: elsewhere nodes may be added
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import pydantic

from coordinator.cache.routing_rules import Rules
from coordinator.cache.views import JobView, NodeView
from coordinator.routing import eligibility, pool_capacity
from coordinator.routing.pool_capacity import PoolSetting
from crds.keys import JobKey
from crds.resources import amounts, quantities
from crds.resources.amounts import NOTHING, Amounts
from queues.picking import quotas
from queues.values import QueueSpec

Code = Literal[
    "QueueNotFound",
    "NotAllowed",
    "ClaimsNotCounted",
    "PriorityClassNotFound",
    "ExceedsQuota",
    "ExceedsPool",
    "ExceedsNodes",
]
TASKS = "spec.torchTaskSpecs"
QUEUE = "spec.schedulingPolicy.queue"
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


class Asked(pydantic.BaseModel):
    """What of a job decides whether it could ever run."""

    model_config = pydantic.ConfigDict(frozen=True)

    namespace: str
    queue: str
    priority_class: str = ""
    """The PriorityClass that says its priority; empty if it says so itself."""
    claims: str = ""
    """The field that claims resources; empty if none does."""
    charge: dict[str, int]
    pods: dict[str, dict[str, int]] = {}
    """By task type, what one pod asks for."""


class Finding(NamedTuple):
    """A reason for which the job cannot run."""

    code: str
    field: str
    message: str
    firm: bool = True
    """Whether the job can never run; else nodes that are added may change that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a job is judged by."""

    rules: Rules
    specs: Mapping[str, QueueSpec]
    """The TenantQueues."""
    setting: PoolSetting
    """The coordinator's setting `pool`."""
    nodes: tuple[NodeView, ...] = ()
    """The nodes, if the pool is taken from them."""


def of(job: JobView) -> Asked:
    """What is known of a job that is there; of its pods only what they ask for together."""
    return Asked(
        namespace=job.key.namespace,
        queue=job.queue,
        priority_class=job.priority_class,
        claims=job.claims,
        charge=dict(job.charge),
    )


def judge(asked: Asked, known: Known) -> list[Finding]:
    """Everything for which the job could not run; nothing if it could."""
    barred = list(_barred(asked, known.rules))
    spec = known.specs.get(asked.queue)
    if spec is not None and not any(each.field == QUEUE for each in barred):
        barred += _beyond_quota(asked.charge, spec, known.specs.values())
    return [*barred, *_beyond_pool(asked, known)]


def _barred(asked: Asked, rules: Rules) -> Iterator[Finding]:
    """What routing would say at once, of the queue and of the PriorityClass."""
    view = JobView(
        key=JobKey(asked.namespace, "", ""),
        queue=asked.queue,
        submitted=0.0,
        priority_class=asked.priority_class,
        claims=asked.claims,
    )
    anywhere = replace(rules, queues={}, implicit=True)
    jobs = ((replace(view, priority_class=""), rules), (replace(view, queue=asked.namespace, claims=""), anywhere))
    for job, by in jobs:
        stands = eligibility.of(job, by, 0.0)
        if stands.code in _REMEDIES:
            sentence = stands.sentence.removesuffix(eligibility.UNTIL_THERE)
            field = _FIELDS.get(stands.code, asked.claims)
            remedy = _REMEDIES[stands.code]
            if stands.code == "QueueNotFound":
                remedy = f"{remedy}; {eligibility.alternatives(asked.queue, asked.namespace, rules)}"
            yield Finding(stands.code, field, f"{sentence}: {remedy}")


def _beyond_quota(charge: Amounts, spec: QueueSpec, specs: Iterable[QueueSpec]) -> Iterator[Finding]:
    cohort = quotas.cohorts(specs).get(spec.cohort)
    ceiling = quotas.ceiling(spec, cohort, NOTHING)
    whose = f"its quota, and what cohort {spec.cohort} may lend to it" if cohort else "its quota"
    remedy = f"{LESS}, or have an admin raise the quota (torchq queue set-quota)"
    for name, numbers in _over(charge, ceiling):
        said = f"the job asks for {numbers[0]} of {name}, queue {spec.name} can give {numbers[1]} at most ({whose})"
        yield Finding("ExceedsQuota", TASKS, f"{said}: {remedy}")


def _beyond_pool(asked: Asked, known: Known) -> Iterator[Finding]:
    room = pool_capacity.largest(known.setting, known.nodes) or NOTHING
    if known.setting != "nodes":
        for name, (wanted, there) in _over(asked.charge, room):
            said = f"the job asks for {wanted} of {name}, all queues together have {there} (the setting pool)"
            yield Finding("ExceedsPool", TASKS, f"{said}: {LESS}")
        return
    firm = any(node.embedded for node in known.nodes)
    if not known.nodes:
        yield _nodes(TASKS, "the cluster has no node", firm=False)
        return
    seen = set()
    for name, (wanted, there) in _over(asked.charge, room):
        seen.add(name)
        yield _nodes(TASKS, f"the job asks for {wanted} of {name}, all nodes together have {there}", firm=firm)
    for task, demand in asked.pods.items():
        for said in _too_large(task, demand, known.nodes, seen):
            yield _nodes(f"{TASKS}.{task}", said, firm=firm)


def _nodes(field: str, said: str, *, firm: bool) -> Finding:
    return Finding("ExceedsNodes", field, f"{said}: {LESS if firm else LATER}", firm)


def _too_large(task: str, demand: Amounts, nodes: tuple[NodeView, ...], known: set[str]) -> Iterator[str]:
    """Why a pod fits no node, though it were empty; names that are known to be too much of are left out."""
    wanted = {name: amount for name, amount in demand.items() if name not in known}
    if any(amounts.fits(wanted, NOTHING, {**node.allocatable, amounts.OTHERS: 0}) for node in nodes):
        return
    largest = {name: max(node.allocatable.get(name, 0) for node in nodes) for name in wanted}
    over = list(_over(wanted, largest))
    for name, (asked, there) in over:
        yield f"a pod of task {task} asks for {asked} of {name}, the largest node has {there}"
    if not over:
        together = ", ".join(f"{quantities.text(name, amount)} {name}" for name, amount in sorted(wanted.items()))
        yield f"a pod of task {task} asks for {together}, which no node has together"


def _over(demand: Amounts, limit: Amounts) -> Iterator[tuple[str, tuple[str, str]]]:
    """The names of which more is asked for than a limit allows, with both amounts as quantities."""
    for name, asked in sorted(demand.items()):
        if not amounts.fits({name: asked}, NOTHING, limit):
            yield name, (quantities.text(name, asked), quantities.text(name, amounts.most(limit, name) or 0))


def document(findings: Iterable[Finding]) -> dict[str, Any]:
    """Findings as a coordinator answers them."""
    return {"findings": [each._asdict() for each in findings]}


def parse(answer: Mapping[str, Any]) -> list[Finding]:
    """The findings of such an answer. ValueError if it is none."""
    try:
        return [Finding(**{name: each[name] for name in Finding._fields}) for each in answer["findings"]]
    except (KeyError, TypeError) as error:
        raise ValueError("the coordinator's answer makes no sense") from error
