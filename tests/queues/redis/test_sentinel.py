"""The master of a Sentinel installation: the server that a process takes for the master, and the server that its
clients use.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis

from queues import errors
from queues.redis import acl, connection, sentinel_url
from queues.redis import url as redis_url
from queues.redis.location import Location
from queues.redis.sentinel import LOOK_SECONDS, SILENT_SECONDS, Address, Master, SentinelSilent, Unlocated
from queues.storage.redis_store import RedisStore
from tests.support import sentinel
from tests.support.clock import Clock
from tests.support.sentinel import Installation
from tests.support.waiting import SECONDS, until

URL = (
    "rediss+sentinel://u:p%40w@a:1,b,[::1]:3/my/2?sentinel_username=s&sentinel_password=x%2Fy&ssl_check_hostname=false"
)
OLD, NEW = ("10.0.0.1", 6379), ("10.0.0.2", 6380)


def test_a_sentinel_url_leads_to_plain_urls_and_shows_no_secret() -> None:
    sentinels = sentinel_url.parse(URL)
    assert sentinels is not None
    assert sentinels.server("fe80::1", 7) == "rediss://u:p%40w@[fe80::1]:7/2?ssl_check_hostname=false"
    assert sentinels.sentinel("b:26379") == "rediss://b:26379/0?username=s&password=x%2Fy&ssl_check_hostname=false"
    assert sentinels.shown == redis_url.address(URL) == "rediss+sentinel://a:1,b:26379,[::1]:3/my/2"
    assert redis_url.redact(URL) == "rediss+sentinel://a:1,b,[::1]:3/my/2"
    assert redis_url.has_password(URL)
    assert not redis_url.has_password("redis+sentinel://a:1,b:2/my")
    redis_url.check(URL)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("u:s3cret@a:1,b:2", "it names no master"),
        ("u:s3cret@a:1,,b:2/my", "HOST:PORT"),
        ("u:s3cret@a:1,b:99999/my", "a port is not"),
        ("u:s3cret@a:1/my/none", "its database is not a number"),
        ("u:s3cret@a:1/my?s3cret=1", "unknown"),
        ("u:s3@cret@a:s3cret/my", "HOST:PORT"),
        ("u:s3/cret@a:1/my", "%2F"),
        ("a:1/my?ssl_cert_reqs=none", "only|except with rediss"),
    ],
)
def test_an_unusable_sentinel_url_is_refused_without_its_password(rest: str, words: str) -> None:
    with pytest.raises(errors.BadAddress, match=words) as refused:
        connection.connect(f"redis+sentinel://{rest}", client_name="test")
    assert not any(part in str(refused.value) for part in ("s3cret", "s3@", "cret@"))


class Town:
    """Sentinels whose answers a test sets, a clock, and a Master that looks when the test tells it to look."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.url = "redis+sentinel://a:1,b:1,c:1/my"
        self.answers: dict[str, Address | None] = dict.fromkeys("abc", OLD)
        self.asked: list[str] = []
        self.due: list[Callable[[], None]] = []
        self.master = Master(lambda: self.url, self.clock, self.due.append)

    def ask(self, url: str, name: str) -> Address | None:
        host = url.removeprefix("redis://")[0]
        self.asked.append(host)
        if host not in self.answers:
            raise SentinelSilent("timeout")
        return self.answers[host] if name == "my" else None

    def locate(self) -> str:
        self.clock.step(0.001)
        return self.master.locate(self.ask)

    def has_left(self, place: str) -> bool:
        left = self.master.has_left(place, self.ask)
        while self.due:
            self.due.pop()()
        return left


def test_the_word_of_most_sentinels_that_know_the_name_decides() -> None:
    town = Town()
    assert town.locate() == "redis://10.0.0.1:6379/0"
    assert len(town.asked) == 2, "two of three sentinels that agree are enough"
    town.answers |= {"a": NEW}
    assert town.locate() == "redis://10.0.0.1:6379/0", "one of three sentinels does not decide"
    town.answers |= {"b": NEW}
    assert town.locate() == "redis://10.0.0.2:6380/0"
    town.answers = {"a": NEW, "b": None, "c": OLD}
    assert town.locate() == "redis://10.0.0.2:6380/0", "a tie keeps the last master"
    town.answers = {}
    assert town.locate() == "redis://10.0.0.2:6380/0", "silence keeps the last master"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"a": OLD, "b": NEW}, r"disagree .*'my': 10.0.0.1:6379, 10.0.0.2:6380"),
        ({"a": None, "b": None, "c": None}, "know no master with the name 'my'"),
        ({}, "no sentinel answers: a:1: timeout; b:1: timeout; c:1: timeout"),
    ],
)
def test_sentinels_that_name_no_master_at_the_start_are_an_error(
    answers: dict[str, Address | None], words: str
) -> None:
    town = Town()
    town.answers = answers
    with pytest.raises(Unlocated, match=words):
        town.locate()


