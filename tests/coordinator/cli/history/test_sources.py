"""The questions that commands send to a recorder."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

from coordinator.query.remote import RecorderHistory


def test_a_recorder_gets_the_query_of_the_command_and_a_token_of_its_namespace() -> None:
    asked: list[tuple[str, str]] = []

    def fetch(path: str, namespace: str = "") -> Any:
        asked.append((path, namespace))
        return {"items": []}

    history = RecorderHistory(fetch)
    query = {"namespace": "team-a", "user": "ann+1@example.com", "since": "2026-11-20T09:00:00+01:00"}
    history.jobs(query)
    history.job("team-a", "digits", "u1")
    history.usage({"by": "user", "tz": "Europe/Berlin"})
    listed, shown, used = ((urlsplit(path), namespace) for path, namespace in asked)
    assert (listed[0].path, dict(parse_qsl(listed[0].query)), listed[1]) == ("/v1/history", query, "team-a")
    assert (shown[0].path, shown[0].query, shown[1]) == ("/v1/history/team-a/digits", "uid=u1", "team-a")
    assert (used[0].path, dict(parse_qsl(used[0].query))) == ("/v1/usage", {"by": "user", "tz": "Europe/Berlin"})
