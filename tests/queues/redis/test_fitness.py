"""Whether a server can hold the queues: each real server here cannot, for one reason."""

from pathlib import Path

import pytest

from queues import errors
from queues.redis import connection, fitness, server_checks
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.ports import reserve
from tests.support.waiting import until

pytestmark = pytest.mark.servers


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
        assert "cannot write its files" in fitness.read_problem(client)
        client.close()


def test_server_that_refuses_even_to_answer_is_not_taken_for_one_that_hides_its_facts(tmp_path: Path) -> None:
    with redis_server.running(tmp_path / "socket", "--save", "3600 1") as url:
        (tmp_path / "dump.rdb").mkdir()
        client = connection.connect(url, client_name="test")
        client.connection_pool.connection_kwargs["health_check_interval"] = 1e-9  # a PING before each command
        client.bgsave()
        until(lambda: "cannot write its files" in fitness.problem(client))
        with pytest.raises(errors.NotWritable, match="cannot write its files"):
            fitness.read_problem(client)
        client.close()


@pytest.mark.parametrize(
    ("version", "is_old"), [("6.2.14", True), ("7.0.0", False), ("7.2.4", False), ("255.255.255", False), ("", False)]
)
def test_problem_names_a_version_that_is_too_old(version: str, is_old: bool) -> None:
    assert server_checks.problem({"redis_version": version}).startswith("has version 6.2.14") is is_old


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"used_memory": 100, "maxmemory": 0}, ""),
        ({"used_memory": 100, "maxmemory": 99}, "is full"),
        ({"used_memory": 100, "maxmemory": 100}, "is full"),
        ({"used_memory": 100, "maxmemory": 101}, ""),
        ({"aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok"}, ""),
        ({"aof_last_write_status": "err"}, "cannot write its files"),
        ({"rdb_last_bgsave_status": "err"}, "cannot write its files"),
    ],
)
def test_refusal_names_why_a_server_probably_takes_no_writes(facts: dict[str, object], reason: str) -> None:
    found = server_checks.refusal(facts)
    assert found.startswith(reason)
    assert bool(found) is bool(reason)


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
