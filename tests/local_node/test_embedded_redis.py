"""The Redis of one machine, whichever it is."""

import shutil
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from rq import Queue, SimpleWorker

from cluster.local import embedded_redis
from cluster.local.embedded_redis import Plan
from cluster.local.layout import Layout
from tests.waiting import SECONDS, until

KINDS = [
    pytest.param(True, id="imitation"),
    pytest.param(
        False,
        id="server",
        marks=[
            pytest.mark.redis_server,
            pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH"),
        ],
    ),
]


@pytest.fixture
def start() -> Iterator[Callable[[Plan], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(plan: Plan) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(plan.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        until(lambda: embedded_redis.answers(plan.url), bool)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(params=KINDS)
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> Plan:
    return embedded_redis.plan(Layout(tmp_path), embedded=request.param)


def connected(plan: Plan) -> redis.Redis:
    return redis.Redis.from_url(plan.url)


def test_only_this_user_can_reach_it(plan: Plan, start: Callable[[Plan], object]) -> None:
    start(plan)
    path = Path(plan.url.removeprefix("unix://"))
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_url_stays_and_a_killed_one_is_replaced(
    plan: Plan, start: Callable[[Plan], subprocess.Popen[bytes]]
) -> None:
    first = start(plan)
    first.kill()
    first.wait()
    assert not embedded_redis.answers(plan.url)
    start(plan)
    with connected(plan) as client:
        assert client.ping()


def test_an_error_reply_is_an_answer_and_not_the_end(plan: Plan, start: Callable[[Plan], object]) -> None:
    start(plan)
    with connected(plan) as client:
        client.set("text", "a")
        number = client.client_id()
        with pytest.raises(redis.ResponseError):
            client.lpush("text", "b")
        with pytest.raises(redis.exceptions.NoScriptError):
            client.evalsha("0" * 40, 0)
        with pytest.raises(redis.ResponseError, match="STALE of us"):
            client.eval("return redis.error_reply('STALE of us')", 0)
        assert client.client_id() == number, "the connection was closed"


def test_a_script_and_a_big_value(plan: Plan, start: Callable[[Plan], object]) -> None:
    start(plan)
    with connected(plan) as client:
        client.set("big", b"x" * 1_000_000)
        assert client.strlen("big") == 1_000_000
        assert client.eval("return redis.call('STRLEN', KEYS[1])", 1, "big") == 1_000_000


def test_a_blocked_client_wakes(plan: Plan, start: Callable[[Plan], object]) -> None:
    start(plan)
    with connected(plan) as waiting, connected(plan) as giving:
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(waiting.blpop(["list"], timeout=20)))
        thread.start()
        until(lambda: len(giving.client_list()) == 2)
        giving.rpush("list", "value")
        thread.join(SECONDS)
        assert [list(each) for each in got] == [[b"list", b"value"]]


def test_rq_works_on_it(plan: Plan, start: Callable[[Plan], object]) -> None:
    start(plan)
    with connected(plan) as client:
        queue = Queue(connection=client)
        jobs = [queue.enqueue("operator.add", index, 1) for index in range(20)]
        assert SimpleWorker([queue], connection=client).work(burst=True, logging_level="ERROR")
        assert [job.return_value(refresh=True) for job in jobs] == list(range(1, 21))


def test_a_path_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    path = embedded_redis.socket_path(Layout(deep))
    try:
        assert len(str(path)) < 100
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path == embedded_redis.socket_path(Layout(deep))
        path.parent.chmod(0o777)
        with pytest.raises(embedded_redis.RedisFailed, match=str(path.parent)):
            embedded_redis.socket_path(Layout(deep))
    finally:
        path.parent.rmdir()


def test_a_second_one_says_so(tmp_path: Path, start: Callable[[Plan], object]) -> None:
    plan = embedded_redis.plan(Layout(tmp_path), embedded=True)
    start(plan)
    second = subprocess.run(plan.command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode == 1
    assert "another Redis listens" in second.stderr
    assert "Traceback" not in second.stderr


def test_it_ends_on_sigterm_and_leaves_no_socket(
    tmp_path: Path, start: Callable[[Plan], subprocess.Popen[bytes]]
) -> None:
    plan = embedded_redis.plan(Layout(tmp_path), embedded=True)
    process = start(plan)
    with connected(plan) as client:
        client.ping()
        process.terminate()
        assert process.wait(SECONDS) == 0
    assert not Path(plan.url.removeprefix("unix://")).exists()


@pytest.mark.redis_server
@pytest.mark.skipif(shutil.which("redis-server") is None, reason="no redis-server on PATH")
def test_a_server_keeps_what_it_was_told(tmp_path: Path, start: Callable[[Plan], subprocess.Popen[bytes]]) -> None:
    plan = embedded_redis.plan(Layout(tmp_path))
    first = start(plan)
    with connected(plan) as client:
        client.set("name", "value")
    first.terminate()
    first.wait()
    start(plan)
    with connected(plan) as client:
        assert client.get("name") == b"value"
