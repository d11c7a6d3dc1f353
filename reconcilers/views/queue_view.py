"""What a worker has to know of TenantQueues: which of them drain.

One rule: nothing beyond this module reads a queue's manifest; one that makes no sense does not drain.
"""

from dataclasses import dataclass
from typing import Protocol

from crds.api_resources import TENANT_QUEUES
from kube.api import Cluster, Manifest
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, and whether the jobs in it have to give back what they hold."""

    name: str
    draining: bool


class QueueCache(Protocol):
    """A current copy of the queues (`queues_informer`)."""

    def get(self, namespace: str, name: str) -> QueueView | None:
        """One queue; None if there is no such queue."""


def trim(manifest: Manifest) -> QueueView:
    """What is kept of a TenantQueue."""
    spec = manifest.get("spec")
    policy = spec.get("stopPolicy") if isinstance(spec, dict) else None
    return QueueView(manifest["metadata"]["name"], policy == "HoldAndDrain")


def queues_informer(cluster: Cluster) -> Informer[QueueView]:
    """The cache a worker process keeps of the queues; to be started by whoever wires."""
    return Informer(cluster, TENANT_QUEUES, trim=trim)
