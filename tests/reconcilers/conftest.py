"""Fixtures of a reconciler on a real API server; the tests set the status of pods."""

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.rbac.permissions import WORKER
from kube.client import KubernetesCluster
from reconcilers.observe import pods_informer
from reconcilers.reconcile import Reconciler
from reconcilers.settings import ReconcileSettings
from tests.support.kube.fixtures import cluster, embedded_server, namespace, real_server, server
from tests.support.rbac.gatekeeper import Gatekeeper
from tests.support.reconcilers.bench import Bench, Counting
from tests.support.waiting import SECONDS

__all__ = ["cluster", "embedded_server", "namespace", "real_server", "server"]


@pytest.fixture
def bench(cluster: KubernetesCluster, namespace: str) -> Iterator[Bench]:
    yield from benches(cluster, namespace)


@pytest.fixture
def local(cluster: KubernetesCluster, namespace: str) -> Iterator[Bench]:
    yield from benches(cluster, namespace, in_place="local", strict=False)


@pytest.fixture
def loopback(cluster: KubernetesCluster, namespace: str) -> Iterator[Bench]:
    yield from benches(cluster, namespace, master_address="loopback")


def benches(cluster: KubernetesCluster, namespace: str, *, strict: bool = True, **settings: Any) -> Iterator[Bench]:
    counting = Counting(Gatekeeper(cluster, WORKER, strict=strict))
    settings = {"most_seconds": 60.0} | settings  # a slow machine must not end a reconcile early
    with pods_informer(cluster) as pods:
        assert pods.wait_synced(SECONDS)
        with Reconciler(counting, pods, ReconcileSettings(**{"admission_timeout": 0.0, **settings})) as reconciler:
            yield Bench(cluster, counting, namespace, pods, reconciler)
