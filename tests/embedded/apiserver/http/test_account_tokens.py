"""Tokens of accounts of the embedded server: how long they last."""

import pytest

from embedded.apiserver.http import account_tokens

BEARER = "the token of the server"


@pytest.mark.parametrize(
    ("asked", "lasts"), [(600, 600), (3_600, 3_600), (1, 600), (10**9, 86_400), (None, 600), ("long", 600)]
)
def test_a_token_lasts_for_the_time_that_was_asked_for_within_bounds(
    asked: object, lasts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(account_tokens.time, "time", lambda: now)
    made = account_tokens.make(("a", "torchq-user"), {"audiences": ["torchq"], "expirationSeconds": asked}, BEARER)
    spec = {"token": made["token"], "audiences": ["torchq"]}
    now += lasts - 1
    assert account_tokens.review(spec, BEARER)["authenticated"]
    assert not account_tokens.review(spec, "the token of another server")["authenticated"]
    now += 1
    assert not account_tokens.review(spec, BEARER)["authenticated"]


@pytest.mark.parametrize("path", ["/api/v1/namespaces/a/serviceaccounts/b", "/api/v1/serviceaccounts/b/token", "/"])
def test_no_other_path_is_the_path_of_tokens(path: str) -> None:
    assert account_tokens.account_of(path) is None
