"""Logins with tokens: which are accepted, how long a session lasts, and where no token is."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from coordinator.access.readers import EVERYWHERE
from coordinator.dashboard.access import logins
from coordinator.dashboard.access.logins import (
    COOKIE,
    MOST_WRONG,
    SECURE_COOKIE,
    SESSION_SECONDS,
    WRONG_SECONDS,
    Logins,
    NotLoggedIn,
    TooManyLogins,
)
from coordinator.dashboard.visitors import Visitor
from coordinator.query.bounds import Bounds
from crds.api_resources import Resource
from kube import errors
from tests.support.clock import Clock

GOOD, ACCOUNT = "good.token-1", "system:serviceaccount:team-a:torchq-user"


@dataclass
class Server:
    """An API server that takes some tokens."""

    names: dict[str, str] = field(default_factory=lambda: {GOOD: ACCOUNT}, repr=False)
    knows_names: bool = True
    away: bool = False

    def as_owner(self, token: str) -> Any:
        return Owner(self, token)


@dataclass(frozen=True)
class Owner:
    """The API server as the owner of a token sees it."""

    server: Server
    token: str = field(repr=False)

    def create(self, resource: Resource, _body: dict[str, Any]) -> Any:
        if self.server.away:
            raise errors.Unreachable("the API server does not answer")
        if self.token not in self.server.names:
            raise errors.Unauthorized("no")
        if resource.plural == "selfsubjectreviews":
            if not self.server.knows_names:
                raise errors.NotFound("no such resource")
            return {"status": {"userInfo": {"username": self.server.names[self.token]}}}
        return {"status": {"allowed": False}}


def visitor(name: str, cluster: Any) -> Visitor:
    bounds = Bounds(EVERYWHERE, lambda _: True, lambda _: True)
    nothing: Callable[..., Any] = lambda *_: None  # noqa: E731
    return Visitor(name, cluster, nothing, nothing, lambda _: bounds, may_act=False, may=nothing)


class Site:
    """A dashboard's logins, with a stepped clock."""

    def __init__(self) -> None:
        self.server, self.clock = Server(), Clock()
        self.logins = Logins(self.server.as_owner, visitor, self.clock)

    def log_in(self, token: str = GOOD, address: str = "10.0.0.1") -> str:
        return self.logins.log_in(token, address)

    def find(self, value: str, *, is_secure: bool = False) -> Visitor | None:
        return self.logins.find({SECURE_COOKIE if is_secure else COOKIE: value}, is_secure=is_secure)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_token_of_the_api_server_opens_a_session_of_its_account(site: Site) -> None:
    value = site.log_in(f"  {GOOD}\n")
    found = site.find(value)
    assert found is not None
    assert found.name == ACCOUNT
    assert site.find(value) is found
    assert site.log_in() != value


@pytest.mark.parametrize(
    "token",
    ["", "bad", "Bearer " + GOOD, GOOD + "\nX: y", "é", "a" * 20_000, "<script>", GOOD[:-1]],
    ids=["none", "unknown", "a header", "another header", "no token", "long", "markup", "a part"],
)
def test_what_is_no_token_of_the_api_server_opens_nothing(
    site: Site, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(NotLoggedIn) as refused:
        site.log_in(token)
    assert len(site.logins) == 0
    if len(token) > 3:
        assert token.strip() not in caplog.text + str(refused.value)


def test_an_older_api_server_tells_no_name(site: Site) -> None:
    site.server.knows_names = False
    found = site.find(site.log_in())
    assert found is not None
    assert found.name == logins.UNKNOWN_NAME
    with pytest.raises(NotLoggedIn):
        site.log_in("bad")


def test_nobody_logs_in_as_nobody(site: Site) -> None:
    site.server.names[GOOD] = "system:anonymous"
    with pytest.raises(NotLoggedIn):
        site.log_in()


def test_a_session_ends_after_its_time_and_with_a_logout(site: Site) -> None:
    value, other = site.log_in(), site.log_in()
    site.clock.step(SESSION_SECONDS - 1)
    found = site.find(other)
    assert found is not None
    site.logins.end(found)
    assert site.find(other) is None
    assert site.find(value) is not None
    site.clock.step(1)
    assert site.find(value) is None
    assert len(site.logins) == 0


@pytest.mark.parametrize("value", ["", "x", "é\udcff", "a" * 100_000])
def test_a_cookie_that_nobody_was_given_finds_nobody(site: Site, value: str) -> None:
    site.log_in()
    assert site.find(value) is None
    assert site.logins.find({}, is_secure=False) is None


def test_a_cookie_of_a_plain_connection_is_not_taken_over_tls_nor_the_other_way(site: Site) -> None:
    value = site.log_in()
    assert site.logins.find({COOKIE: value}, is_secure=True) is None
    assert site.logins.find({SECURE_COOKIE: value}, is_secure=False) is None
    assert site.find(value, is_secure=True) is not None


def test_wrong_tokens_are_limited_by_address(site: Site) -> None:
    for _ in range(MOST_WRONG):
        with pytest.raises(NotLoggedIn, match="does not accept"):
            site.log_in("bad")
    with pytest.raises(TooManyLogins, match="wait a minute"):
        site.log_in()
    assert site.log_in(address="10.0.0.2")
    site.clock.step(WRONG_SECONDS)
    assert site.log_in()


def test_the_addresses_that_are_remembered_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MOST_ADDRESSES", 3)
    for number in range(9):
        with pytest.raises(NotLoggedIn):
            site.log_in("bad", f"10.0.0.{number}")
    assert [*site.logins._wrong._times] == ["10.0.0.6", "10.0.0.7", "10.0.0.8"]


def test_an_api_server_that_is_away_is_no_wrong_token(site: Site) -> None:
    site.server.away = True
    for _ in range(MOST_WRONG + 1):
        with pytest.raises(errors.Unreachable):
            site.log_in()
    site.server.away = False
    assert site.log_in()


def test_an_account_that_logs_in_again_and_again_ends_its_own_sessions_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "MOST_OF_ONE_NAME", 2)
    site.server.names["other"] = "ann"
    ann = site.log_in("other")
    values = [site.log_in() for _ in range(4)]
    assert [site.find(value) is not None for value in values] == [False, False, True, True]
    assert site.find(ann) is not None


def test_all_sessions_are_bounded_and_the_longest_unused_goes_first(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "MOST_SESSIONS", 2)
    site.server.names |= {"t1": "ann", "t2": "bob"}
    first, second = site.log_in("t1"), site.log_in("t2")
    site.find(first)
    third = site.log_in()
    assert [site.find(value) is not None for value in (first, second, third)] == [True, False, True]


def test_no_log_and_no_text_of_an_object_has_the_token_or_the_cookie(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    value = site.log_in()
    found = site.find(value)
    assert found is not None
    site.logins.end(found)
    said = caplog.text + repr(found) + repr(vars(site.logins)) + repr(found.cluster)
    assert ACCOUNT in caplog.text
    assert [secret for secret in (GOOD, value, found.secret) if secret in said] == []
