"""The inputs of routing beside the job: TenantQueues, PriorityClasses, namespaces, ResourceQuotas, queues of the
gang scheduler, and settings.

One rule: values only. The watches fill in the state of the cluster; the leader adds its settings and limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from crds.keys import JobKey
from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueueSpec
from crds.torchjob.demand import HostPort
from crds.torchjob.resource_quota import Limit, Quota

DEFAULT_QUEUE = "default"
"""The queue that every namespace may use where queues are implicit."""
Quotas = Mapping[str, tuple[Quota, ...]]
"""ResourceQuotas by namespace."""


@dataclass(frozen=True, slots=True)
class GangRoom:
    """The room in one queue of the gang scheduler (`routing.gang_queues`)."""

    refusal: str = ""
    """Why no group in it is let in; empty if it is open."""
    limits: tuple[tuple[str, Limit], ...] = ()
    """The limits of the queue and of those above it, each with the queue that has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRules:
    """The inputs of routing beside the job. By default, every namespace may use every queue."""

    queues: Mapping[str, TenantQueueSpec] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The priority that each PriorityClass stands for."""
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The labels of each namespace."""
    ceilings: Mapping[str, Amounts] = field(default_factory=dict)
    """By queue, the most that one job can ever get. A queue without a limit is missing."""
    quotas: Quotas = field(default_factory=dict)
    yielding: Mapping[str, frozenset[JobKey]] = field(default_factory=dict)
    """By namespace, the refused jobs that let older refused jobs go first (`namespace_quota.yielding`)."""
    tried_again: frozenset[JobKey] = frozenset()
    """The jobs that wait for their schedulers no longer, because something has changed since they were sent back."""
    ports: Mapping[HostPort, JobKey] = field(default_factory=dict)
    """Where pods share one machine, the job to which each port belongs that a job chose itself (`routing.ports`)."""
    gang_scheduler: str = "none"
    """The gang scheduler of jobs that name none."""
    gang_rooms: Mapping[str, GangRoom] | None = None
    """The room in each queue of the gang scheduler; None: it is not known."""
    gang_holders: frozenset[JobKey] = frozenset()
    """The jobs that were picked, and whose room there is counted although their statuses do not say so yet."""
    topology: tuple[str, ...] | None = None
    """The labels of nodes that jobs may require, the widest first; None: any label."""
    implicit: bool | None = None
    """Whether a namespace may use the queues that it implies without a TenantQueue; None: it may use any name."""
    shared_address: bool = False
    """Whether the pods of all jobs share one network address. If so, each job needs a port of its own."""
    queued_after: float = 2.0
    """How long a job waits before its status says Queued, in seconds."""


class RulesSource(Protocol):
    """The holder of the newest rules of routing."""

    def rules(self) -> RoutingRules:
        """Return the rules of routing, as the watches show them now."""


def is_implied(queue: str, namespace: str) -> bool:
    """Return whether the namespace of a job makes this queue where queues are implicit."""
    return queue in (namespace, DEFAULT_QUEUE)
