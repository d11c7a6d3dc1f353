"""The token that a command shows: of which account, how often it asks, and what it says if it gets none."""

from typing import Any

import pytest

from coordinator.access.readers import HEADER
from coordinator.access.shown_tokens import RENEWED_SECONDS, ShownTokens
from coordinator.cli.commands.scale import format_plan
from coordinator.query.questions import ANOTHER
from coordinator.wording import pick_columns as columns
from kube import errors
from tests.support.clock import Clock

HOME = "torchq-system"


class Server:
    """An API server that gives tokens of some accounts."""

    def __init__(self, *accounts: str, refusal: type[errors.ClusterError] = errors.Forbidden) -> None:
        self.accounts, self.refusal = accounts, refusal
        self.asked: list[str] = []

    def account_token(self, namespace: str, account: str, audience: str, seconds: int) -> str:
        assert (audience, seconds) == ("torchq", 600)
        self.asked.append(f"{namespace}/{account}")
        if self.asked[-1] not in self.accounts:
            raise self.refusal(f"no token of {namespace}/{account}")
        return f"token {len(self.asked)} of {namespace}/{account}"


def token(server: Server, clock: Clock | None = None, **options: Any) -> ShownTokens:
    return ShownTokens(server, "team-a", clock=clock or Clock(), say=print, **options)  # type: ignore[arg-type]


USER, OTHER, READER = "team-a/torchq-user", "team-b/torchq-user", f"{HOME}/torchq-reader"


@pytest.mark.parametrize(
    ("accounts", "everywhere", "shown", "said"),
    [
        ((USER, READER), False, USER, ""),
        ((READER,), False, READER, ""),
        ((USER, READER), True, READER, ""),
        ((USER,), True, USER, f"note: jobs of other namespaces are not named: no token of {READER}\n"),
        ((), False, "", f"note: jobs are not named: no token of {USER}\n"),
        ((), True, "", f"note: jobs are not named: no token of {READER}\n"),
    ],
)
def test_a_command_shows_the_first_token_that_it_gets_and_says_what_is_missing(
    accounts: tuple[str, ...], everywhere: bool, shown: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = token(Server(*accounts), everywhere=everywhere).headers(HOME, "")
    assert list(headers) == ([HEADER] if shown else [])
    assert headers.get(HEADER, "").endswith(shown)
    assert capsys.readouterr().out == said


def test_an_account_that_is_not_there_is_named_with_the_command_that_makes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not token(Server(refusal=errors.NotFound)).headers(HOME, "")
    told = "there is no account team-a/torchq-user: an admin runs `torchq rbac --tenant team-a | kubectl apply -f -`"
    assert capsys.readouterr().out == f"note: jobs are not named: {told}\n"
    assert not token(Server(refusal=errors.NotFound), everywhere=True).headers(HOME, "")
    assert f"{READER}: an admin runs `torchq rbac reader | kubectl apply -f -`" in capsys.readouterr().out


def test_a_command_asks_once_for_each_namespace_and_again_before_the_token_ends() -> None:
    clock, server = Clock(), Server(USER, OTHER)
    asked = token(server, clock)
    first = asked.headers(HOME, "")
    assert asked.headers(HOME, "team-a") is first
    asked.headers(HOME, "team-b")
    clock.step(RENEWED_SECONDS - 1)
    assert asked.headers(HOME, "") is first
    assert server.asked == [USER, OTHER]
    clock.step(1)
    assert asked.headers(HOME, "") != first


def test_a_command_without_a_token_does_not_ask_again() -> None:
    clock, server = Clock(), Server()
    asked = token(server, clock)
    asked.headers(HOME, "")
    clock.step(10 * RENEWED_SECONDS)
    asked.headers(HOME, "")
    assert server.asked == [USER, READER]


def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(errors.Unreachable):
        token(Server(refusal=errors.Unreachable)).headers(HOME, "")


def test_a_forecast_counts_the_picks_of_other_teams_which_cannot_be_told_apart() -> None:
    another, own = {"pick": 1, "job": ANOTHER}, {"pick": 2, "job": "team-a/train", "uid": "u", "workers": 1}
    found = columns.with_later_picks([another], [another, own, another], 9)
    assert [(pick["pick"], pick["job"], pick["when"]) for pick in found] == [
        (1, ANOTHER, columns.NOW), (2, "team-a/train", columns.LATER), (3, ANOTHER, columns.LATER),
    ]  # fmt: skip
    assert [column.text(another) for column in columns.PICK_COLUMNS] == [1, "-", ANOTHER, "-", "-", "-", "-", "-", "-"]


def test_a_plan_names_the_receiver_of_room_to_who_may_know_it() -> None:
    size = {"job": "a/train", "queue": "a", "workers": 3, "wanted": 3, "idle": 0, "min": 1, "max": 3}
    gives = {**size, "to": 1, "reason": "GiveBack", "message": f"gives 2 workers back to {ANOTHER}"}
    told = {"autoscale": "on", "fromLeader": True, "claims": [], "unchanged": []}
    known = format_plan({**told, "resizes": [{**gives, "for": "b/head", "forQueue": "b"}]})
    assert f"gives 2 workers back to {ANOTHER}: b/head of queue b" in known
    hidden = format_plan({**told, "resizes": [{**gives, "for": ANOTHER, "forQueue": ""}]})
    assert hidden.rstrip().endswith(f"gives 2 workers back to {ANOTHER}")
