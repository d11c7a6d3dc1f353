"""TenantQueues as the queue room wants them, and the most that a job of each can ever have.

One rule: pure.
"""

from collections.abc import Collection

from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueue
from queues.picking import quotas
from queues.values import QueueSpec


def spec(queue: TenantQueue) -> QueueSpec:
    """A TenantQueue as the queue room wants it."""
    return QueueSpec(
        name=queue.metadata.name,
        weight=queue.spec.weight,
        open=queue.spec.open,
        quota=queue.spec.quota_amounts,
        cohort=queue.spec.cohort or "",
        borrowing=queue.spec.borrowing_amounts,
        strict=queue.spec.ordering == "StrictFIFO",
        aging_seconds=queue.spec.aging_seconds,
    )


def ceilings(queues: Collection[QueueSpec], room: Amounts | None) -> dict[str, Amounts]:
    """The most that a job of each queue can ever have, where that is limited; `room` is what the pool can ever have."""
    cohorts = quotas.cohorts(queues)
    found = {each.name: quotas.ceiling(each, cohorts.get(each.cohort), room or {}) for each in queues}
    return {name: ceiling for name, ceiling in found.items() if ceiling}
