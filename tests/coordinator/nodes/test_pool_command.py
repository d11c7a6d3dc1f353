"""`torchq pool` and /v1/pool: the nodes by shape, as the leader counts them or as another coordinator sees them."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from coordinator.http import coordinator_server, pool_reading
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.node_places import NodePlaces
from coordinator.metrics.queue_names import QueueNames
from coordinator.query.queries import StoreQueries
from coordinator.settings import Settings
from crds.api_resources import NODES, PODS
from kube.client import KubernetesCluster
from queues.rules import PickRules
from tests.coordinator.cli.test_api_client import Store, answering
from tests.doubles.memory_work import MemoryWork
from tests.support.coordinator.command import Torchq
from tests.support.queues.builders import GPU
from tests.support.waiting import SECONDS

OFFER = {"cpu": "64", "memory": "512Gi", "pods": "100"}


class Scene:
    """A coordinator that answers, and the nodes of its cluster."""

    def __init__(self, cluster: KubernetesCluster, desk: Coordinator, run: Callable[..., Any]) -> None:
        self.cluster, self.desk, self.run = cluster, desk, run

    def add(self, name: str, *, cordoned: bool = False, **offer: str) -> None:
        status = {"allocatable": {**OFFER, **offer}, "conditions": [{"type": "Ready", "status": "True"}]}
        spec = {"unschedulable": cordoned}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}
        made = self.cluster.create(NODES, body)
        assert self.desk.watches.nodes is not None
        self.desk.watches.nodes.wait_for(int(made["metadata"]["resourceVersion"]), SECONDS)

    def use(self, node: str, namespace: str, **amounts: str) -> None:
        """Put a foreign pod on a node."""
        limits = {GPU if name == "gpu" else name: amount for name, amount in amounts.items()}
        container = {"name": "main", "image": "one", "resources": {"limits": limits, "requests": limits}}
        spec = {"nodeName": node, "containers": [container]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"on-{node}"}, "spec": spec}
        made = self.cluster.create(PODS, body, namespace)
        self.desk.watches.pods.wait_for(int(made["metadata"]["resourceVersion"]), SECONDS)

    def lines(self, *options: str) -> list[str]:
        return self.run("pool", *options).stdout.splitlines()


@contextmanager
def scene(cluster: KubernetesCluster, namespace: str, torchq: Torchq, pool: str) -> Iterator[Scene]:
    store = Store(lambda *_: None)
    store.rebuild(1, [], [])
    work = MemoryWork(lambda: 0.0, store.epoch, lambda _: None)
    desk = Coordinator(cluster, store, work, Settings(lease_namespace=namespace, pool=pool))
    own = NodePlaces(desk.watches, store.reservations, time.monotonic, desk.node_places.counts)
    with answering(desk, store, node_places=own.look):
        desk.leadership.step()
        for informer in desk.watches.informers:
            informer.start()
        assert all(informer.wait_synced(SECONDS) for informer in desk.watches.informers)
        yield Scene(cluster, desk, lambda *words: torchq(*words, TORCHQ_LEASE_NAMESPACE=namespace))
        for informer in desk.watches.informers:
            informer.stop()


@pytest.fixture
def half_full(embedded_cluster: KubernetesCluster, namespace: str, torchq: Torchq) -> Iterator[Scene]:
    """Yield two nodes of 8 GPUs, of which one has 4 free, and a cordoned one without GPUs."""
    with scene(embedded_cluster, namespace, torchq, "nodes") as found:
        for name in ("n1", "n2"):
            found.add(name, **{GPU: "8"})
        found.add("n3", cordoned=True)
        found.use("n1", namespace, gpu="4", cpu="24")
        yield found
    embedded_cluster.delete(PODS, "on-n1", namespace)
    for node in embedded_cluster.list(NODES).items:
        embedded_cluster.delete(NODES, node["metadata"]["name"])


def test_pool_shows_a_row_for_each_shape_of_nodes(half_full: Scene) -> None:
    half_full.desk.node_places.refresh()
    assert [re.split("   +", line) for line in half_full.lines()] == [
        ["SHAPE", "NODES", "READY", "FREE", "LARGEST POD THAT FITS", "IN FRAGMENTS"],
        ["8 gpu, 64 cpu, 512Gi", "2", "2", "12 of 16 gpu", "8 gpu, 64 cpu, 512Gi (1 node)", "4 gpu"],
        ["64 cpu, 512Gi", "1", "0", "0 of 64 cpu", "-", "0 cpu"],
    ]
    assert half_full.run("pool").stderr == ""


def test_wide_rows_and_programs_get_all_amounts(half_full: Scene) -> None:
    half_full.desk.node_places.refresh()
    wide = half_full.lines("-o", "wide", "--no-headers", "--sort-by", "-FREE")
    assert re.split("   +", wide[0])[-3:] == ["nvidia.com/gpu", "104 of 128 cpu", "1Ti of 1Ti"]
    found = json.loads(half_full.run("pool", "-o", "json").stdout)
    assert (found["pool"], found["source"], found["message"]) == ("nodes", "leader", "")
    assert [(row["nodes"], row["fragments"]) for row in found["items"]] == [(2, "4"), (1, "0")]
    assert "n1" not in json.dumps(found)


def test_places_of_admitted_jobs_are_the_leaders(half_full: Scene) -> None:
    """The replica's answer is from the store and the caches, which do not have the place that the leader has given."""
    replica = json.loads(half_full.run("pool", "-o", "json").stdout)
    half_full.desk.node_places.refresh()
    places = half_full.desk.node_places.places
    assert places is not None
    places.room.use(places.room.index("n2"), ((GPU, 8),), 1)
    leader = json.loads(half_full.run("pool", "-o", "json").stdout)
    for found, source, free in ((replica, "replica", "12"), (leader, "leader", "4")):
        assert (found["source"], found["items"][0]["free"][GPU]) == (source, free)


def test_an_answer_that_is_not_the_leaders_says_so(half_full: Scene) -> None:
    said = half_full.run("pool")
    assert said.stdout.startswith("SHAPE")
    assert said.stderr.startswith("note: not the leader's answer")


def test_the_metric_has_the_fragments_that_the_leader_knows(half_full: Scene) -> None:
    assert pool_reading.fragments(half_full.desk) == {}
    half_full.desk.node_places.refresh()
    store = Store(lambda *_: None)
    store.rebuild(1, [], [])
    reader = coordinator_server.queue_gauge_reader(
        half_full.desk, StoreQueries(store, store.vitals, PickRules()), store.vitals, QueueNames(9)
    )
    reader.read()
    found = {each.labels: each.cells for each in reader.samples() if each.metric.name == "torchq_pool_fragments"}
    assert found == {(GPU,): (4.0,), ("cpu",): (0.0,)}


@pytest.mark.parametrize(
    ("pool", "words"),
    [("none", "the pool has no limit"), ("cpu=8", "in numbers"), ("nodes", "the cluster has no node")],
)
def test_without_nodes_pool_says_why(
    embedded_cluster: KubernetesCluster, namespace: str, torchq: Torchq, pool: str, words: str
) -> None:
    with scene(embedded_cluster, namespace, torchq, pool) as found:
        assert words in found.lines()[0]
        assert json.loads(found.run("pool", "-o", "json").stdout)["items"] == []
