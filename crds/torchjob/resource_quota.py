"""ResourceQuotas, and a job's demand on them under the names of their limits.

One rule: pure, and the demand is never more than the API server will count. A ResourceQuota that may not apply to a pod
is left out, and so are the requests that an API server may add to a pod. So the API server would refuse every job that
does not fit by this comparison; the API server may still refuse a job that fits.

A job of 4 pods, each with requests cpu 2 and limits memory 3Gi, beside other pods of its namespace:

    name of the limit    asks    used     hard
    requests.cpu         8       4        16       fits
    limits.memory        12Gi    6Gi      16Gi     does not fit: 10Gi are left
    pods                 4       2        10       fits
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any

from crds import excerpts
from crds.resources import quantities
from crds.resources.amounts import DEVICES, JOBS, NOTHING, PODS, Amounts, add, peak, scale
from crds.torchjob import demand
from crds.torchjob.tasks import WORKER, TaskSpec
from crds.torchjob.torchjob import TorchJob

COUNT_PODS = "count/pods"
SERVICES = ("services", "count/services")
LIMITS = "limits."
COMPUTE = ("cpu", "memory")
"""The resources whose requests distinguish other pods from those of the class BestEffort."""
UNSPECIFIED = "for: "
"""How a recorded limit begins for which a pod has to give an amount and does not; the names of containers follow."""
MOST_LIMITS = 64
"""Maximum number of limits that are read from one ResourceQuota."""
MOST_SCOPES = 16
LONGEST = 1000
"""Maximum number of characters of a message."""
_USED = re.compile(r", used [^,]*,")
NO_QUOTAS: Mapping[str, Amounts] = MappingProxyType({})
MOST_NAMED = 4
"""Maximum number of limits that a message names."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A condition that a pod has to meet for a ResourceQuota to count it."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a ResourceQuota, in canonical units."""

    name: str
    """The name in the ResourceQuota: `requests.cpu`, `cpu`, `limits.memory`, `pods`."""
    hard: int
    used: int | None
    """The amount in use, or None if the ResourceQuota's status does not have it."""
    canonical: str
    """The name of the same resource in a job's demand."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota with the limits that its status enforces."""

    namespace: str
    name: str
    limits: tuple[Limit, ...] = ()
    scopes: tuple[Scope, ...] = ()


@dataclass(frozen=True, slots=True)
class PodTraits:
    """The properties of a pod that decide whether a ResourceQuota with scopes counts it."""

    terminating: bool = False
    """Whether the pod has an `activeDeadlineSeconds` of its own."""
    not_best_effort: bool = False
    """Whether the pod requests cpu or memory, regardless of what an API server adds."""
    priority_class: str = ""
    """The pod's PriorityClass; empty if it is not certain."""


@dataclass(frozen=True, slots=True)
class TaskDemand:
    """The pods of one task, which are all equal."""

    amounts: Amounts
    """The total demand of these pods."""
    traits: PodTraits | None = None
    """The traits of the pods. None: they are unknown, and no ResourceQuota with scopes counts the pods."""


@dataclass(frozen=True, slots=True)
class NamespaceDemand:
    """The demand of a running job on the ResourceQuotas of its namespace."""

    task_sets: tuple[tuple[TaskDemand, ...], ...]
    """Sets of tasks whose pods can exist at the same time. Each set has to fit."""
    services: int = 0
    """The number of services with the address of a rank 0, where every pod has its own address."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A ResourceQuota without room for a job's pods."""

    quota: str
    exceeded: tuple[tuple[Limit, int], ...]
    """The exceeded limits, each with the demand of the job."""

    @property
    def is_permanent(self) -> bool:
        """Whether the job would not fit even if nothing else used the ResourceQuota."""
        return any(asks > limit.hard for limit, asks in self.exceeded)

    def __str__(self) -> str:
        exceeded = (
            [(limit, asks) for limit, asks in self.exceeded if asks > limit.hard]
            if self.is_permanent
            else self.exceeded
        )
        clauses = [describe(limit, asks) for limit, asks in exceeded[:MOST_NAMED]]
        clauses += [f"{len(exceeded) - MOST_NAMED} more"] if len(exceeded) > MOST_NAMED else []
        verb = "can never hold" if self.is_permanent else "has no room for"
        more = " (a smaller job, or a larger ResourceQuota)" if self.is_permanent else ""
        sentence = f"ResourceQuota {self.quota} of the namespace {verb} the job's pods: {'; '.join(clauses)}{more}"
        return excerpts.excerpt(sentence, LONGEST)


