"""The part of a TenantQueue that a worker needs: whether the queue is being drained, and where its gangs wait.

One rule: no code outside of this module reads a queue's manifest; an invalid queue counts as not drained.
"""

from dataclasses import dataclass
from typing import Protocol

from crds.api_resources import TENANT_QUEUES
from kube.api import Cluster, Manifest
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as a worker sees it."""

    name: str
    draining: bool
    """Whether the jobs in it have to give their resources back."""
    gang_queue: str = ""
    """The queue of the gang scheduler for jobs that name none; empty: the scheduler's own default."""


class QueueCache(Protocol):
    """A current copy of the queues (`queues_informer`)."""

    def get(self, namespace: str, name: str) -> QueueView | None:
        """Return a queue; None if there is no such queue."""


def trim(manifest: Manifest) -> QueueView:
    """Return the view of a TenantQueue."""
    stored = manifest.get("spec")
    spec = stored if isinstance(stored, dict) else {}
    listed = spec.get("gangQueues")
    gang_queue = spec.get("gangQueue") or next(iter(listed if isinstance(listed, list) else ()), "")
    return QueueView(manifest["metadata"]["name"], spec.get("stopPolicy") == "HoldAndDrain", str(gang_queue))


def queues_informer(cluster: Cluster) -> Informer[QueueView]:
    """Return a worker process's cache of the queues; the caller starts it."""
    return Informer(cluster, TENANT_QUEUES, trim=trim)