def test_clients_leave_the_old_master_one_look_after_the_sentinels_have() -> None:
    town = Town()
    town.locate()
    place = "redis://10.0.0.1:6379/0"
    town.answers = dict.fromkeys("abc", NEW)
    assert not town.has_left(place)
    town.clock.step(LOOK_SECONDS)
    town.asked.clear()
    town.has_left(place)
    assert town.has_left(place)
    assert len(town.asked) == 2, "all clients together look once a second"


def test_a_silent_sentinel_is_not_asked_at_every_look(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    town = Town()
    town.locate()
    town.answers = {}
    for _ in range(4):
        town.locate()
    assert sorted(town.asked[2:]) == ["a", "b", "c"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the server at 10.0.0.1:6379 stays in use" in caplog.text
    town.clock.step(SILENT_SECONDS)
    town.asked.clear()
    town.locate()
    assert len(town.asked) == 1, "one of the silent sentinels is asked again"
    town.clock.step(SILENT_SECONDS)
    town.answers = {"a": OLD, "b": OLD, "c": OLD}
    town.locate()
    assert "over after" in caplog.text


PASSWORD = "s3/cret"


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Installation]:
    """Run servers and sentinels whose only accounts are the printed accounts and the account of an admin."""
    with sentinel.running(tmp_path) as running:
        accounts = acl.acl(PASSWORD, "reader", "internal").splitlines()[1:]
        for nodes, lines in ((running.servers, accounts), (running.sentinels, [acl.sentinel_acl(PASSWORD)])):
            for node in nodes:
                for line in lines:
                    node.ask("ACL", "SETUSER", line.split()[1], "reset", *line.split()[2:])
                node.ask("ACL", "LOG", "RESET")
        yield running


@pytest.fixture
def url(town: Installation) -> str:
    """Return the URL for the printed accounts."""
    password = quote(PASSWORD, safe="")
    options = f"?sentinel_username=torchq&sentinel_password={password}"
    return town.url(login=f"torchq:{password}@", options=options)


Opened = Callable[..., connection.Connection]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return `connect`, whose clients are closed after the test."""
    with contextlib.ExitStack() as kept:

        def open_(where: str | Location, **options: Any) -> connection.Connection:
            return kept.enter_context(contextlib.closing(connection.connect(where, client_name="test", **options)))

        yield open_


@pytest.mark.servers
def test_the_printed_account_is_enough_to_ask_the_sentinels(town: Installation, url: str, opened: Opened) -> None:
    client = opened(url)
    assert server_port(client) == town.master().port
    refused = RedisStore(opened(f"{url}wrong", retries=0))
    with pytest.raises(errors.StoreUnreachable, match=r"no sentinel answers: .*: invalid username-password") as raised:
        refused.epoch()
    assert "wrong" not in str(raised.value)
    asking = redis.Redis(port=town.sentinels[0].port, username="torchq", password=PASSWORD)
    with asking, pytest.raises(redis.exceptions.NoPermissionError):
        asking.execute_command("SENTINEL", "FAILOVER", sentinel.NAME)


@pytest.mark.servers
def test_a_pinned_client_uses_no_other_server_than_its_store_was_read_from(
    town: Installation, url: str, opened: Opened
) -> None:
    pinned = RedisStore(opened(url, pinned=True))
    free = RedisStore(opened(url))
    before = pinned.incarnation()
    assert free.incarnation() == before
    old = town.master()
    town.fail_over()
    town.wait_for_other_master(old)
    until(lambda: free.incarnation() != before)
    assert free.seconds_since_move() < SECONDS
    with pytest.raises(errors.StoreLost, match="may lack the newest writes"):
        until(lambda: pinned.epoch() < 0)
    assert pinned.incarnation() == free.incarnation()
    assert pinned.epoch() == 0


@pytest.mark.servers
def test_all_clients_follow_the_master_and_leave_one_that_hangs(town: Installation, url: str, opened: Opened) -> None:
    location = Location(url)
    clients = [opened(location, timeout=60) for _ in range(2)]
    ports = set(map(server_port, clients))
    old = town.master()
    assert ports == {old.port}
    assert connection.address(clients[0]).endswith(f"/mymaster/0 (master 127.0.0.1:{old.port})")
    old.pause()
    began = time.monotonic()
    clients[0].set("torchq:x", "1")  # no error: the wait for the old master ends when the sentinels name another master
    waited = time.monotonic() - began
    old.resume()
    assert old.port not in set(map(server_port, clients))
    assert waited < 30
    assert clients[1].get("torchq:x") == b"1"
    assert [server.ask("ACL", "LOG") for server in town.servers] == [[], [], []]


def server_port(client: connection.Connection) -> int:
    return int(connection.facts(client, "server")["tcp_port"])
