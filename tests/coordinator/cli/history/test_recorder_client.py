"""How commands find the recorder: by its Lease, through the API server or by its URL, and what they say without one."""

from collections.abc import Mapping
from typing import Any

import pytest

from coordinator.access.readers import EVERYWHERE, HEADER, Reader
from coordinator.cli import api_client
from coordinator.cli.session import Session
from coordinator.http import history_api
from coordinator.leader.election import API_ANNOTATION, SERVICE_ANNOTATION
from coordinator.query.questions import UnknownObject
from coordinator.settings import Settings
from kube import errors
from tests.doubles.memory_history import MemoryHistory

SERVED = {SERVICE_ANNOTATION: "batch/mine-recorder"}


class Api:
    """An API server with the Lease of a recorder, and the recorder's Service."""

    def __init__(self, annotations: Mapping[str, str] | None, error: Exception | None = None) -> None:
        self.annotations, self.error = annotations, error
        self.asked: list[str] = []

    def get(self, _resource: Any, name: str, namespace: str = "") -> Any:
        self.asked.append(f"get {namespace}/{name}")
        if self.annotations is None:
            raise errors.NotFound("there is no such Lease")
        return {"metadata": {"annotations": dict(self.annotations)}}

    def account_token(self, namespace: str, account: str, _audience: str, _seconds: int) -> str:
        return f"{namespace}/{account}"

    def service(self, namespace: str, name: str, path: str, headers: Mapping[str, str], patience: float) -> Any:
        self.asked.append(f"{namespace}/{name}{path} as {headers[HEADER]}, {patience:g} s")
        if self.error:
            raise self.error
        return {"items": []}


def session(api: Api, *, everywhere: bool = False) -> Session:
    made = Session({"namespace": "team-a"}, None, {"TORCHQ_SERVICE": "own/other"}, everywhere=everywhere)
    made.__dict__["cluster"] = api
    return made


def test_commands_ask_the_service_of_the_lease_with_the_token_of_the_namespace() -> None:
    api = Api(SERVED)
    fetch = api_client.recorder(session(api))
    assert fetch("/v1/usage") == fetch("/v1/history/team-b/x", "team-b") == {"items": []}
    asked = "batch/http:mine-recorder:http/v1/"
    assert api.asked == [
        "get kube-system/torchq-recorder",
        f"{asked}usage as team-a/torchq-user, 60 s",
        f"{asked}history/team-b/x as team-b/torchq-user, 60 s",
    ]


def test_a_recorder_takes_longer_for_an_answer_than_commands_wait() -> None:
    assert history_api.LIMITS.seconds > api_client.RECORDER_SECONDS


def test_a_command_about_all_namespaces_shows_the_reader_beside_the_recorder() -> None:
    api = Api(SERVED)
    api_client.recorder(session(api, everywhere=True))("/v1/usage")
    assert api.asked[-1].endswith("as batch/torchq-reader, 60 s")


@pytest.mark.parametrize(
    ("annotations", "error", "words"),
    [
        (None, None, "no recorder keeps the history of this cluster.*recorder.enabled"),
        ({}, None, "does not say where the recorder answers"),
        ({SERVICE_ANNOTATION: "no service/../x"}, None, "does not say where the recorder answers"),
        (SERVED, errors.NotFound('services "x" not found'), "namespace batch has no service mine-recorder"),
        (SERVED, errors.NotFound("there is no /v1/usage here; try /v1/history"), "is of an older version"),
        (SERVED, errors.ServerError("503: no endpoints available"), "does not answer now.*no endpoints"),
    ],
    ids=["no Lease", "no place", "unreadable place", "no Service", "older", "down"],
)
def test_a_recorder_that_does_not_answer_is_named_in_words(
    annotations: Mapping[str, str] | None, error: Exception | None, words: str
) -> None:
    with pytest.raises(api_client.NoRecorder, match=words):
        api_client.recorder(session(Api(annotations, error)))("/v1/usage")


def test_a_job_that_the_history_does_not_have_is_unknown() -> None:
    missing = errors.NotFound("there is no job team-a/x in the history")
    with pytest.raises(UnknownObject, match="team-a/x"):
        api_client.recorder(session(Api(SERVED, missing)))("/v1/history/team-a/x", "team-a")


@pytest.mark.servers
def test_a_recorder_on_loopback_is_asked_by_its_url() -> None:
    class Reviews:
        def reader(self, token: str) -> Reader | None:
            return EVERYWHERE if token == "team-a/torchq-user" else None

    reviews: Any = Reviews()
    with history_api.serving(MemoryHistory, reviews, Settings(health_port=-1)) as notes:
        fetch = api_client.recorder(session(Api(notes)))
        assert fetch("/v1/history")["items"] == []
        with pytest.raises(api_client.Withheld, match=r"the recorder at http://127.0.0.1:\d+: the API server does not"):
            fetch("/v1/history", "team-b")
    with pytest.raises(api_client.NoCoordinator, match=r"the recorder at http://127.0.0.1:\d+ does not answer"):
        fetch("/v1/history")
    assert API_ANNOTATION in notes
