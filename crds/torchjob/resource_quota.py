"""ResourceQuotas, and what a job asks of them in their own terms.

One rule: pure, and never more than the API server will count: a ResourceQuota that may not apply to a pod, and what an
API server may add to a pod, is left out. So a job that is found not to fit would be refused; one that is found to fit
may be refused all the same.

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
from crds.resources.amounts import JOBS, NOTHING, PODS, Amounts, add, peak, scale
from crds.torchjob import demand
from crds.torchjob.tasks import TaskSpec
from crds.torchjob.torchjob import TorchJob

COUNT_PODS = "count/pods"
SERVICES = ("services", "count/services")
LIMITS = "limits."
COMPUTE = ("cpu", "memory")
"""The resources by which Kubernetes tells pods of the class BestEffort from others."""
MOST_LIMITS = 64
"""Limits of one ResourceQuota that are looked at."""
MOST_SCOPES = 16
LONGEST = 1000
"""Characters of a sentence."""
_USED = re.compile(r", used [^,]*,")
NO_QUOTAS: Mapping[str, Amounts] = MappingProxyType({})
MOST_NAMED = 4
"""Limits that a sentence names."""


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
    """As the ResourceQuota writes it: `requests.cpu`, `cpu`, `limits.memory`, `pods`."""
    hard: int
    used: int | None
    """None: the ResourceQuota's status does not say."""
    canonical: str
    """The name under which a job's demand has it."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota as its status says it is enforced."""

    namespace: str
    name: str
    limits: tuple[Limit, ...] = ()
    scopes: tuple[Scope, ...] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """What decides whether a ResourceQuota with scopes counts a pod."""

    terminating: bool = False
    """Whether the pod has an `activeDeadlineSeconds` of its own."""
    not_best_effort: bool = False
    """Whether it asks for cpu or memory whatever an API server adds."""
    priority_class: str = ""
    """Its PriorityClass; empty if that is not certain."""


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of one task, which are all alike."""

    amounts: Amounts
    """What all of them ask for together."""
    traits: Traits | None = None
    """None: they are not known, and no ResourceQuota with scopes is taken to count the pods."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job asks of the ResourceQuotas of its namespace while it runs."""

    together: tuple[tuple[Part, ...], ...]
    """Sets of tasks whose pods can exist at once. Each of the sets has to fit."""
    services: int = 0
    """Services that name a rank 0, where pods have addresses of their own."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """A ResourceQuota does not hold a job's pods."""

    quota: str
    lacking: tuple[tuple[Limit, int], ...]
    """The limits that are too small, each with what the job asks for."""

    @property
    def never(self) -> bool:
        """Whether the job would not fit either if nothing else used the ResourceQuota."""
        return any(asks > limit.hard for limit, asks in self.lacking)

    def __str__(self) -> str:
        first = [(limit, asks) for limit, asks in self.lacking if asks > limit.hard] if self.never else self.lacking
        told = [_told(limit, asks) for limit, asks in first[:MOST_NAMED]]
        told += [f"{len(first) - MOST_NAMED} more"] if len(first) > MOST_NAMED else []
        verb = "can never hold" if self.never else "has no room for"
        more = " (a smaller job, or a larger ResourceQuota)" if self.never else ""
        said = f"ResourceQuota {self.quota} of the namespace {verb} the job's pods: {'; '.join(told)}{more}"
        return excerpts.excerpt(said, LONGEST)


def same(sentence: str, other: str) -> bool:
    """Whether two sentences differ in nothing but what is used, which changes with every pod."""
    return _USED.sub(",", sentence) == _USED.sub(",", other)


def _told(limit: Limit, asks: int) -> str:
    unit = _unit(limit.name)
    used = "not known yet" if limit.used is None else quantities.text(unit, limit.used)
    return f"{limit.name}: asks {quantities.text(unit, asks)}, used {used}, hard {quantities.text(unit, limit.hard)}"


def read(manifest: Mapping[str, Any]) -> Quota:
    """A ResourceQuota as an API server shows it. Limits that cannot be read are left out."""
    metadata, spec, status = manifest["metadata"], manifest.get("spec") or {}, manifest.get("status") or {}
    # An API server enforces what the status says, which the controller of quotas takes from the spec.
    hard, used = status.get("hard") or {}, status.get("used") or {}
    names = sorted(hard)[:MOST_LIMITS]
    limits = (_limit(name, hard[name], used.get(name)) for name in names)
    return Quota(metadata["namespace"], metadata["name"], tuple(each for each in limits if each), _scopes(spec))


def amount(name: str, quantity: Any) -> int:
    """A quantity of a limit, in its canonical unit. ValueError for what is not a quantity."""
    return quantities.capped(_unit(name), quantity)


def _limit(name: str, hard: Any, used: Any) -> Limit | None:
    try:
        known = None if used is None else amount(name, used)
        return Limit(name, amount(name, hard), known, quantities.canonical(name))
    except ValueError:
        return None


def _unit(name: str) -> str:
    """The resource whose unit a limit has."""
    return quantities.canonical(name).removeprefix(LIMITS)


def _scopes(spec: Mapping[str, Any]) -> tuple[Scope, ...]:
    listed = [Scope(str(each)) for each in spec.get("scopes") or ()]
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, each.get("values") or ()))
        listed.append(Scope(str(each.get("scopeName")), str(each.get("operator")), values))
    return tuple(listed) if len(listed) <= MOST_SCOPES else (Scope("TooMany"),)


def of_charge(charge: Amounts) -> Needs:
    """What a job asks for of which only the charge is known: its requests and its pods."""
    return Needs(((Part(_counted(charge)),),))


