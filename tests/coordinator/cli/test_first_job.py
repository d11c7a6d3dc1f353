"""The first job of an installation follows the same rules as every later job: the settings are in force before any
pick.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from crds.api_resources import NODES, TORCHJOBS
from kube.client import KubernetesCluster
from queues.values import Batch, QueueSpec, Snapshot
from tests.doubles.memory_store import MemoryStore
from tests.support.coordinator import desk as desks
from tests.support.coordinator.desk import Clock, Desk

GPU = "nvidia.com/gpu"


@contextmanager
def a_node(cluster: KubernetesCluster, **allocatable: str) -> Iterator[None]:
    """Create a ready node for the duration of the block."""
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "small"}, "status": status})
    try:
        yield
    finally:
        cluster.delete(NODES, "small")


def asking(resource: str, amount: int) -> dict[str, Any]:
    """Return the tasks of a job of one pod that requests this amount of the resource."""
    limits = {"limits": {resource: amount}}
    container = {"name": "torch", "image": "torch:1", "resources": limits}
    return {"Master": {"template": {"spec": {"containers": [container]}}}}


def submit(desk: Desk, namespace: str, name: str, resource: str, amount: int) -> str:
    """Submit such a job and return its uid. The queue of the job is the queue of its namespace, which no admin has
    created.
    """
    made = desk.cluster.create(TORCHJOBS, desks.manifest(name, namespace, asking(resource, amount)), namespace)
    return str(made["metadata"]["uid"])


def waiting(desk: Desk) -> set[str]:
    return {key.uid for key in desk.waiting()}


def held(desk: Desk) -> set[str]:
    return {key.uid for key in desk.reserved()}


def test_a_first_job_that_requests_a_resource_of_no_node_is_not_admitted(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    with (
        a_node(embedded_cluster, cpu="8", pods="9"),
        Desk(embedded_cluster, clock, pool="nodes", implicit_queues=True) as desk,
    ):
        desk.begin()
        large = submit(desk, namespace, "large", GPU, 8)
        small = submit(desk, namespace, "small", "cpu", 8)
        desk.until(lambda: held(desk) == {small})
        assert waiting(desk) == {large}


def test_no_job_is_admitted_until_a_node_is_known(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    with Desk(embedded_cluster, clock, pool="nodes", implicit_queues=True) as desk:
        desk.begin()
        large = submit(desk, namespace, "large", GPU, 8)
        small = submit(desk, namespace, "small", "cpu", 1)
        desk.until(lambda: waiting(desk) == {large, small})
        desk.until(lambda: not desk.term.step())
        assert held(desk) == set()
        # The resources of future nodes are unknown: the jobs may fit later.
        assert desk.term._configuration.rules().ceilings == {}
        with a_node(embedded_cluster, cpu="8", pods="9"):
            desk.until(lambda: held(desk) == {small})
        desk.until(lambda: desk.store.snapshot(0).pool == {"*": 0})


@pytest.mark.parametrize("earlier", [None, {"cpu": 64_000, GPU: 8}])
def test_a_new_leader_does_not_pick_by_the_pool_of_its_predecessor(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str, earlier: dict[str, int] | None
) -> None:
    with (
        a_node(embedded_cluster, cpu="8", pods="9"),
        Desk(embedded_cluster, clock, pool="nodes", implicit_queues=True) as desk,
    ):
        desk.store.rebuild(1, [], [])
        desk.store.configure([QueueSpec(name=namespace)], earlier)
        large = submit(desk, namespace, "large", GPU, 8)
        small = submit(desk, namespace, "small", "cpu", 1)
        desk.begin(epoch=2)
        desk.until(lambda: held(desk) == {small})
        assert waiting(desk) == {large}


class Noting(MemoryStore):
    """A store that records the queues that it has when a commit of picks begins."""

    def __init__(self, content: Any, mark: Any) -> None:
        super().__init__(mark, content=content)
        self.known: set[str] = set()
        self.early: list[str] = []

    def configure(self, queues: Any, pool: Any) -> int:
        self.known = {each.name for each in queues}
        return super().configure(queues, pool)

    def pending_commit(self, batch: Batch) -> Any:
        self.early += [pick.waiting.queue for pick in batch.picks if pick.waiting.queue not in self.known]
        return super().pending_commit(batch)


def test_settings_that_a_new_job_changes_precede_its_pick(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str
) -> None:
    with (
        a_node(embedded_cluster, cpu="8", pods="9"),
        Desk(embedded_cluster, clock, pool="nodes", implicit_queues=True) as desk,
    ):
        desk.store = Noting(desk.content, desk.work.mark)
        desk.begin()
        small = submit(desk, namespace, "small", "cpu", 1)
        desk.until(lambda: waiting(desk) == {small} or held(desk) == {small})
        shown: Snapshot = desk.store.snapshot(1)
        assert shown.pool is not None
        assert shown.pool["*"] == 0
        desk.until(lambda: held(desk) == {small})
        assert desk.store.early == []


@pytest.mark.parametrize(("pool", "admitted"), [("none", True), ("cpu=64", True), (f"cpu=64,{GPU}=4", False)])
def test_a_pool_of_numbers_limits_only_its_names_and_pool_none_limits_nothing(
    embedded_cluster: KubernetesCluster, clock: Clock, namespace: str, pool: str, admitted: bool
) -> None:
    with Desk(embedded_cluster, clock, pool=pool, implicit_queues=True) as desk:
        desk.begin()
        large = submit(desk, namespace, "large", GPU, 8)
        small = submit(desk, namespace, "small", "cpu", 1)
        desk.until(lambda: held(desk) == ({large, small} if admitted else {small}))
        assert waiting(desk) == (set() if admitted else {large})