def same_except_usage(sentence: str, other: str) -> bool:
    """Return whether two messages differ only in the used amounts, which change with every pod."""
    return without_usage(sentence) == without_usage(other)


def without_usage(sentence: str) -> str:
    """Return a message without the used amounts."""
    return _USED.sub(",", sentence)


def describe(limit: Limit, asks: int) -> str:
    """Return the amount that is requested of a limit, the amount that is used, and the limit itself."""
    unit = _unit(limit.name)
    used = "not known yet" if limit.used is None else quantities.format_amount(unit, limit.used)
    hard = quantities.format_amount(unit, limit.hard)
    return f"{limit.name}: asks {quantities.format_amount(unit, asks)}, used {used}, hard {hard}"


def read(manifest: Mapping[str, Any]) -> Quota:
    """Return a ResourceQuota from the manifest of an API server, without limits that cannot be parsed."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    # An API server enforces the status, to which the quota controller copies the limits of the spec.
    hard, used = status.get("hard") or {}, status.get("used") or {}
    names = sorted(hard)[:MOST_LIMITS]
    limits = (_limit(name, hard[name], used.get(name)) for name in names)
    return Quota(metadata["namespace"], metadata["name"], tuple(limit for limit in limits if limit), _scopes(spec))


def amount(name: str, quantity: Any) -> int:
    """Return a quantity of a limit in its canonical unit. Raise ValueError for a value that is not a quantity."""
    return quantities.parse_capped(_unit(name), quantity)


def _limit(name: str, hard: Any, used: Any) -> Limit | None:
    try:
        used_amount = None if used is None else amount(name, used)
        return Limit(name, amount(name, hard), used_amount, quantities.canonical(name))
    except ValueError:
        return None


def _unit(name: str) -> str:
    """Return the resource whose unit a limit has."""
    return quantities.canonical(name).removeprefix(LIMITS)


def _scopes(spec: Mapping[str, Any]) -> tuple[Scope, ...]:
    scopes = [Scope(str(scope)) for scope in spec.get("scopes") or ()]
    for requirement in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, requirement.get("values") or ()))
        scopes.append(Scope(str(requirement.get("scopeName")), str(requirement.get("operator")), values))
    return tuple(scopes) if len(scopes) <= MOST_SCOPES else (Scope("TooMany"),)


def of_charge(charge: Amounts) -> NamespaceDemand:
    """Return the demand of a job from its charge alone: its requests and its pods."""
    return NamespaceDemand(((TaskDemand(_quota_names(charge)),),))


def of_job(job: TorchJob) -> NamespaceDemand:
    """Return the demand of a waiting job from its templates and from the measurements of its pods. Of the workers, the
    least number counts with which the job can be admitted."""
    spec, shares = job.spec, job.shares
    counts = {name: spec.least_workers if name == WORKER else task.num_tasks for name, task in spec.tasks.items()}
    parts = {name: _part(task, shares[name], counts[name]) for name, task in spec.tasks.items()}
    beside = ([other for other in spec.stages if stage.overlaps(other)] for stage in spec.stages)
    together = (tuple(parts[name] for stage in stages for name in stage.tasks) for stages in beside)
    return NamespaceDemand(tuple(together), _services(job))


def _part(task: TaskSpec, share: Amounts, count: int) -> TaskDemand:
    spec = task.template["spec"]
    limits = {f"{LIMITS}{name}": amount for name, amount in _limits(spec).items()}
    priority = "" if task.spot_task_spec is not None else str(spec.get("priorityClassName") or "")
    resources = {*share, *(name.removeprefix(LIMITS) for name, amount in limits.items() if amount)}
    traits = PodTraits(spec.get("activeDeadlineSeconds") is not None, not resources.isdisjoint(COMPUTE), priority)
    return TaskDemand(scale(_quota_names({**share, **limits}), count), traits)


def _limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a pod: the limits of its containers, added in the same way as their requests.

    A container without a limit adds nothing (k8s.io/component-helpers/resource, PodLimits).
    """
    containers = {
        name: [_limits_as_requests(container) for container in spec.get(name) or ()]
        for name in ("containers", "initContainers")
    }
    itself = {"resources": _limits_as_requests(spec)["resources"]}
    amounts = demand.pod_demand({**containers, **itself})
    overhead = demand.read_resources(spec.get("overhead"))
    return {name: amount + overhead.get(name, 0) for name, amount in amounts.items() if name != PODS}


