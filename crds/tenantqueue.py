"""The TenantQueue: an admin's word on who gets how much.

One rule: its name is the queue's name; weights divide what is scarce, quotas bound what a queue may hold.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, WithJsonSchema

from crds import problems
from crds.errors import InvalidObject, Problem
from crds.metadata import Metadata, Named
from crds.model import Name, Observed, Written
from crds.resources import quantities, resource_names
from crds.resources.amounts import OTHERS, Amounts
from crds.torchjob import demand

MAX_WEIGHT = 1_000_000
LABEL_VALUE = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
Quantity = Annotated[
    str | int | float,
    WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 0, "maxLength": 64, "pattern": quantities.PATTERN}),
]
ResourceName = Annotated[str, Field(max_length=253)]
LabelName = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]
Quota = Annotated[dict[ResourceName, Quantity], Field(max_length=64)]
TWICE = "a resource must not be limited twice, as cpu and requests.cpu, or pods and count/pods"
NO_QUOTA = "a queue of a cohort needs a quota: it is what the others may borrow"
NO_COHORT = "only a queue of a cohort can borrow: set spec.cohort"
UNCOUNTED = "a quota counts requests, pods and jobs: limits.* and count/* other than count/pods cannot be used"


class NamespaceSelector(Written):
    """Namespaces by their labels."""

    match_labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=16)
    """What a namespace has to be labelled with; all of it. Every namespace if empty."""


class TenantQueueSpec(Written):
    """How a tenant's jobs wait, and for what."""

    weight: int = Field(default=1, ge=1, le=MAX_WEIGHT)
    """The queue's share of what is scarce, against the weights of the others."""
    quota: Quota = Field(default_factory=dict)
    """The most its admitted jobs may ask for together: resources as in a ResourceQuota, `pods`, and
    `jobs`."""
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"
    namespaces: tuple[Name, ...] = Field(default=(), max_length=1024, strict=False)
    """Whose jobs may use it, beside those that the selector names; everybody's if there is neither."""
    namespace_selector: NamespaceSelector | None = None
    """The namespaces whose jobs may use it, by label."""
    aging_seconds: int = Field(default=600, ge=1, le=31_536_000)
    """How many seconds of waiting one step of priority is worth."""
    cohort: Name | None = None
    """Queues of a cohort lend each other what they do not use of their quotas."""
    borrowing_limit: Quota = Field(default_factory=dict)
    """The most it may hold beyond its quota; what is missing here is bounded by the cohort alone."""

    @cached_property
    def quota_amounts(self) -> Amounts:
        """The quota in canonical names and units; more than can be counted is no limit in effect."""
        return _capped(self.quota)

    @cached_property
    def borrowing_amounts(self) -> Amounts:
        """The borrowing limit, likewise."""
        return _capped(self.borrowing_limit)

    def allows(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the jobs of a namespace with these labels may use it."""
        selector = self.namespace_selector
        if selector is None:
            return not self.namespaces or namespace in self.namespaces
        return namespace in self.namespaces or selector.match_labels.items() <= labels.items()

    @property
    def public(self) -> bool:
        """Whether it is for every namespace."""
        return not self.namespaces and self.namespace_selector is None

    @property
    def open(self) -> bool:
        """Whether jobs may be picked from it."""
        return self.stop_policy == "None"


class TenantQueueStatus(Observed):
    """How the queue does."""

    pending: int = 0
    """Jobs that wait."""
    admitted: int = 0
    """Jobs that hold room."""
    usage: Annotated[dict[ResourceName, Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """What the admitted jobs ask for together."""
    share: str = ""
    """Its part of what is admitted."""
    target: str = ""
    """The part its weight stands for."""


class QueueName(Named):
    """A queue's name is a label's value and a job's word for it."""

    name: Name


class TenantQueue(Written):
    """A queue of one tenant's jobs."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["TenantQueue"] = "TenantQueue"
    metadata: Metadata
    spec: TenantQueueSpec = TenantQueueSpec()
    status: TenantQueueStatus = TenantQueueStatus()


def parse(manifest: Any) -> TenantQueue:
    """A manifest as a TenantQueue, defaults applied. InvalidObject with every problem found."""
    queue = read(manifest)
    found = problems.unique(ineffective(queue))
    if found:
        raise InvalidObject(found)
    return queue


def read(manifest: Any) -> TenantQueue:
    """A TenantQueue as an API server keeps it. InvalidObject as `parse`, but for what earlier versions let pass
    (`ineffective`)."""
    try:
        queue = TenantQueue.model_validate(manifest, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidObject(problems.unique(problems.translate(error))) from error
    found = problems.unique(_check(queue))
    if found:
        raise InvalidObject(found)
    return queue


def ineffective(queue: TenantQueue) -> Iterator[Problem]:
    """The limits that do not do what they say. A name that is no resource limits nothing, since no job can ask for it;
    of a fraction of something that cannot be divided, the next whole number is the limit."""
    for field, limits in (("spec.quota", queue.spec.quota), ("spec.borrowingLimit", queue.spec.borrowing_limit)):
        for name, quantity in limits.items():
            if not resource_names.is_limit(name):
                yield Problem(field, f"Invalid value: {problems.shown(name)}: {resource_names.unknown(name)}")
            elif resource_names.is_divided(name, quantity):
                divided = f"Invalid value: {problems.shown(quantity)}: {resource_names.DIVIDED}"
                yield Problem(f"{field}.{name}", divided)


def limit_problem(name: str, quantity: str) -> str:
    """Why a limit of this name and quantity would not do what it says; empty if it would, or if something else is wrong
    with it."""
    if not resource_names.is_limit(name):
        return "" if _uncounted(name) else resource_names.unknown(name)
    divided = quantities.is_quantity(quantity) and resource_names.is_divided(name, quantity)
    return f"{name}={quantity}: {resource_names.DIVIDED}" if divided else ""


def _check(queue: TenantQueue) -> Iterator[Problem]:
    yield from problems.find(QueueName, {"name": queue.metadata.name}, "metadata")
    yield from _quota("spec.quota", queue.spec.quota)
    yield from _quota("spec.borrowingLimit", queue.spec.borrowing_limit)
    yield from _cohort(queue.spec)


def _cohort(spec: TenantQueueSpec) -> Iterator[Problem]:
    if spec.cohort is not None and not spec.quota:
        yield Problem("spec.cohort", f"Invalid value: {problems.shown(spec.cohort)}: {NO_QUOTA}")
    if spec.cohort is None and spec.borrowing_limit:
        yield Problem("spec.borrowingLimit", f"Invalid value: {problems.shown(spec.borrowing_limit)}: {NO_COHORT}")


def _quota(at: str, quota: dict[str, str | int | float]) -> Iterator[Problem]:
    for name, quantity in quota.items():
        if _uncounted(name):
            yield Problem(at, f"Invalid value: {problems.shown(name)}: {UNCOUNTED}")
        if any(resource_names.canonical(other) == resource_names.canonical(name) for other in quota if other < name):
            yield Problem(at, f"Invalid value: {problems.shown(name)}: {TWICE}")
        try:
            if isinstance(quantity, float) and not quantity.is_integer():
                raise ValueError("must be a whole number or a string, as in 500m")
            quantities.capped(resource_names.canonical(name), quantity)
        except ValueError as error:
            yield Problem(f"{at}.{name}", f"Invalid value: {problems.shown(quantity)}: {error}")


def _uncounted(name: str) -> bool:
    return name.startswith(("limits.", "count/")) and name not in resource_names.POD_NAMES


def _capped(quota: dict[str, str | int | float]) -> Amounts:
    found = demand.amounts({resource_names.canonical(name): quantity for name, quantity in quota.items()})
    return {name: min(amount, demand.LARGEST) for name, amount in found.items() if name != OTHERS}
