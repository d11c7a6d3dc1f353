"""The questions that commands send to a recorder, and how they read the history of this machine."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from coordinator.cli.history import sources
from coordinator.query.remote_queries import History
from coordinator.settings import Settings
from history.sql.sql_history import open_history


def test_a_recorder_gets_the_query_of_the_command_and_a_token_of_its_namespace() -> None:
    asked: list[tuple[str, str]] = []

    def fetch(path: str, namespace: str = "") -> Any:
        asked.append((path, namespace))
        return {"items": []}

    history = History(fetch)
    query = {"namespace": "team-a", "user": "ann+1@example.com", "since": "2026-11-20T09:00:00+01:00"}
    history.jobs(query)
    history.job("team-a", "digits", "u1")
    history.usage({"by": "user", "tz": "Europe/Berlin"})
    listed, shown, used = ((urlsplit(path), namespace) for path, namespace in asked)
    assert (listed[0].path, dict(parse_qsl(listed[0].query)), listed[1]) == ("/v1/history", query, "team-a")
    assert (shown[0].path, shown[0].query, shown[1]) == ("/v1/history/team-a/digits", "uid=u1", "team-a")
    assert (used[0].path, dict(parse_qsl(used[0].query))) == ("/v1/usage", {"by": "user", "tz": "Europe/Berlin"})


def test_a_dashboard_holds_no_history_open_and_sees_what_is_recorded_after_a_restart(tmp_path: Path) -> None:
    target = SimpleNamespace(data=tmp_path, runs=False)
    session: Any = SimpleNamespace(settings=Settings(), target=target)
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    for until in (1_700_000_000, 1_700_000_060):
        with closing(open_history(url, "")) as recorder:
            recorder.record_until(until)
            told = sources.find(session).usage({"since": "2023-11-01", "until": "2023-11-30"})["until"]
            assert told == ("2023-11-14T22:13:20Z" if until == 1_700_000_000 else "2023-11-14T22:14:20Z")
        assert not (tmp_path / "history.sqlite-wal").exists(), "a connection of the reader is still open"
