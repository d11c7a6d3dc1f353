"""The connection to Redis: addresses, the translation of Redis errors, and scripts that the server has not loaded."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kube.process.turns import Turns
from queues import errors
from queues.dispatch.redis_work import RedisWork
from queues.redis import connection
from queues.redis import url as urls
from queues.redis.scripts import Script
from queues.storage.redis_store import RedisStore
from tests.doubles.recording_meter import RecordingMeter
from tests.support import redis_server
from tests.support.clock import Clock
from tests.support.kube import resets
from tests.support.queues.builders import key
from tests.support.queues.guarded import certify
from tests.support.waiting import SECONDS, until

pytestmark = pytest.mark.servers

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://user:{SECRET}@host:7000/3", "redis://host:7000/3"),
        (f"rediss://:{SECRET}@host", "rediss://host:6379/0"),
        (f"unix://user:{SECRET}@/run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
    ],
)
def test_address_hides_user_and_password(url: str, shown: str) -> None:
    client = connection.connect(url, client_name="test")
    assert connection.address(client) == shown
    assert SECRET not in urls.redact(url)


@pytest.mark.parametrize(
    "url", ["", "host:6379", f"http://:{SECRET}@host", f"redis://:{SECRET}@host:port", "redis://h:99999"]
)
def test_invalid_url_raises_bad_address_without_the_password(url: str) -> None:
    with pytest.raises(errors.BadAddress, match="Redis URL") as raised:
        connection.connect(url, client_name="test")
    assert SECRET not in str(raised.value)


def test_unreachable_server_is_named_without_the_password(tmp_path: Path) -> None:
    store = RedisStore(connection.connect(f"unix://:{SECRET}@{tmp_path}/none?db=1", client_name="test"))
    with pytest.raises(errors.StoreUnreachable, match=f"{tmp_path}/none") as raised:
        store.epoch()
    assert SECRET not in str(raised.value)
    with pytest.raises(errors.StoreUnreachable):
        store.snapshot(1)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Path]:
    """Run a Redis server that requires a password, and return its socket."""
    socket = tmp_path / "socket"
    with redis_server.running(socket, "--requirepass", SECRET):
        yield socket


@pytest.mark.parametrize("password", ["", ":wrong@"])
def test_refused_credentials_are_reported_without_the_password(guarded: Path, password: str) -> None:
    store = RedisStore(connection.connect(f"unix://{password}{guarded}", client_name="test", retries=0))
    with pytest.raises(errors.StoreUnreachable, match="credentials") as raised:
        store.epoch()
    assert "wrong" not in str(raised.value)


def test_store_reconnects_to_a_restarted_server(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    store = RedisStore(connection.connect(f"unix://{socket}", client_name="test"))
    with redis_server.running(socket):
        store.rebuild(1, [], [])
    with pytest.raises(errors.StoreUnreachable):
        store.snapshot(1)
    with redis_server.running(socket):
        assert store.epoch() == 0
        store.rebuild(2, [], [])


def test_a_server_that_takes_no_writes_confirms_no_lease(tmp_path: Path) -> None:
    """A master that is cut off from its replicas does not know of a rebuild on the master that has replaced it."""
    with redis_server.running(tmp_path / "socket", "--min-replicas-to-write", "1") as url:
        client = connection.connect(url, client_name="test")
        with pytest.raises(errors.NotWritable, match="fewer working replicas"):
            RedisWork(client).holds(key("a"), "token")
        with pytest.raises(errors.NotWritable) as raised, connection.translate_errors(client):
            client.pipeline().delete("torchq:secret").execute()
        client.close()
    assert "torchq:secret" not in str(raised.value)


def test_flushed_script_is_loaded_again(client: connection.Connection) -> None:
    store = RedisStore(client)
    store.rebuild(1, [], [])
    client.script_flush()
    assert store.snapshot(1).epoch == 1


def test_each_script_is_measured_by_its_name_also_on_a_pipeline_and_after_an_error(
    client: connection.Connection,
) -> None:
    meter = RecordingMeter()
    client.connection_pool.connection_kwargs["location"].meter = meter
    store = RedisStore(client)
    store.rebuild(1, [], [])
    store.snapshot(1)
    client.set("torchq:queues", "not a hash")
    with pytest.raises(errors.QueueError, match="WRONGTYPE"):
        store.snapshot(1)
    name = "torchq_redis_request_duration_seconds"
    assert meter.observed[name, "store/rebuild"] >= 1
    assert meter.observed[name, "store/snapshot"] == 2
    pipeline = connection.ScriptPipeline(client)
    wait = Script("store/probe").send(pipeline, [])
    assert (name, "store/probe") not in meter.observed, "a call is measured only when its answer is there"
    with contextlib.suppress(errors.QueueError):
        wait()
    assert meter.observed[name, "store/probe"] == 1


def test_redis_error_inside_a_script_becomes_a_queue_error(client: connection.Connection) -> None:
    RedisStore(client).rebuild(1, [], [])
    client.set("torchq:queues", "not a hash")
    with pytest.raises(errors.QueueError, match="WRONGTYPE"):
        RedisStore(client).snapshot(1)


def test_script_sha_depends_on_its_source() -> None:
    assert Script("store/put", ("lib/store",)).sha == Script("store/put", ("lib/store",)).sha
    assert Script("store/put", ("lib/store",)).sha != Script("store/remove", ("lib/store",)).sha


def test_connection_sets_the_client_name(client: connection.Connection) -> None:
    until(lambda: any(each["name"] == "test" for each in client.client_list()))


def test_reset_before_the_tls_handshake_leaves_no_socket_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certify(tmp_path)
    with resets.resetting(monkeypatch) as port:
        url = f"rediss://:{SECRET}@127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/ca.crt"
        client = connection.connect(url, client_name="test", retries=1)
        with pytest.raises(errors.StoreUnreachable, match="reset by peer") as raised:
            RedisStore(client).epoch()
        assert resets.open_sockets() == [], raised
        client.close()


def test_a_loop_that_waits_for_a_redis_that_hangs_is_not_late(tmp_path: Path) -> None:
    clock, done = Clock(), threading.Event()
    loops = Turns(clock)
    turn = loops.loop("term")
    with closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(tmp_path / "socket"))
        silent.listen()
        client = connection.connect(f"unix://{tmp_path}/socket", client_name="test", timeout=SECONDS, retries=0)

        def loop() -> None:
            turn.mark()
            with contextlib.suppress(errors.StoreUnreachable):
                RedisStore(client).epoch()
            done.set()

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        held, _ = silent.accept()
        until(lambda: turn.waits_for == "Redis")
        clock.step(3_600)
        assert loops.late() == ()
    held.close()
    assert done.wait(SECONDS)
    clock.step(31)
    assert loops.late() == ("term",)
