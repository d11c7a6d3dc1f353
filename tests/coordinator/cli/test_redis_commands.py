"""`torchq redis`, and the messages of processes that start with a Redis on which no coordinator can lead."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.cache import own_installation
from coordinator.cli.commands import processes
from coordinator.leader.coordinator import Coordinator
from coordinator.leader.election import SERVICE_ANNOTATION
from coordinator.rbac.permissions import LEASE
from coordinator.settings import Settings
from crds.api_resources import LEASES
from kube.client import KubernetesCluster
from queues.dispatch.redis_work import RedisWork
from queues.installation import Installation
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.coordinator.command import Torchq

THEIRS = Installation("cluster-2", "kube-system")


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with redis_server.running(tmp_path / "socket") as url:
        yield url


def test_adopt_takes_the_queues_over_and_names_the_owner_before(
    torchq: Torchq, embedded_cluster: KubernetesCluster, redis_url: str
) -> None:
    client = connection.connect(redis_url, client_name="test")
    ours, theirs = RedisStore(client), RedisStore(client)
    own = own_installation.read(embedded_cluster, "kube-system")
    ours.claim(own)
    theirs.claim(THEIRS)
    said = torchq("redis", "adopt", TORCHQ_REDIS_URL=redis_url).output
    assert "belongs to no installation yet" in said
    theirs.rebuild(7, [], [])
    refused = torchq("redis", "adopt", code=1, TORCHQ_REDIS_URL=redis_url).output
    assert f"belongs to another installation ({THEIRS}). " in refused
    assert theirs.problem() == ""
    assert "a process of it has used it" in torchq("redis", "adopt", code=1, TORCHQ_REDIS_URL=redis_url).output
    said = torchq("redis", "adopt", "--yes", TORCHQ_REDIS_URL=redis_url).output
    assert f"belongs to this installation ({own}) now, before to another installation ({THEIRS})" in said
    assert (ours.problem(), ours.epoch()) == ("", 0)
    assert theirs.problem()
    ours.rebuild(8, [], [])
    assert "there is nothing to do" in torchq("redis", "adopt", TORCHQ_REDIS_URL=redis_url).output
    assert ours.epoch() == 8
    client.close()


def test_numbers_of_a_coordinator_name_a_redis_that_it_cannot_use(
    embedded_cluster: KubernetesCluster, redis_url: str
) -> None:
    client = connection.connect(redis_url, client_name="test")
    settings = Settings(redis_url=redis_url)
    coordinator = Coordinator(embedded_cluster, RedisStore(client), RedisWork(client), settings)
    status = processes._queries(coordinator).status
    assert status()["redis"] == ""
    coordinator.redis.unfit = "Redis takes no writes"
    assert status()["redis"] == "Redis takes no writes"
    theirs = RedisStore(client)
    theirs.claim(THEIRS)
    theirs.rebuild(1, [], [])
    coordinator.installation = own_installation.read(embedded_cluster, "kube-system")
    assert f"belongs to another installation ({THEIRS})" in status()["redis"]
    client.close()


def test_workers_name_a_redis_of_another_installation_once_at_their_start(
    torchq: Torchq,
    embedded_cluster: KubernetesCluster,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(processes, "start_log", lambda _: None)
    monkeypatch.setattr(processes.supervisor, "supervise", lambda *_, **__: 0)
    client = connection.connect(redis_url, client_name="test")
    theirs = RedisStore(client)
    theirs.claim(THEIRS)
    theirs.rebuild(1, [], [])
    client.close()
    with caplog.at_level(logging.WARNING):
        torchq("worker", TORCHQ_REDIS_URL=redis_url)
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"Redis at {redis_url}?db=0 belongs to another installation ({THEIRS})")
    assert "after a loss of etcd or a move, take this one over with `torchq redis adopt --yes`" in said


def test_doctor_outside_the_cluster_says_how_it_is_run_inside(
    torchq: Torchq, embedded_cluster: KubernetesCluster, namespace: str
) -> None:
    metadata = {"name": LEASE, "annotations": {SERVICE_ANNOTATION: "batch/mine-coordinator"}}
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": {}}
    embedded_cluster.create(LEASES, body, namespace)
    told = torchq("doctor", code=2, TORCHQ_LEASE_NAMESPACE=namespace).stderr
    assert "  kubectl -n batch exec deployment/mine-coordinator -- torchq doctor\n" in told
    assert "does not answer" not in told
    named = {"TORCHQ_LEASE_NAMESPACE": namespace, "TORCHQ_REDIS_URL": "unix:///no/such/socket"}
    assert "unix:///no/such/socket?db=0 does not answer" in torchq("doctor", code=2, **named).stderr
