"""The Sentinel installation of the tests: a server that is cut off loses its role, but keeps its clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support import sentinel
from tests.support.waiting import until

pytestmark = [pytest.mark.servers, pytest.mark.redis_server]


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[sentinel.Installation]:
    with sentinel.running(tmp_path) as found:
        yield found


def test_master_that_is_cut_off_is_replaced_and_refuses_writes(installation: sentinel.Installation) -> None:
    old = installation.master()
    old.ask("SET", "before", "1")
    until(lambda: all(server.ask("GET", "before") for server in installation.servers))
    installation.cut_off(old)
    new = installation.wait_for_other_master(old)
    assert new.ask("GET", "before") == "1"
    until(lambda: _refusal(new) == "")
    assert old.role() == "master"
    until(lambda: _refusal(old).startswith("NOREPLICAS"))


def _refusal(server: sentinel.Node) -> str:
    try:
        server.ask("SET", "after", "1")
    except redis.RedisError as error:
        return str(error)
    return ""