def of_job(job: TorchJob) -> Needs:
    """What a job asks for, by its templates and what is known of its pods beyond them."""
    spec, shares = job.spec, job.shares
    parts = {name: _part(task, shares[name]) for name, task in spec.tasks.items()}
    beside = ([other for other in spec.stages if stage.overlaps(other)] for stage in spec.stages)
    together = (tuple(parts[name] for stage in stages for name in stage.tasks) for stages in beside)
    return Needs(tuple(together), _services(job))


def _part(task: TaskSpec, share: Amounts) -> Part:
    spec = task.template["spec"]
    limits = {f"{LIMITS}{name}": amount for name, amount in _limits(spec).items()}
    priority = "" if task.spot_task_spec is not None else str(spec.get("priorityClassName") or "")
    asked = {*share, *(name.removeprefix(LIMITS) for name, amount in limits.items() if amount)}
    traits = Traits(spec.get("activeDeadlineSeconds") is not None, not asked.isdisjoint(COMPUTE), priority)
    return Part(scale(_counted({**share, **limits}), task.num_tasks), traits)


def _limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """What the containers of a pod may use at most, added up as their requests are (k8s.io/component-helpers/resource,
    PodLimits): a container without a limit adds nothing."""
    found = {name: [_bounded(each) for each in spec.get(name) or ()] for name in ("containers", "initContainers")}
    itself = {"resources": _bounded(spec)["resources"]}
    amounts = demand.pod_demand({**found, **itself})
    overhead = demand.amounts(spec.get("overhead"))
    return {name: amount + overhead.get(name, 0) for name, amount in amounts.items() if name != PODS}


def _bounded(container: Mapping[str, Any]) -> dict[str, Any]:
    limits = (container.get("resources") or {}).get("limits")
    return {"resources": {"requests": limits}, "restartPolicy": container.get("restartPolicy")}


def _counted(charge: Amounts) -> dict[str, int]:
    """A charge in the terms of ResourceQuotas, without its `requests.`."""
    found = {name: amount for name, amount in charge.items() if name != JOBS}
    return found | ({COUNT_PODS: found[PODS]} if PODS in found else {})


def _services(job: TorchJob) -> int:
    """The rank 0s that other pods look for. A service stays until the job ends."""
    spec = job.spec
    worlds = [[spec.tasks[each] for each in stage.tasks if not spec.tasks[each].auxiliary] for stage in spec.stages]
    elastic = spec.torch_elastic_policy is not None
    return sum(1 for world in worlds if world and (elastic or sum(task.num_tasks for task in world) > 1))


def holds(charge: Amounts, quotas: Iterable[Quota]) -> bool:
    """Whether ResourceQuotas hold a job of this charge: as `shortage` of `of_charge`, for many jobs."""
    for quota in quotas:
        for limit in () if quota.scopes else quota.limits:
            asks = charge.get(PODS if limit.canonical == COUNT_PODS else limit.canonical, 0)
            if asks and limit.canonical != JOBS and not _holds(limit, asks):
                return False
    return True


def shortage(
    needs: Needs, quotas: Iterable[Quota], *, services: bool = True, taken: Mapping[str, Amounts] = NO_QUOTAS
) -> Shortage | None:
    """The first ResourceQuota that does not hold a job; None if all do, as far as that is known.

    `services`: whether a service is made for each rank 0. `taken` is what others are about to use, by ResourceQuota.
    """
    return next(_shortages(needs, quotas, services, taken), None)


def _shortages(
    needs: Needs, quotas: Iterable[Quota], services: bool, taken: Mapping[str, Amounts]
) -> Iterator[Shortage]:
    for quota in quotas:
        asks, others = asked(needs, quota, services=services), taken.get(quota.name, NOTHING)
        lacking = tuple(
            (limit, amount)
            for limit in quota.limits
            if (amount := asks.get(limit.canonical, 0)) and not _holds(limit, amount + others.get(limit.canonical, 0))
        )
        if lacking:
            yield Shortage(quota.name, lacking)


def _holds(limit: Limit, amount: int) -> bool:
    return limit.used is not None and limit.used + amount <= limit.hard


def asked(needs: Needs, quota: Quota, *, services: bool = True) -> Amounts:
    """The most that a job asks of one ResourceQuota at once, by canonical name."""
    counted = ([part.amounts for part in parts if _covers(quota.scopes, part.traits)] for parts in needs.together)
    found = reduce(peak, (reduce(add, each, dict(NOTHING)) for each in counted), dict(NOTHING))
    if services and needs.services and not quota.scopes:
        return found | dict.fromkeys(SERVICES, needs.services)
    return found


def _covers(scopes: tuple[Scope, ...], traits: Traits | None) -> bool:
    """Whether a ResourceQuota is certain to count a pod."""
    return not scopes or (traits is not None and all(_meets(each, traits) for each in scopes))


def _meets(scope: Scope, traits: Traits) -> bool:
    match scope.name:
        case "Terminating":
            return traits.terminating
        case "NotTerminating":
            return not traits.terminating
        case "NotBestEffort":
            return traits.not_best_effort
        case "PriorityClass" if traits.priority_class:
            return _selects(scope, traits.priority_class)
    return False  # a pod without requests may be given some by a LimitRange, one without a class the default one


def _selects(scope: Scope, priority_class: str) -> bool:
    match scope.operator:
        case "Exists":
            return True
        case "In":
            return priority_class in scope.values
        case "NotIn":
            return priority_class not in scope.values
    return False
