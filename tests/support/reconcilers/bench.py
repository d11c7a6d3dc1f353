"""The parts that tests on an API server share: a job, its pods, and the actions of node and coordinator."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crds import labels
from crds.api_resources import PODS, SERVICES, TORCHJOBS
from crds.keys import JobKey
from crds.torchjob import torchjob
from crds.torchjob.torchjob import TorchJob
from kube import errors
from kube.api import Manifest
from kube.client import KubernetesCluster
from kube.informer import Informer
from queues import task_times
from queues.tasks import Task
from queues.values import Reservation
from reconcilers.reconcile import RaiseCharge, Reconciler, no_store
from reconcilers.views import containers
from reconcilers.views.pod_view import PodView
from tests.support.reconcilers import builders
from tests.support.waiting import patient


class Counting:
    """A cluster that counts its calls and lets a test act before a call."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.calls: Counter[str] = Counter()
        self.before: dict[str, Callable[[], None]] = {}
        """The action that runs once before the next call of a verb on a kind, such as "create Pod"."""
        self.failing: dict[str, Exception] = {}
        """The error with which every call of a verb on a kind ends."""

    def __getattr__(self, verb: str) -> Any:
        method = getattr(self._cluster, verb)

        def counted(resource: Any, *args: Any, **kwargs: Any) -> Any:
            name = f"{verb} {resource.kind}"
            self.calls[name] += 1
            self.before.pop(name, lambda: None)()
            if name in self.failing:
                raise self.failing[name]
            return method(resource, *args, **kwargs)

        return counted


@dataclass
class Bench:
    """One job in its own namespace."""

    cluster: KubernetesCluster
    counting: Counting
    namespace: str
    pods: Informer[PodView]
    reconciler: Reconciler
    key: JobKey = field(default=builders.KEY)
    reservation: Reservation | None = None
    deleted: int = 0

    def submit(self, *args: Any, **fields: Any) -> TorchJob:
        described = builders.manifest(*args, **fields)
        described["metadata"] = {"name": "digits", "annotations": described["metadata"]["annotations"]}
        del described["status"]
        self.cluster.create(TORCHJOBS, described, self.namespace)
        metadata = self.raw()["metadata"]
        self.key = JobKey(self.namespace, "digits", metadata["uid"])
        return self.job

    def pick(self, attempt: int = 1) -> None:
        """Reserve resources for the job, as the coordinator does."""
        charge = dict(self.job.spec.charge)
        self.reservation = Reservation(
            key=self.key, queue=self.namespace, attempt=attempt, epoch=7, charge=charge, port=20_001
        )

    def reconcile(
        self, holds: Callable[[], bool] = lambda: True, times: int = 1, raise_charge: RaiseCharge = no_store
    ) -> float | None:
        for _ in range(times):
            self.catch_up()
            task = Task(
                key=self.key,
                token="t",
                tenant="team",
                seen=0,
                failures=0,
                reservation=self.reservation,
                times=task_times.from_ages(time.time(), 3.0, 1.0),
            )
            requeue = self.reconciler(task, holds, raise_charge)
        return requeue

    def catch_up(self) -> None:
        """Wait until the cache shows every pod in its current state, including deletions."""
        listed = self.cluster.list(PODS, self.namespace, label_selector=labels.JOB_UID)
        versions_by_name = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in listed.items}
        versions = [int(each) for each in versions_by_name.values()]
        assert self.pods.wait_for(max(versions, default=0), patient())
        self.wait_deletions(versions_by_name)

    def wait_deletions(self, versions_by_name: dict[str, str]) -> None:
        """Wait for deletions: create a pod without a job and wait until the cache shows it."""
        known = {each.name for each in self.pods.values() if each.namespace == self.namespace}
        if known - versions_by_name.keys():
            self.deleted += 1
            marker = builders.template()["spec"]
            metadata = {"name": f"marker-{self.deleted}", "labels": {labels.JOB_UID: "nobody"}}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": marker}
            made = self.cluster.create(PODS, body, self.namespace)
            assert self.pods.wait_for(int(made["metadata"]["resourceVersion"]), patient())
            self.cluster.delete(PODS, metadata["name"], self.namespace, grace_period_seconds=0)

    def raw(self) -> Manifest:
        return self.cluster.get(TORCHJOBS, "digits", self.namespace)

    @property
    def job(self) -> TorchJob:
        return torchjob.parse(self.raw())

    def true_condition(self, kind: str) -> tuple[str, str]:
        """Return the reason and the message of a condition of the job. The condition must be True."""
        found = next(each for each in self.job.status.conditions if each.type == kind and each.status == "True")
        return found.reason, found.message

    def names(self) -> list[str]:
        listed = self.cluster.list(PODS, self.namespace).items
        return sorted(each["metadata"]["name"] for each in listed if "digits" in each["metadata"]["name"])

    def services(self) -> list[str]:
        listed = self.cluster.list(SERVICES, self.namespace).items
        return [each["metadata"]["name"] for each in listed if "digits" in each["metadata"]["name"]]

    def move(self, phase: str, *names: str, exit_code: int | None = None, reason: str = "") -> None:
        """Set the phase of these pods, or of all pods, as the node does."""
        for name in names or self.names():
            status: dict[str, Any] = {"phase": phase}
            if exit_code is not None:
                ended = {"terminated": {"exitCode": exit_code, "reason": reason}}
                container = {"name": "torch", "state": ended, "image": "", "imageID": "", "ready": False}
                status["containerStatuses"] = [container | {"restartCount": 0}]
            self.cluster.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    def reach_gate(self, *names: str) -> None:
        """Report that pods wait at their start gate, as the node does."""
        running = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
        gate = {"name": containers.GATE, "state": running, "image": "", "imageID": "", "ready": False}
        status = {"phase": "Pending", "initContainerStatuses": [gate | {"restartCount": 0}]}
        for name in names:
            self.cluster.patch(PODS, name, {"status": status}, self.namespace, subresource="status")

    def restarted(self, *names: str) -> None:
        """Report requested restarts as done, as the embedded node does."""
        for name in names:
            pod = self.cluster.get(PODS, name, self.namespace)
            asked = pod["metadata"]["annotations"][labels.RESTART_CONTAINERS]
            condition = {"type": labels.CONTAINERS_RESTARTED, "status": "True", "message": asked}
            self.cluster.patch(
                PODS, name, {"status": {"conditions": [condition]}}, self.namespace, subresource="status"
            )

    def change(self, **spec: Any) -> None:
        """Change the spec, as the owner does."""
        self.cluster.patch(TORCHJOBS, "digits", {"spec": spec}, self.namespace)

    def remove(self, *names: str) -> None:
        for name in names:
            try:
                self.cluster.delete(PODS, name, self.namespace, grace_period_seconds=0)
            except errors.NotFound:
                continue
