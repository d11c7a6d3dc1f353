"""The part of a TenantQueue that a worker needs: whether the queue is being drained.

One rule: no code outside of this module reads a queue's manifest; an invalid queue counts as not drained.
"""

from dataclasses import dataclass
from typing import Protocol

from crds.api_resources import TENANT_QUEUES
from kube.api import Cluster, Manifest
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, and whether the jobs in it have to give their resources back."""

    name: str
    draining: bool


class QueueCache(Protocol):
    """A current copy of the queues (`queues_informer`)."""

    def get(self, namespace: str, name: str) -> QueueView | None:
        """Return a queue; None if there is no such queue."""


def trim(manifest: Manifest) -> QueueView:
    """Return the view of a TenantQueue."""
    spec = manifest.get("spec")
    policy = spec.get("stopPolicy") if isinstance(spec, dict) else None
    return QueueView(manifest["metadata"]["name"], policy == "HoldAndDrain")


def queues_informer(cluster: Cluster) -> Informer[QueueView]:
    """Return a worker process's cache of the queues; the caller starts it."""
    return Informer(cluster, TENANT_QUEUES, trim=trim)
