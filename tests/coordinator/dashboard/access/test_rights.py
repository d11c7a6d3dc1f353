"""What a visitor may see: what is asked of the API server, how often, and what a right that is taken away changes."""

import threading
from typing import Any

import pytest

from coordinator.access.own_rights import AccessQuestion
from coordinator.access.readers import EVERYWHERE
from coordinator.dashboard.access import rights
from coordinator.dashboard.access.rights import (
    AWAY_SECONDS,
    KEPT_SECONDS,
    PAUSE_SECONDS,
    REFUSED_SECONDS,
    ReviewPace,
    Rights,
)
from crds.api_resources import TENANT_QUEUES, TORCHJOBS, Resource
from kube import errors
from tests.support.clock import Clock

JOBS, QUEUES = TORCHJOBS.plural, TENANT_QUEUES.plural
NAMESPACES, NAMES = {"team-a", "team-b", "team-c"}, {"team-a", "shared", "team-b"}


class Server:
    """An API server as one token sees it."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed = {*allowed}
        self.asked: list[tuple[str, str]] = []
        self.error: errors.ClusterError | None = None

    def create(self, resource: Resource, body: dict[str, Any]) -> Any:  # noqa: ARG002
        spec = body["spec"]["resourceAttributes"]
        target = spec["resource"], spec.get("namespace", "") or spec.get("name", "")
        self.asked.append(target)
        if self.error is not None:
            raise self.error
        assert spec["verb"] == ("list" if spec["resource"] == JOBS else "get")
        return {"status": {"allowed": target in self.allowed}}


class Looks:
    """One visitor who looks, with a stepped clock."""

    def __init__(self, *allowed: tuple[str, str], own: str = "team-a") -> None:
        self.server, self.clock = Server(*allowed), Clock()
        self.pace = ReviewPace(self.clock)
        self.rights = Rights(self.server, own, self.pace, self.clock)  # type: ignore[arg-type]

    def look(self, *named: str, namespaces: set[str] = NAMESPACES, queues: set[str] = NAMES) -> Any:
        return self.rights.bounds(namespaces, queues, named)

    def asked_by(self, *named: str) -> int:
        before = len(self.server.asked)
        self.look(*named)
        return len(self.server.asked) - before


def test_a_visitor_sees_the_namespaces_and_queues_that_its_token_may_read() -> None:
    bounds = Looks((JOBS, "team-a"), (QUEUES, "shared")).look()
    assert [bounds.reader.may_read(name) for name in ("team-a", "team-b", "elsewhere", "")] == [
        True,
        False,
        False,
        False,
    ]
    assert [bounds.shows(name) for name in ("shared", "team-a", "team-b")] == [True, False, False]


def test_who_may_list_all_costs_two_questions_and_sees_everything() -> None:
    looks = Looks((JOBS, ""), (QUEUES, ""))
    bounds = looks.look()
    assert bounds.reader == EVERYWHERE
    assert bounds.shows("anything")
    assert looks.server.asked == [(JOBS, ""), (QUEUES, "")]
    assert looks.asked_by() == 0
    assert looks.look() is bounds, "the same bounds are the same object, so that pages are shared"


def test_who_may_nothing_sees_nothing() -> None:
    bounds = Looks(own="").look()
    assert bounds.queues([{"metadata": {"name": name}} for name in NAMES]) == []
    assert not any(bounds.reader.may_read(name) for name in NAMESPACES)


def test_a_right_that_is_taken_away_ends_within_the_time_that_answers_are_kept() -> None:
    looks = Looks((JOBS, "team-a"), (QUEUES, "team-a"))
    assert looks.look().reader.may_read("team-a")
    looks.server.allowed.clear()
    looks.clock.step(KEPT_SECONDS - 1)
    assert looks.look().reader.may_read("team-a")
    looks.clock.step(1)
    bounds = looks.look()
    assert not bounds.reader.may_read("team-a")
    assert not bounds.shows("team-a")


def test_what_is_refused_is_asked_seldom_and_what_is_allowed_again_and_again() -> None:
    looks = Looks((JOBS, "team-a"))
    looks.look()
    looks.server.asked.clear()
    for _ in range(9):
        looks.clock.step(KEPT_SECONDS)
        looks.look()
    assert looks.server.asked == [(JOBS, ""), (JOBS, "team-a")] * 9
    looks.clock.step(REFUSED_SECONDS)
    assert looks.asked_by() > 2


@pytest.mark.parametrize("allowed", [((JOBS, ""), (QUEUES, "")), ()], ids=["an admin", "nobody"])
def test_a_token_that_is_not_accepted_any_more_is_told(allowed: tuple[tuple[str, str], ...]) -> None:
    looks = Looks(*allowed)
    looks.look()
    looks.server.error = errors.Unauthorized("the token has been revoked")
    looks.clock.step(KEPT_SECONDS)
    with pytest.raises(errors.Unauthorized):
        looks.look()


def test_a_namespace_that_a_page_names_is_asked_about_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "MOST_NEW", 0)
    looks = Looks((JOBS, "elsewhere"), own="")
    assert not looks.look().reader.may_read("elsewhere")
    assert looks.look("elsewhere").reader.may_read("elsewhere")


def test_the_questions_of_one_look_and_of_all_visitors_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "NEW_AT_ONCE", 30.0)
    looks = Looks(own="")
    many = {f"team-{number:04}" for number in range(1000)}
    looks.look(namespaces=many, queues=many)
    assert len(looks.server.asked) == 2 + rights.MOST_NEW
    other = Rights(looks.server, "", looks.pace, looks.clock)  # type: ignore[arg-type]
    other.bounds(many, many)
    assert len(looks.server.asked) == 2 * 2 + 30, "the second gets what the first has left"
    for _ in range(200):
        looks.clock.step(1)
        looks.look(namespaces=many, queues=many)
    assert {name for _, name in looks.server.asked} > many, "the rest is asked about later"


def test_while_the_api_server_is_away_rights_stay_for_minutes_and_few_ask() -> None:
    looks = Looks((JOBS, "team-a"), (QUEUES, "team-a"))
    looks.look()
    looks.server.error = errors.Unreachable("away")
    looks.clock.step(KEPT_SECONDS)
    assert looks.look().reader.may_read("team-a")
    assert looks.asked_by() == 0, "somebody has found out a moment ago"
    looks.clock.step(PAUSE_SECONDS)
    assert looks.asked_by() == 1
    looks.clock.step(AWAY_SECONDS)
    with pytest.raises(errors.Unreachable):
        looks.look()
    looks.server.error = None
    assert looks.look().reader.may_read("team-a")


def test_what_is_known_is_told_without_a_question_as_long_as_a_look_would_ask_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rights, "MOST_NEW", 4)
    looks = Looks((JOBS, "team-a"), (JOBS, "elsewhere"), (QUEUES, "shared"))

    def known(namespaces: set[str] = NAMESPACES, queues: set[str] = NAMES) -> Any:
        return looks.rights.known_bounds(namespaces, queues)

    assert known() is None
    looks.look()
    assert known() is None, "not all questions were asked"
    told = looks.look()
    asked = len(looks.server.asked)
    assert known() is told
    assert known(namespaces={"team-a"}) is None
    assert known(queues=NAMES | {"new"}) is None
    looks.look("elsewhere")
    assert known() is told, "what a page names is told to this page alone"
    looks.clock.step(KEPT_SECONDS - 1)
    assert known() is told
    looks.clock.step(1)
    assert known() is None
    assert len(looks.server.asked) == asked + 1, "only the look at another namespace has asked"
    looks.server.error = errors.Unreachable("away")
    assert looks.look() is not None
    assert known() is None, "the next look asks again"
    looks.server.error = errors.Unauthorized("revoked")
    looks.clock.step(PAUSE_SECONDS)
    with pytest.raises(errors.Unauthorized):
        looks.look()
    assert known() is None


def test_a_page_does_not_wait_for_the_questions_of_another_page() -> None:
    looks = Looks((JOBS, "team-a"), (QUEUES, "team-a"))
    looks.look()
    asking, done = threading.Event(), threading.Event()
    create = looks.server.create

    def hang(resource: Resource, body: dict[str, Any]) -> Any:
        asking.set()
        assert done.wait(60)
        return create(resource, body)

    looks.server.create = hang  # type: ignore[method-assign]
    looks.clock.step(KEPT_SECONDS)
    first = threading.Thread(target=looks.look)
    first.start()
    try:
        assert asking.wait(60)
        assert looks.look().reader.may_read("team-a")
    finally:
        done.set()
        first.join()


def test_a_question_about_an_action_is_kept_too() -> None:
    looks = Looks()
    looks.server.create = lambda *_: {"status": {"allowed": True}}  # type: ignore[method-assign]
    assert looks.rights.may(AccessQuestion("patch", TORCHJOBS, "team-a", "train"))
