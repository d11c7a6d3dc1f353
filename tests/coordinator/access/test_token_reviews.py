"""Reviews of tokens: who has shown one, how long that is known, and what a review costs."""

from typing import Any

import pytest

from coordinator.access import token_reviews
from coordinator.access.readers import EVERYWHERE, Reader
from coordinator.access.token_reviews import KEPT_SECONDS, TokenReviews
from crds.api_resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from kube import errors
from tests.support.clock import Clock

USER = {"username": "system:serviceaccount:team-a:torchq-user", "uid": "u", "groups": ["g"], "extra": {"pod": ["p"]}}


class Server:
    """An API server that knows one user and what it may list."""

    def __init__(self, user: dict[str, Any], *namespaces: str, audiences: tuple[str, ...] = ("torchq",)) -> None:
        self.user, self.namespaces, self.audiences = user, namespaces, audiences
        self.asked: list[tuple[Resource, dict[str, Any]]] = []
        self.away = False

    def create(self, resource: Resource, body: dict[str, Any]) -> Any:
        if self.away:
            raise errors.Unreachable("refused")
        self.asked.append((resource, body["spec"]))
        if resource == TOKEN_REVIEWS:
            is_known = body["spec"]["token"].startswith("known")
            return {"status": {"authenticated": is_known, "user": self.user, "audiences": [*self.audiences]}}
        return {"status": {"allowed": body["spec"]["resourceAttributes"]["namespace"] in self.namespaces}}


def reviews(server: Server, clock: Clock | None = None) -> TokenReviews:
    return TokenReviews(server, clock or Clock())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("user", "allowed", "reader"),
    [
        (USER, ("",), EVERYWHERE),
        (USER, ("team-a",), Reader(namespaces=frozenset(["team-a"]))),
        (USER, ("team-b",), Reader()),
        ({"username": "ann"}, ("",), EVERYWHERE),
        ({"username": "ann"}, ("team-a", "ann"), Reader()),
    ],
    ids=["all", "own namespace", "another namespace", "a person who may list all", "a person of no namespace"],
)
def test_a_reader_may_read_what_its_account_may_list(
    user: dict[str, Any], allowed: tuple[str, ...], reader: Reader
) -> None:
    assert reviews(Server(user, *allowed)).reader("known") == reader


def test_a_review_is_about_the_user_with_all_that_the_api_server_says_of_it() -> None:
    server = Server(USER, "team-a")
    reviews(server).reader("known")
    (_, asked), *access = server.asked
    assert asked == {"token": "known", "audiences": ["torchq"]}
    attributes = {"verb": "list", "group": "train.distributed.io", "resource": "torchjobs"}
    who = {"user": USER["username"], "uid": "u", "groups": ["g"], "extra": {"pod": ["p"]}}
    assert access == [
        (SUBJECT_ACCESS_REVIEWS, who | {"resourceAttributes": attributes | {"namespace": namespace}})
        for namespace in ("", "team-a")
    ]


def test_a_token_that_is_not_known_or_for_another_audience_has_no_reader() -> None:
    assert reviews(Server(USER, "")).reader("unknown") is None
    assert reviews(Server(USER, "", audiences=())).reader("known") is None
    assert reviews(Server(USER, "", audiences=("another",))).reader("known") is None


def test_a_result_is_used_for_30_s_and_then_reviewed_anew() -> None:
    clock, server = Clock(), Server(USER, "team-a")
    asked = reviews(server, clock)
    for _ in range(5):
        asked.reader("known")
        asked.reader("unknown")
    assert len(server.asked) == 3 + 1
    server.namespaces = ()
    clock.step(KEPT_SECONDS - 1)
    assert asked.reader("known") == Reader(namespaces=frozenset(["team-a"]))
    clock.step(1)
    assert asked.reader("known") == Reader()


def test_few_results_are_kept_and_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_reviews, "MOST_KEPT", 2)
    server = Server(USER, "")
    asked = reviews(server)
    for number in range(3):
        asked.reader(f"known {number}")
    before = len(server.asked)
    asked.reader("known 2")
    assert len(server.asked) == before
    asked.reader("known 0")
    assert len(server.asked) > before


def test_an_api_server_that_is_away_is_an_error_and_nothing_is_kept() -> None:
    server = Server(USER, "")
    asked = reviews(server)
    server.away = True
    with pytest.raises(errors.Unreachable):
        asked.reader("known")
    server.away = False
    assert asked.reader("known") == EVERYWHERE
