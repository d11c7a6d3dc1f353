"""The jobs that hold the room for which another job waits, in `torchq job why` and `torchq queue show`."""

from typing import Any

import pytest

from coordinator.leader.coordinator import Coordinator
from crds import labels
from crds.api_resources import PODS, TORCHJOBS
from crds.keys import JobKey
from kube import errors
from kube.client import KubernetesCluster
from queues.values import Entry, Reservation
from tests.coordinator.cli.test_api_client import Store, asked, desk, store  # noqa: F401 - fixtures
from tests.support.coordinator.command import Torchq
from tests.support.coordinator.desk import manifest
from tests.support.queues.builders import spec

SECRET = "theirs"


class Place:
    """A queue of 10 CPUs whose jobs hold these CPUs, and a job that waits."""

    def __init__(self, cluster: KubernetesCluster, namespace: str, store: Store) -> None:  # noqa: F811
        self.cluster, self.namespace, self.store = cluster, namespace, store
        self.held: list[Reservation] = []

    def job(self, name: str, **job_spec: Any) -> JobKey:
        made = self.cluster.create(TORCHJOBS, manifest(name, "a", **job_spec), self.namespace)
        return JobKey.of(made)

    def hold(self, key: JobKey, cpus: int) -> None:
        charge = {"jobs": 1, "cpu": cpus * 1000}
        self.held.append(Reservation(key=key, queue="a", attempt=1, epoch=1, charge=charge))

    def ending_pod(self, key: JobKey) -> str:
        """Create a pod that is being deleted and does not end. Return when its grace period ends."""
        owner = {"apiVersion": TORCHJOBS.api_version, "kind": "TorchJob", "name": key.name, "uid": key.uid}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{key.name}-master-0",
                "labels": {labels.JOB_UID: key.uid},
                "finalizers": ["test/keeps"],
                "ownerReferences": [owner | {"controller": True}],
            },
            "spec": {"containers": [{"name": "torch", "image": "x", "command": ["true"]}]},
        }
        self.cluster.create(PODS, body, self.namespace)
        self.cluster.delete(PODS, f"{key.name}-master-0", self.namespace)
        return str(self.cluster.get(PODS, f"{key.name}-master-0", self.namespace)["metadata"]["deletionTimestamp"])

    def wait(self, key: JobKey) -> None:
        waiting = Entry(key=key, queue="a", submitted=1.0, demand={"jobs": 1, "cpu": 1000})
        self.store.rebuild(2, self.held, [waiting])
        self.store.configure([spec("a", cpu=10_000)], None)


def test_the_largest_holders_are_named_with_the_end_of_those_that_end_and_as_rights_allow(
    asked: Torchq,  # noqa: F811
    desk: Coordinator,  # noqa: F811
    store: Store,  # noqa: F811
    embedded_cluster: KubernetesCluster,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(embedded_cluster, namespace, store)
    cancelled, forced = place.job("cancelled", cancel=True), JobKey(namespace, "forced", "uid-forced")
    for key, cpus in ((cancelled, 3), (forced, 4), (place.job(SECRET), 2), (place.job("small"), 1)):
        place.hold(key, cpus)
    until = {key.name: place.ending_pod(key) for key in (cancelled, forced)}
    place.wait(place.job("train"))
    get = KubernetesCluster.get

    def refuse(self: KubernetesCluster, resource: Any, name: str, *rest: Any, **options: Any) -> Any:
        if name == SECRET:
            raise errors.Forbidden("you may not get this torchjob")
        return get(self, resource, name, *rest, **options)

    monkeypatch.setattr(KubernetesCluster, "get", refuse)
    held = (
        f"job {namespace}/forced of queue a (cpu=4; deleted, its pods end by {until['forced']}), "
        f"job {namespace}/cancelled of queue a (cpu=3; cancelled, its pods end by {until['cancelled']}), "
        "a job of another team of queue a (cpu=2) and 1 other"
    )
    assert f"  held by {held}" in asked("job", "why", "train").stdout.splitlines()
    assert f"Held by:       {held}" in asked("queue", "show", "a").stdout.splitlines()
    assert SECRET not in asked("job", "why", "train", "-o", "json").stdout
    monkeypatch.undo()
    for name in until:  # other tests look at all pods of the cluster
        embedded_cluster.patch(PODS, f"{name}-master-0", {"metadata": {"finalizers": None}}, namespace)
