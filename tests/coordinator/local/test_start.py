"""How `torchq local up` recognises that its own node has started, and not the node of an earlier start."""

import time
from collections.abc import Iterator

import pytest

from coordinator.local import stack
from crds.api_resources import LEASES, NODES
from embedded.node import registration
from embedded.node.registration import Heartbeat
from embedded.node.resources.machine import Machine
from kube import errors
from kube.client import KubernetesCluster
from tests.support.waiting import until


@pytest.fixture
def gone(embedded_cluster: KubernetesCluster) -> Iterator[None]:
    yield
    for resource, namespace in ((NODES, ""), (LEASES, registration.LEASE_NAMESPACE)):
        try:
            embedded_cluster.delete(resource, "here", namespace)
        except errors.NotFound:
            pytest.fail(f"{resource.plural} here was not made")


@pytest.mark.usefixtures("gone")
def test_a_node_object_of_an_earlier_start_is_no_sign_of_life(embedded_cluster: KubernetesCluster) -> None:
    for gpus in (2, 1, 0):
        before = stack.node_renew_times(embedded_cluster)
        node = registration.node("here", Machine(8_000, 8 << 30, tuple(map(str, range(gpus)))))
        registration.register(embedded_cluster, node, time.time())
        assert stack.node_renew_times(embedded_cluster) == before
        heartbeat = Heartbeat(embedded_cluster, node)
        heartbeat.start()
        try:
            until(lambda before=before: stack.node_renew_times(embedded_cluster) not in ({}, before))
            offered = embedded_cluster.get(NODES, "here")["status"]["allocatable"]
            assert offered.get("nvidia.com/gpu", "0") == str(gpus)
        finally:
            heartbeat.stop()
