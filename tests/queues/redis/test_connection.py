"""The door to Redis: addresses, what its errors become, and scripts the server does not know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from queues import errors
from queues.redis import connection
from queues.redis import url as urls
from queues.redis.scripts import Script
from queues.storage.redis_store import RedisStore
from tests.support import redis_server
from tests.support.kube import resets
from tests.support.queues.guarded import certify
from tests.support.waiting import until

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://user:{SECRET}@host:7000/3", "redis://host:7000/3"),
        (f"rediss://:{SECRET}@host", "rediss://host:6379/0"),
        (f"unix://user:{SECRET}@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    client = connection.connect(url, client_name="test")
    assert connection.address(client) == shown
    assert SECRET not in urls.redact(url)


@pytest.mark.parametrize(
    "url", ["", "host:6379", f"http://:{SECRET}@host", f"redis://:{SECRET}@host:port", "redis://h:99999"]
)
def test_a_url_that_cannot_be_used_says_why(url: str) -> None:
    with pytest.raises(errors.BadAddress, match="Redis URL") as raised:
        connection.connect(url, client_name="test")
    assert SECRET not in str(raised.value)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = RedisStore(connection.connect(f"unix://:{SECRET}@{tmp_path}/none?db=1", client_name="test"))
    with pytest.raises(errors.StoreUnreachable, match=f"{tmp_path}/none") as raised:
        store.epoch()
    assert SECRET not in str(raised.value)
    with pytest.raises(errors.StoreUnreachable):
        store.snapshot(1)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Path]:
    """A Redis server that asks for a password."""
    socket = tmp_path / "socket"
    with redis_server.running(socket, "--requirepass", SECRET):
        yield socket


@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_refused_credentials_are_told_apart_and_not_shown(guarded: Path, password: str) -> None:
    store = RedisStore(connection.connect(f"unix://{password}{guarded}", client_name="test", retries=0))
    with pytest.raises(errors.StoreUnreachable, match="credentials") as raised:
        store.epoch()
    assert "wrong" not in str(raised.value)


def test_a_server_that_comes_back_is_used_again(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    store = RedisStore(connection.connect(f"unix://{socket}", client_name="test"))
    with redis_server.running(socket):
        store.rebuild(1, [], [])
    with pytest.raises(errors.StoreUnreachable):
        store.snapshot(1)
    with redis_server.running(socket):
        assert store.epoch() == 0
        store.rebuild(2, [], [])


def test_a_script_the_server_forgot_is_sent_again(client: connection.Connection) -> None:
    store = RedisStore(client)
    store.rebuild(1, [], [])
    client.script_flush()
    assert store.snapshot(1).epoch == 1


def test_an_error_inside_a_script_is_a_queue_error(client: connection.Connection) -> None:
    RedisStore(client).rebuild(1, [], [])
    client.set("torchq:queues", "not a hash")
    with pytest.raises(errors.QueueError, match="WRONGTYPE"):
        RedisStore(client).snapshot(1)


def test_one_source_has_one_sha() -> None:
    assert Script("store/put", ("lib/store",)).sha == Script("store/put", ("lib/store",)).sha
    assert Script("store/put", ("lib/store",)).sha != Script("store/remove", ("lib/store",)).sha


def test_the_client_is_named_for_whoever_looks(client: connection.Connection) -> None:
    until(lambda: any(each["name"] == "test" for each in client.client_list()))


def test_a_server_that_resets_before_tls_leaves_no_socket_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certify(tmp_path)
    with resets.resetting(monkeypatch) as port:
        url = f"rediss://:{SECRET}@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/ca.crt"
        client = connection.connect(url, client_name="test", retries=1)
        with pytest.raises(errors.StoreUnreachable, match="reset by peer") as raised:
            RedisStore(client).epoch()
        assert resets.left_open() == [], raised
        client.close()
