"""Reading everything that `torchq doctor` compares.

One rule: it only reads; an account that can list and get, and a read-only one on Redis, are enough.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster import errors
from cluster.api import Cluster
from coordinator import queue_specs, repair, views
from coordinator.doctor import ClusterPicture, LeaseView, Look
from coordinator.leader import EPOCH, LEASE
from coordinator.standing import Rules
from crds import integers, labels, tenantqueue
from crds.resources import LEASES, NAMESPACES, PODS, PRIORITY_CLASSES, TENANT_QUEUES, TORCHJOBS
from queues.store import QueueStore
from queues.work import WorkSource


@dataclass(frozen=True, slots=True)
class Looker:
    """Takes one look at a time."""

    cluster: Cluster
    store: QueueStore
    work: WorkSource
    lease_namespace: str

    def look(self) -> Look:
        """Everything, as it is about now."""
        return Look(self._cluster(), self.store.inspect(), self.work.inspect())

    def _cluster(self) -> ClusterPicture:
        pods = [
            views.pod_view(item)
            for page in self.cluster.pages(PODS, label_selector=labels.JOB_UID)
            for item in page.items
        ]
        jobs = [views.job_view(item) for page in self.cluster.pages(TORCHJOBS) for item in page.items]
        queues = [tenantqueue.parse(item) for item in self.cluster.list(TENANT_QUEUES).items]
        namespaces = [views.namespace_view(item) for item in self.cluster.list(NAMESPACES).items]
        classes = [views.priority_class_view(item) for item in self.cluster.list(PRIORITY_CLASSES).items]
        return ClusterPicture(
            jobs={job.key: job for job in jobs},
            pods=tuple(pods),
            specs={queue.metadata.name: queue_specs.spec(queue) for queue in queues},
            rules=Rules(
                queues={queue.metadata.name: queue.spec for queue in queues},
                priorities={each.name: each.value for each in classes},
                namespaces={each.name: each.labels for each in namespaces},
                implicit=False,
            ),
            lease=self._lease(),
            now=time.time(),
        )

    def _lease(self) -> LeaseView | None:
        try:
            lease = self.cluster.get(LEASES, LEASE, self.lease_namespace)
        except errors.NotFound:
            return None
        spec: Mapping[str, Any] = lease.get("spec") or {}
        epoch = str((lease["metadata"].get("annotations") or {}).get(EPOCH, ""))
        return LeaseView(
            holder=str(spec.get("holderIdentity") or ""),
            epoch=integers.bounded(epoch, 0),
            renewed=str(spec.get("renewTime") or ""),
            seconds=float(spec.get("leaseDurationSeconds") or 0),
        )

    def repair(self, seconds: float) -> None:
        """Have the leader build the queues anew. `repair.NoRepair` if it does not."""
        repair.ask(self.cluster, LEASE, self.lease_namespace, seconds=seconds)
