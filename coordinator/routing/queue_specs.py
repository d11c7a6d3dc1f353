"""The conversion of TenantQueues to the settings of the package `queues`, and the most that a job of each queue can
ever get.

One rule: pure.
"""

from collections.abc import Collection

from crds.resources.amounts import Amounts
from crds.tenantqueue import TenantQueue
from queues.picking import quotas
from queues.values import QueueSpec


def spec(queue: TenantQueue) -> QueueSpec:
    """Return the settings of a TenantQueue as a QueueSpec."""
    return QueueSpec(
        name=queue.metadata.name,
        weight=queue.spec.weight,
        open=queue.spec.is_open,
        quota=queue.spec.quota_amounts,
        cohort=queue.spec.cohort or "",
        borrowing=queue.spec.borrowing_amounts,
        strict=queue.spec.ordering == "StrictFIFO",
        aging_seconds=queue.spec.aging_seconds,
    )


def ceilings(queues: Collection[QueueSpec], room: Amounts | None) -> dict[str, Amounts]:
    """Return the most that a job of each queue can ever get, where that is limited.

    `room` is the largest size of the pool.
    """
    cohorts = quotas.cohorts(queues)
    limits = {queue.name: quotas.ceiling(queue, cohorts.get(queue.cohort), room or {}) for queue in queues}
    return {name: ceiling for name, ceiling in limits.items() if ceiling}
