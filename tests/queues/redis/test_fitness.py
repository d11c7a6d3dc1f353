"""Whether a server can hold the queues: real servers that cannot, each for one reason."""

from pathlib import Path

import pytest

from queues import errors
from queues.redis import connection, fitness, server_checks
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.ports import reserve
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), ""),
        (("--maxmemory", "64mb"), ""),
        (("--maxmemory-policy", "allkeys-lru"), ""),
        (("--replicaof", "127.0.0.1", "1"), "is a replica of 127.0.0.1:1"),
        (("--replicaof", "127.0.0.1", "1", "--replica-read-only", "no"), "is a replica of 127.0.0.1:1"),
        (("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"), "evicts keys when it is full"),
        (("--maxmemory", "1"), "is full: raise its maxmemory"),
        (("--min-replicas-to-write", "1"), "has fewer working replicas than its min-replicas-to-write"),
    ],
)
def test_problem_names_the_server_and_what_is_wrong_with_it(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    with redis_server.running(tmp_path / "socket", *arguments) as url:
        client = connection.connect(url, client_name="test")
        found = fitness.problem(client)
        client.close()
    assert found.startswith(f"Redis at unix://{tmp_path / 'socket'}?db=0 {reason}" if reason else "")
    assert bool(found) is bool(reason)


def test_problem_names_a_node_of_a_cluster(tmp_path: Path) -> None:
    with reserve() as port, reserve() as bus:
        ports = ("--port", str(port), "--cluster-port", str(bus))
        with redis_server.running(tmp_path / "socket", *ports, "--cluster-enabled", "yes") as url:
            client = connection.connect(url, client_name="test")
            assert "is a node of a Redis Cluster" in fitness.problem(client)
            with pytest.raises(errors.NotWritable, match="is a node of a Redis Cluster"):
                RedisStore(client).epoch()
            client.close()


def test_problem_names_a_server_that_cannot_write_its_file(tmp_path: Path) -> None:
    with redis_server.running(tmp_path / "socket", "--save", "3600 1") as url:
        client = connection.connect(url, client_name="test")
        assert fitness.problem(client) == ""
        (tmp_path / "dump.rdb").mkdir()
        client.bgsave()
        until(lambda: "cannot write its files" in fitness.problem(client))
        assert "MISCONF" not in fitness.problem(client)
        client.close()


@pytest.mark.parametrize(
    ("version", "is_old"), [("6.2.14", True), ("7.0.0", False), ("7.2.4", False), ("255.255.255", False), ("", False)]
)
def test_problem_names_a_version_that_is_too_old(version: str, is_old: bool) -> None:
    assert server_checks.problem({"redis_version": version}).startswith("has version 6.2.14") is is_old


@pytest.mark.parametrize(("most", "is_full"), [(0, False), (99, True), (100, True), (101, False)])
def test_fullness_needs_a_limit_that_is_reached(most: int, is_full: bool) -> None:
    assert bool(server_checks.fullness({"used_memory": 100, "maxmemory": most})) is is_full


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--replicaof", "127.0.0.1", "1"), "is a read-only replica"),
        (("--maxmemory", "1"), "is full: raise its maxmemory"),
    ],
)
def test_refused_write_is_an_error_with_the_reason(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    with redis_server.running(tmp_path / "socket", *arguments) as url:
        client = connection.connect(url, client_name="test")
        with pytest.raises(errors.NotWritable, match=reason):
            RedisStore(client).rebuild(1, [], [])
        client.close()
