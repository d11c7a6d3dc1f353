"""The recorder's HTTP API: what each reader is told of the history, and how it refuses."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from coordinator.access.readers import EVERYWHERE, HEADER, Reader
from coordinator.http import history_api
from coordinator.http.bounded_server import Answer, Question
from coordinator.http.history_api import HistoryApi
from coordinator.leader.election import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.settings import Settings
from history.errors import NotReachable
from history.rows import GapRow, PoolRow, QueueRow
from history.store import JobQuery
from kube import errors
from tests.doubles.memory_history import MemoryHistory
from tests.support.coordinator import described_answers
from tests.support.history_rows import GPU, hold, job, merged, pod, wait

START = 1_800_000_000
"""In January 2027."""
NOW = START + 100_000
SPAN = "since=2027-01-01&until=2027-02-01"
LISTS = (
    f"/v1/history?{SPAN}",
    "/v1/history?limit=1",
    *(f"/v1/usage?{SPAN}&by={by}" for by in ("queue", "namespace", "user")),
    "/v1/timeline?queue=red-queue&since=2027-01-14&until=2027-01-18",
)
RED, BLUE = (
    ("red-1", "red-gone", "rosa", "red-queue", "RedMessage"),
    ("blue-1", "blue-gone", "boris", "blue-queue", "BlueMessage", "blue"),
)
"""Words that only the history of one team has."""


class Reviews:
    """Tokens that are the names of the namespaces whose jobs their accounts may list; `all` for all."""

    def reader(self, token: str) -> Reader | None:
        match token:
            case "away":
                raise errors.Unreachable("the API server is away")
            case "forged":
                return None
            case "all":
                return EVERYWHERE
        return Reader(namespaces=frozenset([token] if token != "nobody" else []))


def history() -> MemoryHistory:
    """Return the history of two teams, each with a queue, a job that runs, one that is gone, and a pod that outlived
    it."""
    store = MemoryHistory()
    for team, user, gpus in (("red", "rosa", 2), ("blue", "boris", 3)):
        running, gone, queue = f"{team}-1", f"{team}-gone", f"{team}-queue"
        own: dict[str, Any] = {
            "namespace": team,
            "queue": queue,
            "user": user,
            "message": f"{team.title()}Message",
            "created": START,
        }
        lost = {"ended": START + 30_000, "outcome": "Deleted", "is_approximate": True}
        store.write(
            [
                job(running, **own, result='{"loss": 0.1}'),
                job(gone, **{**own, **lost}),
                wait(running, START, START + 5_000, queue=queue),
                hold(
                    running, START + 5_000, None, gpus, queue=queue, running=START + 5_100, workers=2, unpaid={GPU: 1}
                ),
                merged(gone, "1-2", START + 100, START + 30_000, 29_900, queue=queue),
                pod(f"{gone}-pod", gone, START + 30_000, START + 40_000, gpus, namespace=team, queue=queue),
                QueueRow(name=queue, start=START, version=1, weight=1),
            ]
        )
    store.write([PoolRow(start=START, amounts={GPU: 8}), GapRow(start=START + 30_000, end=START + 31_000)])
    store.record_until(NOW)
    return store


def ask(path: str, token: str = "red", store: MemoryHistory | None = None, **settings: Any) -> Answer:
    given = Settings(health_address="0.0.0.0", prices=f"{GPU}=1.5", **settings)
    api = HistoryApi(lambda: store or history(), Reviews(), given, lambda: NOW)  # type: ignore[arg-type]
    return api.answer(Question(path, "", token=token))


def told(path: str, token: str = "red", code: int = 200) -> Any:
    answer = ask(path, token)
    document = json.loads(answer.body)
    assert answer.code == code, document
    described_answers.check(path, answer.code, document)
    return document


@pytest.mark.parametrize("token", ["red", "all"])
@pytest.mark.parametrize("path", [*LISTS, "/v1/history/red/red-1", "/v1/history/red/red-gone?uid=red-gone"])
def test_every_answer_agrees_with_its_description(path: str, token: str) -> None:
    assert told(path, token)


OF_THE_OTHER = ("/v1/history?namespace=blue", "/v1/history?queue=blue-queue", "/v1/history?user=boris",
                "/v1/timeline?queue=blue-queue",
                "/v1/history/red/blue-1", "/v1/history/red/red-1?uid=blue-1")  # fmt: skip


@pytest.mark.parametrize("path", [*LISTS, *OF_THE_OTHER])
def test_a_reader_of_one_namespace_finds_no_name_of_another(path: str) -> None:
    answer = ask(path)
    said = answer.body.decode()
    if answer.code == 404:  # the message repeats what was asked
        said = said.replace("blue-1", "")
    assert [word for word in BLUE if word in said] == []
    assert [word for word in BLUE if word in ask(LISTS[0], "all").body.decode()] == [*BLUE], (
        "else the test finds nothing"
    )


def test_others_are_one_line_of_the_usage() -> None:
    document = told(LISTS[2])
    assert [each["name"] for each in document["items"]] == ["red-queue"]
    assert document["others"]["jobs"] == 2
    every = told(LISTS[2], "all")
    assert sum(int(each["held"]["seconds"][GPU]) for each in every["items"]) == sum(
        int(each["held"]["seconds"][GPU]) for each in (*document["items"], document["others"])
    )


@pytest.mark.parametrize("path", ["/v1/history/blue/blue-1", "/v1/history/blue/never-there"])
def test_a_job_of_another_namespace_is_refused_whether_it_exists_or_not(path: str) -> None:
    said = told(path, code=403)
    assert "told to accounts that may list its TorchJobs" in said["message"]
    assert "torchq rbac --tenant blue" in said["message"]


@pytest.mark.parametrize(
    ("path", "token", "code", "words"),
    [
        ("/v1/usage", "", 401, f"the request has no token: send one of an account in {HEADER}"),
        ("/v1/history/red/red-1", "", 401, "no token"),
        ("/v1/anything", "", 401, "no token"),
        ("/v1/usage", "forged", 401, "does not accept the token"),
        ("/v1/usage", "nobody", 403, "may list the TorchJobs of no namespace"),
        ("/v1/usage", "away", 503, "cannot ask the API server about the token"),
        ("/v1/usage?month=2026-13", "red", 400, "2026-13"),
        ("/v1/timeline", "red", 400, "queue: name a queue"),
        ("/v1/timeline?queue=red-queue&since=60d", "red", 400, "at most 31 days"),
        ("/v1/usage?by=nothing", "red", 400, "by: 'nothing' is none of"),
        ("/v1/history?limit=501", "red", 400, "limit"),
        ("/v1/history/red/nothing", "red", 404, "there is no job red/nothing in the history"),
        ("/v1/summary", "red", 404, "there is no /v1/summary here; try /v1/history"),
        ("/", "red", 404, "there is no / here"),
    ],
)  # fmt: skip
def test_a_refusal_says_why(path: str, token: str, code: int, words: str) -> None:
    assert words in told(path, token, code)["message"]


def test_the_description_is_told_to_everybody() -> None:
    assert "/v1/usage" in told("/v1/openapi.json", "")["paths"]


def test_a_database_that_is_away_and_a_defect_are_refused_apart(caplog: pytest.LogCaptureFixture) -> None:
    class Away(MemoryHistory):
        error: Exception = NotReachable("the database does not answer")

        def jobs(self, query: JobQuery) -> Any:  # noqa: ARG002
            raise self.error

    store = Away()
    answer = ask(LISTS[0], store=store)
    assert (answer.code, json.loads(answer.body)["message"]) == (503, "the database does not answer")
    store.error = KeyError("secret")
    answer = ask(LISTS[0], store=store)
    assert (answer.code, b"secret" in answer.body) == (500, False)
    assert "GET /v1/history" in caplog.text


@pytest.mark.servers
def test_the_server_says_where_it_answers_and_refuses_names_of_other_hosts() -> None:
    reviews: Any = Reviews()
    with history_api.serving(history, reviews, Settings(health_port=-1), lambda: NOW) as notes:
        assert notes.keys() == {API_ANNOTATION}
        url = f"{notes[API_ANNOTATION]}{LISTS[0]}"
        with urllib.request.urlopen(urllib.request.Request(url, headers={HEADER: "red"}), timeout=30) as answer:
            assert {each["namespace"] for each in json.load(answer)["items"]} == {"red"}
        rebound = urllib.request.Request(url, headers={HEADER: "red", "Host": "evil.example"})
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(rebound, timeout=30)
        refused.value.close()
    with history_api.serving(history, reviews, Settings(health_port=-1, health_address="0.0.0.0")) as notes:
        assert notes == {SERVICE_ANNOTATION: "torchq-system/torchq-recorder"}
    with history_api.serving(history, reviews, Settings()) as notes:
        assert notes == {}
