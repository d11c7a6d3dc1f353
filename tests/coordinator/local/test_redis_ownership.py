"""The Redis of `torchq local up`: either it belongs to the cluster of this machine, or the start names the owner."""

from pathlib import Path

import pytest

from coordinator.cache import own_installation
from coordinator.errors import LocalError
from coordinator.local import option_checks, stack
from kube.client import KubernetesCluster
from queues.installation import Installation
from queues.redis import connection
from queues.storage.redis_store import RedisStore
from tests.support import redis_server

pytestmark = pytest.mark.servers

THEIRS = Installation("cluster-2", "kube-system")


def test_only_the_server_of_a_stack_changes_its_owner_by_itself(
    embedded_cluster: KubernetesCluster, tmp_path: Path
) -> None:
    with redis_server.running(tmp_path / "socket") as url:
        client = connection.connect(url, client_name="test")
        store = RedisStore(client)
        stack.claim_redis(embedded_cluster, url, "kube-system", is_own=False)
        store.claim(THEIRS)
        store.rebuild(1, [], [])
        with pytest.raises(LocalError, match=r"belongs to another installation \(cluster cluster-2, .*--redis"):
            stack.claim_redis(embedded_cluster, url, "kube-system", is_own=False)
        assert store.problem() == ""
        stack.claim_redis(embedded_cluster, url, "kube-system", is_own=True)
        store.claim(own_installation.read(embedded_cluster, "kube-system"))
        assert (store.problem(), store.epoch()) == ("", 0)
        client.close()


def test_a_server_that_cannot_hold_the_queues_is_refused_before_anything_starts(tmp_path: Path) -> None:
    arguments = ("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    with redis_server.running(tmp_path / "socket", *arguments) as url, pytest.raises(LocalError) as refused:
        option_checks.redis(url, "--redis")
    assert str(refused.value).startswith(f"--redis: Redis at {url}?db=0 evicts keys when it is full")
