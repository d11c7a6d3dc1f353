"""The TenantQueue: an administrator's settings for the share and the limits of a tenant.

One rule: the object's name is the queue's name. Weights divide scarce capacity, quotas limit what a queue may hold.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from crds import problems
from crds.errors import InvalidObject, Problem
from crds.metadata import Metadata, NamedMetadata
from crds.model import ClassName, LabelName, LenientModel, Name, StrictModel
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
GangQueueName = Annotated[str, Field(min_length=1, max_length=253)]
LabelValue = Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]
Quota = Annotated[dict[ResourceName, Quantity], Field(max_length=64)]
TWICE = "a resource must not be limited twice, as cpu and requests.cpu, or pods and count/pods"
NO_QUOTA = "a queue of a cohort needs a quota: it is what the others may borrow"
NO_COHORT = "only a queue of a cohort can borrow: set spec.cohort"
NOT_LISTED = "must be one of spec.gangQueues"
UNCOUNTED = "a quota counts requests, pods and jobs: limits.* and count/* other than count/pods cannot be used"


class NamespaceSelector(StrictModel):
    """A selection of namespaces by their labels."""

    match_labels: dict[LabelName, LabelValue] = Field(default_factory=dict, max_length=16)
    """The labels that a namespace must have, all of them. If empty, every namespace is selected."""


class TenantQueueSpec(StrictModel):
    """The settings of a tenant queue."""

    weight: int = Field(default=1, ge=1, le=MAX_WEIGHT)
    """The queue's share of scarce capacity, relative to the weights of the other queues."""
    quota: Quota = Field(default_factory=dict)
    """The maximum total requests of the queue's admitted jobs: resources as in a ResourceQuota, `pods`, and `jobs`."""
    ordering: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"
    namespaces: tuple[Name, ...] = Field(default=(), max_length=1024, strict=False)
    """The namespaces whose jobs may use the queue, in addition to those of namespaceSelector. If both are absent, jobs
    of all namespaces may use it."""
    namespace_selector: NamespaceSelector | None = None
    """The namespaces whose jobs may use the queue, by label."""
    aging_seconds: int = Field(default=600, ge=1, le=31_536_000)
    """The number of seconds after which a waiting job gains one step of priority."""
    cohort: Name | None = None
    """The cohort of the queue; queues of a cohort lend each other the unused part of their quotas."""
    borrowing_limit: Quota = Field(default_factory=dict)
    """The maximum that the queue may hold beyond its quota; a resource that is not listed is limited only by the
    cohort."""
    gang_queues: tuple[GangQueueName, ...] = Field(default=(), max_length=64, strict=False)
    """The queues of the gang scheduler that the queue's jobs may name. If absent, they may name any."""
    gang_queue: ClassName = ""
    """The queue of the gang scheduler for jobs that name none. If absent, the first of gangQueues."""

    @property
    def default_gang_queue(self) -> str:
        """The queue of the gang scheduler for jobs that name none; empty: the scheduler's own default."""
        return self.gang_queue or next(iter(self.gang_queues), "")

    def allows_gang_queue(self, name: str) -> bool:
        """Return whether jobs of the queue may name a queue of the gang scheduler. Every job may name none."""
        return not (name and self.gang_queues) or name in self.gang_queues

    @cached_property
    def quota_amounts(self) -> Amounts:
        """The quota in canonical names and units; amounts that are too large to count become the largest amount."""
        return _quota_amounts(self.quota)

    @cached_property
    def borrowing_amounts(self) -> Amounts:
        """The borrowing limit in canonical names and units; too large amounts become the largest amount."""
        return _quota_amounts(self.borrowing_limit)

    def allows(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether jobs of a namespace with these labels may use the queue."""
        selector = self.namespace_selector
        if selector is None:
            return not self.namespaces or namespace in self.namespaces
        return namespace in self.namespaces or selector.match_labels.items() <= labels.items()

    @property
    def is_public(self) -> bool:
        """Whether jobs of every namespace may use the queue."""
        return not self.namespaces and self.namespace_selector is None

    @property
    def is_open(self) -> bool:
        """Whether jobs may be picked from the queue."""
        return self.stop_policy == "None"


class TenantQueueStatus(LenientModel):
    """The state of a tenant queue."""

    pending: int = 0
    """The number of waiting jobs."""
    admitted: int = 0
    """The number of admitted jobs."""
    usage: Annotated[dict[ResourceName, Annotated[str, Field(max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """The total requests of the admitted jobs."""
    share: str = ""
    """The queue's part of the admitted capacity."""
    target: str = ""
    """The part that the queue's weight entitles it to."""


class QueueName(NamedMetadata):
    """The rules for a queue's name, which is also a label's value."""

    name: Name


class TenantQueue(StrictModel):
    """A queue of one tenant's jobs."""

    api_version: Literal["train.distributed.io/v1alpha1"] = "train.distributed.io/v1alpha1"
    kind: Literal["TenantQueue"] = "TenantQueue"
    metadata: Metadata
    spec: TenantQueueSpec = TenantQueueSpec()
    status: TenantQueueStatus = TenantQueueStatus()


def parse(manifest: Any) -> TenantQueue:
    """Return a manifest as a TenantQueue with defaults. Raise InvalidObject with every problem."""
    queue = read(manifest)
    queue_problems = problems.unique(ineffective(queue))
    if queue_problems:
        raise InvalidObject(queue_problems)
    return queue


def read(manifest: Any) -> TenantQueue:
    """Return a TenantQueue from an API server's manifest.

    Raise InvalidObject as for `parse`, except for problems that earlier versions accepted (`ineffective`).
    """
    queue = problems.validate(TenantQueue, manifest)
    queue_problems = problems.unique(_check(queue))
    if queue_problems:
        raise InvalidObject(queue_problems)
    return queue


def ineffective(queue: TenantQueue) -> Iterator[Problem]:
    """Yield the problems of limits whose effect differs from their text.

    A name that is no resource limits nothing, since no job can request it. A fraction of a resource that cannot be
    divided counts as the next whole number. A few bytes of memory are a mistake.
    """
    for field, limits in (("spec.quota", queue.spec.quota), ("spec.borrowingLimit", queue.spec.borrowing_limit)):
        for name, quantity in limits.items():
            if not resource_names.is_limit(name):
                yield Problem(field, f"Invalid value: {problems.quote(name)}: {resource_names.unknown(name)}")
            elif resource_names.is_divided(name, quantity):
                divided = f"Invalid value: {problems.quote(quantity)}: {resource_names.DIVIDED}"
                yield Problem(f"{field}.{name}", divided)
            elif unmeant := resource_names.unmeant(name, quantity):
                yield Problem(f"{field}.{name}", f"Invalid value: {problems.quote(quantity)}: {unmeant}")


def limit_problem(name: str, quantity: str) -> str:
    """Return why a limit with this name has no quantity, or an effect that differs from its text.

    The result is empty if there is no such problem, or if the limit is invalid for another reason.
    """
    if not resource_names.is_limit(name):
        return "" if _is_uncounted(name) else resource_names.unknown(name)
    try:
        quantities.parse_capped(resource_names.canonical(name), quantity)
    except ValueError as error:
        return f"{name}={quantity}: {error}"
    if resource_names.is_divided(name, quantity):
        return f"{name}={quantity}: {resource_names.DIVIDED}"
    unmeant = resource_names.unmeant(name, quantity)
    return f"{name}={quantity}: {unmeant}" if unmeant else ""


def _check(queue: TenantQueue) -> Iterator[Problem]:
    yield from problems.find(QueueName, {"name": queue.metadata.name}, "metadata")
    yield from _quota("spec.quota", queue.spec.quota)
    yield from _quota("spec.borrowingLimit", queue.spec.borrowing_limit)
    yield from _cohort(queue.spec)
    if not queue.spec.allows_gang_queue(queue.spec.gang_queue):
        yield Problem("spec.gangQueue", f"Invalid value: {problems.quote(queue.spec.gang_queue)}: {NOT_LISTED}")


def _cohort(spec: TenantQueueSpec) -> Iterator[Problem]:
    if spec.cohort is not None and not spec.quota:
        yield Problem("spec.cohort", f"Invalid value: {problems.quote(spec.cohort)}: {NO_QUOTA}")
    if spec.cohort is None and spec.borrowing_limit:
        yield Problem("spec.borrowingLimit", f"Invalid value: {problems.quote(spec.borrowing_limit)}: {NO_COHORT}")


def _quota(at: str, quota: dict[str, str | int | float]) -> Iterator[Problem]:
    for name, quantity in quota.items():
        if _is_uncounted(name):
            yield Problem(at, f"Invalid value: {problems.quote(name)}: {UNCOUNTED}")
        if any(resource_names.canonical(other) == resource_names.canonical(name) for other in quota if other < name):
            yield Problem(at, f"Invalid value: {problems.quote(name)}: {TWICE}")
        try:
            if isinstance(quantity, float) and not quantity.is_integer():
                raise ValueError("must be a whole number or a string, as in 500m")
            if str(quantity).startswith("-"):  # also -0, as the schema refuses it
                raise ValueError(f"quantity {quantity!r} must not be negative")
            quantities.parse_capped(resource_names.canonical(name), quantity)
        except ValueError as error:
            yield Problem(f"{at}.{name}", f"Invalid value: {problems.quote(quantity)}: {error}")


def _is_uncounted(name: str) -> bool:
    return name.startswith(("limits.", "count/")) and name not in resource_names.POD_NAMES


def _quota_amounts(quota: dict[str, str | int | float]) -> Amounts:
    amounts = demand.read_resources({resource_names.canonical(name): quantity for name, quantity in quota.items()})
    return {name: min(amount, demand.LARGEST) for name, amount in amounts.items() if name != OTHERS}
