"""A Redis on a full disk accepts writes, and persists writes again when there is space."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.layout import Layout
from embedded.redis import server_program
from embedded.redis.persistence import Persistence
from tests.support import redis_server
from tests.support.waiting import SECONDS, patient, until

pytestmark = pytest.mark.servers

LIMITED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""A program that executes another program with a limit of 64 KiB for the size of its files."""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Yield the URL and the process id of a server whose append-only file soon reaches its limit."""
    plan = server_program.prepare(Layout(tmp_path), redis_server.program())
    with subprocess.Popen([sys.executable, "-c", LIMITED, *plan.command], stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: server_program.answers(plan.url))
            yield plan.url, process.pid
        finally:
            process.kill()
            process.wait(patient(SECONDS))


def state(url: str) -> dict[str, str]:
    text = server_program.ask(url, "INFO", "persistence")
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def set_one(url: str) -> str:
    return server_program.ask(url, "SET", "key", "x" * 10_000)


def test_redis_accepts_writes_on_a_full_disk_and_persists_again_later(
    limited: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = limited
    keeper = Persistence(url, tmp_path / "redis")
    monkeypatch.setattr(keeper, "has_room", lambda: False)
    until(lambda: set_one(url), lambda answer: answer.startswith("-MISCONF"))
    keeper.step(1.0)
    assert [set_one(url) for _ in range(20)] == ["+OK"] * 20
    keeper.step(100.0)
    assert state(url)["aof_enabled"] == "0"
    monkeypatch.setattr(keeper, "has_room", lambda: True)
    keeper.step(200.0)
    until(lambda: state(url), lambda found: found["aof_enabled"] == "1" and found["aof_rewrite_in_progress"] == "0")
    assert set_one(url) == "+OK"


def test_has_room_tries_to_write_a_file(tmp_path: Path) -> None:
    assert Persistence("unix:///nowhere", tmp_path).has_room()
    assert not Persistence("unix:///nowhere", tmp_path / "missing").has_room()
    assert not list(tmp_path.iterdir())


def test_step_ignores_a_redis_that_does_not_answer(tmp_path: Path) -> None:
    Persistence(f"unix://{tmp_path}/redis.sock", tmp_path).step(1.0)