def _limits_as_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    limits = (container.get("resources") or {}).get("limits")
    return {"resources": {"requests": limits}, "restartPolicy": container.get("restartPolicy")}


def _quota_names(charge: Amounts) -> dict[str, int]:
    """Return a charge under the names of ResourceQuotas, without the prefix `requests.`."""
    # A ResourceQuota counts claims when they are made, and refuses no pod for them.
    counted = {name: amount for name, amount in charge.items() if name != JOBS and not name.endswith(DEVICES)}
    return counted | ({COUNT_PODS: counted[PODS]} if PODS in counted else {})


def _services(job: TorchJob) -> int:
    """Return the number of rank 0 pods that other pods connect to; each has a service until the job ends."""
    spec = job.spec
    worlds = [[spec.tasks[name] for name in stage.tasks if not spec.tasks[name].auxiliary] for stage in spec.stages]
    elastic = spec.torch_elastic_policy is not None
    return sum(1 for world in worlds if world and (elastic or sum(task.num_tasks for task in world) > 1))


def has_room(charge: Amounts, quotas: Iterable[Quota]) -> bool:
    """Return whether ResourceQuotas have room for a job with this charge.

    The result agrees with the result of `shortage` for the demand from `of_charge`; this function is faster for many
    jobs.
    """
    for quota in quotas:
        for limit in () if quota.scopes else quota.limits:
            asks = charge.get(PODS if limit.canonical == COUNT_PODS else limit.canonical, 0)
            if asks and limit.canonical != JOBS and not _has_room(limit, asks):
                return False
    return True


def shortage(
    needs: NamespaceDemand,
    quotas: Iterable[Quota],
    *,
    services: bool = True,
    claimed: Mapping[str, Amounts] = NO_QUOTAS,
) -> Shortage | None:
    """Return the first ResourceQuota without room for a job; None if all are known to have room.

    `services`: whether a service is created for each rank 0. `claimed`: by ResourceQuota, the amounts that other jobs
    are about to use.
    """
    return next(_shortages(needs, quotas, services, claimed), None)


def _shortages(
    needs: NamespaceDemand, quotas: Iterable[Quota], services: bool, claimed: Mapping[str, Amounts]
) -> Iterator[Shortage]:
    for quota in quotas:
        asks, others = demand_on(needs, quota, services=services), claimed.get(quota.name, NOTHING)
        lacking = tuple(
            (limit, amount)
            for limit in quota.limits
            if (amount := asks.get(limit.canonical, 0))
            and not _has_room(limit, amount + others.get(limit.canonical, 0))
        )
        if lacking:
            yield Shortage(quota.name, lacking)


def _has_room(limit: Limit, amount: int) -> bool:
    return limit.used is not None and limit.used + amount <= limit.hard


def demand_on(needs: NamespaceDemand, quota: Quota, *, services: bool = True) -> Amounts:
    """Return the largest demand of a job on one ResourceQuota at a time, by canonical name."""
    counted = ([part.amounts for part in parts if _covers(quota.scopes, part.traits)] for parts in needs.task_sets)
    demand_at_once = reduce(
        peak, (reduce(add, parts_amounts, dict(NOTHING)) for parts_amounts in counted), dict(NOTHING)
    )
    if services and needs.services and not quota.scopes:
        return demand_at_once | dict.fromkeys(SERVICES, needs.services)
    return demand_at_once


def _covers(scopes: tuple[Scope, ...], traits: PodTraits | None) -> bool:
    """Return whether a ResourceQuota with these scopes certainly counts a pod."""
    return not scopes or (traits is not None and all(_meets(scope, traits) for scope in scopes))


def _meets(scope: Scope, traits: PodTraits) -> bool:
    match scope.name:
        case "Terminating":
            return traits.terminating
        case "NotTerminating":
            return not traits.terminating
        case "NotBestEffort":
            return traits.not_best_effort
        case "PriorityClass" if traits.priority_class:
            return _selects(scope, traits.priority_class)
    return False  # a LimitRange may add requests to a pod, and a pod without a class gets the default class


def _selects(scope: Scope, priority_class: str) -> bool:
    match scope.operator:
        case "Exists":
            return True
        case "In":
            return priority_class in scope.values
        case "NotIn":
            return priority_class not in scope.values
    return False
